"""/v1/chat/completions over HTTP: every field, by OpenAI's own client where it can say it."""

import json
import threading

import httpx
import openai
import pytest

from rose.protocol import FinishReason
from rose.server.detokenize import TextCodec
from tests import patient_http
from tests.engine_processes import PATIENCE_S, eventually
from tests.playback_engine import MODEL, Played

YES = "<|channel|>final<|message|>Yes, it is.<|return|>"
THINKS = "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant" + YES
USER = [{"role": "user", "content": "Hi"}]


def function(name: str, **fields: object) -> dict:
    return {"type": "function", "function": {"name": name, **fields}}


def post(played: Played, **body: object) -> httpx.Response:
    body = {"model": MODEL, "messages": USER} | body
    return patient_http.post(played.url + "/v1/chat/completions", json=body)


def test_an_answer(played):
    answer = played.chat(THINKS)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == MODEL
    [choice] = answer.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    message = choice.message
    assert (message.role, message.content, message.reasoning) == (
        "assistant",
        "Yes, it is.",
        "I think.",
    )
    assert message.tool_calls is None
    assert message.refusal is None


def test_a_stream_begins_with_the_role_and_ends_with_the_usage(played):
    chunks = played.stream(THINKS, stream_options={"include_usage": True})
    *parts, last = chunks
    assert {c.id for c in chunks} == {chunks[0].id}
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    assert parts[0].choices[0].delta.role == "assistant"
    assert all(c.choices[0].delta.role is None for c in parts[1:])
    assert "".join(c.choices[0].delta.content or "" for c in parts) == "Yes, it is."
    assert [c.choices[0].finish_reason for c in parts] == [None] * (len(parts) - 1) + ["stop"]
    assert all(c.usage is None for c in parts)
    assert last.choices == []
    assert last.usage.completion_tokens == len(played.engine.codec.encode(THINKS))
    # Role, a chunk each token of text, and the finish.
    text_tokens = len(played.engine.codec.encode_plain("I think.")) + len(
        played.engine.codec.encode_plain("Yes, it is.")
    )
    assert len(parts) == 2 + text_tokens


def test_usage_counts_cached_and_reasoning_tokens(played):
    played.engine.num_cached = 16
    usage = played.chat(THINKS).usage
    played.engine.num_cached = 0
    codec = played.engine.codec
    assert usage.prompt_tokens == len(played.engine.requests[-1].prompt_token_ids)
    assert usage.completion_tokens == len(codec.encode(THINKS))
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == 16
    reasoning = usage.completion_tokens_details.reasoning_tokens
    assert reasoning == len(codec.encode_plain("I think."))


def test_a_character_of_several_tokens_is_one_delta_and_all_its_tokens_are_reasoning(played):
    text = "<|channel|>analysis<|message|>\N{SNOWMAN}<|end|><|start|>assistant" + YES
    codec = played.engine.codec
    assert len(codec.encode_plain("\N{SNOWMAN}")) > 1
    answer = played.chat(text)
    assert answer.choices[0].message.reasoning == "\N{SNOWMAN}"
    reasoning = answer.usage.completion_tokens_details.reasoning_tokens
    assert reasoning == len(codec.encode_plain("\N{SNOWMAN}"))


def test_every_choice_has_a_parser_of_its_own(played):
    texts = (YES, THINKS, "<|channel|>commentary to=functions.f<|message|>{}<|call|>")
    answer = played.chat(*texts, n=3, seed=5)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert [c.finish_reason for c in answer.choices] == ["stop", "stop", "tool_calls"]
    assert [c.message.content for c in answer.choices] == ["Yes, it is.", "Yes, it is.", None]
    contents = ["", "", ""]
    for chunk in played.stream(*texts, n=3):
        contents[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert contents == ["Yes, it is.", "Yes, it is.", ""]


def test_sampling_fields_reach_the_engine(played):
    played.chat(
        YES,
        temperature=0.5,
        top_p=0.9,
        seed=7,
        max_completion_tokens=50,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        logit_bias={"7": -3},
        extra_body={"top_k": 4, "min_p": 0.1, "repetition_penalty": 1.1, "priority": -2,
                    "stop_token_ids": [9], "min_tokens": 2},
    )  # fmt: skip
    request = played.engine.requests[-1]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.9, 7)
    assert (sampling.max_tokens, sampling.min_tokens) == (50, 2)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.1, 0.2)
    assert sampling.logit_bias == {7: -3}
    assert (sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (4, 0.1, 1.1)
    assert 9 in sampling.stop_token_ids
    assert request.priority == -2
    played.chat(YES, max_tokens=9)
    assert played.engine.requests[-1].sampling.max_tokens == 9
    played.chat(YES)
    defaults = played.engine.requests[-1].sampling
    assert (defaults.temperature, defaults.top_p, defaults.max_tokens) == (1.0, 1.0, None)


def test_stop_strings_end_the_content_and_are_not_looked_for_in_reasoning(played):
    text = (
        "<|channel|>analysis<|message|>Stop it.<|end|><|start|>assistant"
        "<|channel|>final<|message|>Do not Stop it here."
    )
    for body in ({"stop": "Stop"}, {"stop": ["nowhere", "Stop it h"]}):
        [choice] = played.chat(text, finish=None, **body).choices
        assert choice.message.reasoning == "Stop it."
        assert (choice.message.content, choice.finish_reason) == ("Do not ", "stop")
        chunks = played.stream(text, finish=None, **body)
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == "Do not "
    eventually(lambda: all(map(played.engine.aborted, played.engine.requests[-4:])))


def test_the_beginning_of_a_stop_string_that_is_none_is_given_out(played):
    [choice] = played.chat(YES, stop="is. Not").choices
    assert choice.message.content == "Yes, it is."
    before_call = "<|channel|>commentary<|message|>I do St<|end|><|start|>assistant"
    call = "<|channel|>commentary to=functions.f<|message|>{}<|call|>"
    chunks = played.stream(before_call + call, stop="Stop")
    deltas = [c.choices[0].delta for c in chunks]
    assert "".join(d.content or "" for d in deltas) == "I do St"
    first_call = next(n for n, d in enumerate(deltas) if d.tool_calls)
    assert not any(d.content for d in deltas[first_call:]), "in the order in which it was written"


def test_a_clients_own_stop_token_is_no_part_of_the_answer(played):
    [stop] = played.engine.codec.encode_plain("7")
    played.engine.scripts = [
        played.engine.script("<|channel|>final<|message|>So 7", FinishReason.LENGTH)
    ]
    played.engine.scripts[0].finish = FinishReason.STOP
    [choice] = played.chat(extra_body={"stop_token_ids": [stop]}).choices
    assert (choice.message.content.strip(), choice.finish_reason) == ("So", "stop")


def test_logprobs_are_those_of_the_contents_tokens(played):
    codec = played.engine.codec
    [choice] = played.chat(THINKS, logprobs=True, top_logprobs=2).choices
    ids = codec.encode_plain("Yes, it is.")
    entries = choice.logprobs.content
    assert [bytes(e.bytes) for e in entries] == [codec.token_bytes(i) for i in ids]
    assert "".join(e.token for e in entries) == "Yes, it is."
    assert [e.logprob for e in entries] == [-i / 8 for i in ids]
    assert [len(e.top_logprobs) for e in entries] == [2] * len(ids)
    assert entries[0].top_logprobs[0].logprob == entries[0].logprob
    streamed = []
    for chunk in played.stream(THINKS, logprobs=True, top_logprobs=2):
        if chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert streamed == entries
    [choice] = played.chat(THINKS, logprobs=True).choices
    assert {len(e.top_logprobs) for e in choice.logprobs.content} == {0}
    [choice] = played.chat(THINKS, logprobs=True, stop="it").choices
    assert "".join(e.token for e in choice.logprobs.content) == "Yes, "


def test_messages_of_all_roles_and_content_in_parts_reach_the_prompt(played):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
         "name": "ann"},
        {"role": "assistant", "content": "C", "refusal": None, "annotations": [], "audio": None},
        {"role": "user", "content": "D"},
    ]  # fmt: skip
    played.chat(YES, messages=messages)
    prompt = played.engine.prompt()
    assert "# Instructions\n\nBe brief.\n\nBe kind.<|end|>" in prompt
    assert (
        "<|start|>user<|message|>AB<|end|>"
        "<|start|>assistant<|channel|>final<|message|>C<|end|>"
        "<|start|>user<|message|>D<|end|><|start|>assistant"
    ) in prompt


def test_tools_are_declared_unless_the_choice_is_none(played):
    tools = [function("f", description="Does F.", parameters={"type": "object", "properties": {}})]
    played.chat(YES, tools=tools)
    assert "// Does F.\ntype f =" in played.engine.prompt()
    assert played.engine.requests[-1].grammar is None
    played.chat(YES, tools=tools, tool_choice="auto")
    assert "type f =" in played.engine.prompt()
    played.chat(YES, tools=tools, tool_choice="none")
    assert "type f =" not in played.engine.prompt()


def test_allowed_tools_are_the_only_ones_that_a_required_call_can_name(played):
    tools = [function("f"), function("g")]
    allowed = {"mode": "required", "tools": [function("g")]}
    call = "<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}<|call|>"
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    played.chat(call, tools=tools, tool_choice=choice)
    grammar = played.engine.requests[-1].grammar.source
    assert "functions.g" in grammar
    assert "functions.f" not in grammar


def test_strict_functions_constrain_their_arguments(played):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    played.chat(YES, tools=[function("f", parameters=schema, strict=True)])
    assert '"integer"' in played.engine.requests[-1].grammar.source


def test_json_object_is_told_and_constrained(played):
    played.chat(YES, response_format={"type": "json_object"})
    assert "%json" in played.engine.requests[-1].grammar.source
    assert "# Response Formats" in played.engine.prompt()
    played.chat(YES, response_format={"type": "text"})
    assert played.engine.requests[-1].grammar is None


def test_fields_of_no_effect_are_accepted(played):
    played.engine.play(YES)
    ignored = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "safety_identifier": "x",
        "prompt_cache_key": "k",
        "prediction": {"type": "content", "content": "x"},
        "modalities": ["text"],
        "verbosity": "medium",
        "parallel_tool_calls": True,
        "n": None,
        "tools": None,
        "tool_choice": None,
        "stop": None,
    }
    assert post(played, **ignored).status_code == 200


REFUSED = [
    ({"messages": []}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
     "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]},
     "messages[0].content[0].text"),
    ({"messages": [*USER, {"role": "tool", "tool_call_id": "x", "content": ""}]},
     "messages[1].tool_call_id"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [function("no good")]}, "tools[0].function.name"),
    ({"tools": [function("f"), function("f")]}, "tools[1].function.name"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes"}, "tool_choice.type"),
    ({"tools": [function("f")], "tool_choice": function("g")}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"reasoning_effort": "none"}, "reasoning_effort"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"functions": []}, "functions"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"verbosity": "low"}, "verbosity"),
    ({"chat_template_kwargs": {}}, "chat_template_kwargs"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=[json.dumps(b)[:60] for b, _ in REFUSED])
def test_what_cannot_be_is_a_400_that_names_the_field(played, body, param):
    played.engine.play(YES)
    response = post(played, **body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param), error
    assert error["type"] == "invalid_request_error"


def test_an_unsupported_schema_is_a_400_that_says_what(played):
    schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    error = post(played, response_format=wanted).json()["error"]
    assert error["param"] == "response_format"
    assert "not" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_refuses_names_the_messages(played, stream):
    played.engine.refuse("prompt is too long", "prompt_token_ids")
    response = post(played, stream=stream)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages"


def test_another_model_is_a_404(played):
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        played.client.chat.completions.create(model="other", messages=USER)


def test_an_engine_that_fails_in_mid_stream_ends_it_with_an_error_event(played):
    played.engine.scripts = [played.engine.script(YES, FinishReason.ERROR)]
    with pytest.raises(openai.APIError, match="failed to run"):
        list(played.chat(stream=True))
    assert post(played).status_code == 503


def test_a_client_that_leaves_frees_its_request(played):
    played.engine.play("<|channel|>final<|message|>Yes", finish=None)
    stream = played.chat(stream=True)
    next(iter(stream))
    stream.close()
    eventually(lambda: played.engine.aborted(played.engine.requests[-1]))


def test_200_000_equal_characters_are_tokenised_and_block_nobody(played, monkeypatch):
    """While the large chat is tokenised, others are answered: it does not go on before one was."""
    began, answered = threading.Event(), threading.Event()
    encode_plain = TextCodec.encode_plain

    def encode_when_another_was_answered(codec: TextCodec, text: str) -> list[int]:
        if len(text) >= 200_000:
            began.set()
            assert answered.wait(2 * PATIENCE_S)
        return encode_plain(codec, text)

    monkeypatch.setattr(TextCodec, "encode_plain", encode_when_another_was_answered)
    played.engine.play(YES)
    statuses: list[int] = []

    def post_the_large_one() -> None:
        response = post(played, messages=[{"role": "user", "content": "a" * 200_000}])
        statuses.append(response.status_code)

    posting = threading.Thread(target=post_the_large_one)
    posting.start()
    assert began.wait(PATIENCE_S)
    try:
        assert patient_http.get(played.url + "/v1/models").status_code == 200
    finally:
        answered.set()
        posting.join()
    assert statuses == [200]

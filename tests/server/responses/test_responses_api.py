"""/v1/responses over HTTP, by OpenAI's own client where it can say it; the engine is scripted."""

import json
from collections.abc import Iterator

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from rose.protocol import FinishReason
from rose.server.responses import background
from tests import patient_http
from tests.engine_processes import eventually
from tests.patient_http import posted
from tests.playback_engine import MODEL, Played

EVENT = TypeAdapter(ResponseStreamEvent)

ANSWER = "<|channel|>final<|message|>Hello you<|return|>"
THOUGHT = "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a":1}'
ADD = {
    "type": "function",
    "name": "add",
    "description": "Add.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": False,
}
CLOCK = {"type": "function", "name": "clock", "parameters": None, "strict": None}


class Api:
    """Posts responses, with every object and event checked against OpenAI's types."""

    def __init__(self, played: Played) -> None:
        self.engine, self.client = played.engine, played.client
        self.url = played.url + "/v1/responses"

    def post(self, writes: str | None = None, finish=FinishReason.STOP, **body: object) -> dict:
        if writes is not None:
            self.engine.play(writes, finish=finish)
        body = {"model": MODEL, "input": "Hi"} | body
        answer = patient_http.post(self.url, json=body)
        assert answer.status_code == 200, answer.text
        Response.model_validate(answer.json(), strict=True)
        return answer.json()

    def stream(self, writes: str, finish=FinishReason.STOP, **body: object) -> list[dict]:
        self.engine.play(writes, finish=finish)
        body = {"model": MODEL, "input": "Hi", "stream": True} | body
        answer = patient_http.post(self.url, json=body)
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
        return list(events(answer.text))

    def refusal(self, status: int = 400, **body: object) -> dict:
        body = {"model": MODEL, "input": "Hi"} | body
        answer = patient_http.post(self.url, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()["error"]

    def get(self, path: str, status: int = 200) -> dict:
        answer = patient_http.get(f"{self.url}/{path}")
        assert answer.status_code == status, answer.text
        return answer.json() if status == 200 else answer.json()["error"]

    def status(self, response_id: str) -> str:
        return self.get(response_id)["status"]


def events(text: str) -> Iterator[dict]:
    for number, block in enumerate(text.split("\n\n")[:-1]):
        kind, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert kind == f"event: {event['type']}"
        assert event["sequence_number"] == number
        EVENT.validate_python(event, strict=True)
        yield event


@pytest.fixture
def api(played: Played) -> Api:
    played.engine.num_cached = 0
    return Api(played)


def test_reasoning_and_message_are_items(api):
    api.engine.num_cached = 16
    response = api.post(THOUGHT + ANSWER, metadata={"k": "v"}, temperature=0.5, user="me")
    reasoning, message = response["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert (reasoning["summary"], reasoning["status"]) == ([], "completed")
    assert [part["text"] for part in message["content"]] == ["Hello you"]
    assert (message["role"], message["status"]) == ("assistant", "completed")
    assert (response["status"], response["error"]) == ("completed", None)
    assert response["incomplete_details"] is None
    assert (response["metadata"], response["temperature"]) == ({"k": "v"}, 0.5)
    usage = response["usage"]
    codec, request = api.engine.codec, api.engine.requests[-1]
    assert usage["input_tokens"] == len(request.prompt_token_ids)
    assert usage["output_tokens"] == len(codec.encode(THOUGHT + ANSWER))
    assert usage["output_tokens_details"]["reasoning_tokens"] == len(codec.encode("Let me see."))
    assert usage["input_tokens_details"]["cached_tokens"] == 16
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert request.sampling.temperature == 0.5


def test_the_stream_is_the_whole(api):
    said = api.stream(THOUGHT + CALL + "<|call|>", tools=[ADD])
    kinds = [event["type"].removeprefix("response.") for event in said]
    assert kinds[:3] == ["created", "in_progress", "output_item.added"]
    assert kinds[-2:] == ["output_item.done", "completed"]
    created, response = said[0]["response"], said[-1]["response"]
    assert (created["status"], created["output"], created["usage"]) == ("in_progress", [], None)
    dones = [event["item"] for event in said if event["type"].endswith("item.done")]
    assert response["output"] == dones
    assert [item["type"] for item in dones] == ["reasoning", "function_call"]
    assert dones[1]["arguments"] == '{"a":1}'
    whole = api.post(THOUGHT + CALL + "<|call|>", tools=[ADD])
    forget = {"id", "call_id"}
    known = [{k: v for k, v in item.items() if k not in forget} for item in whole["output"]]
    assert known == [{k: v for k, v in item.items() if k not in forget} for item in dones]
    assert whole["usage"] == response["usage"]
    assert api.get(response["id"]) == response


def test_the_clients_own_stream_accumulates_it(api):
    api.engine.play(THOUGHT + ANSWER)
    with api.client.responses.stream(model=MODEL, input="Hi") as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "Hello you"
    retrieved = api.client.responses.retrieve(final.id)
    assert retrieved.output_text == "Hello you"


def test_a_length_makes_it_incomplete_even_within_a_call(api):
    response = api.post(THOUGHT + CALL, FinishReason.LENGTH, tools=[ADD], max_output_tokens=30)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert response["output"][1]["arguments"] == '{"a":1}'
    assert api.engine.requests[-1].sampling.max_tokens == 30
    said = api.stream(THOUGHT[:36], FinishReason.LENGTH)
    assert said[-1]["type"] == "response.incomplete"
    assert said[-1]["response"]["output"][0]["status"] == "incomplete"


def test_a_preamble_and_two_calls_are_three_items(api):
    preamble = "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant"
    text = preamble + CALL + "<|end|><|start|>assistant" + CALL + "<|call|>"
    response = api.post(text, tools=[ADD])
    assert [i["type"] for i in response["output"]] == ["message"] + ["function_call"] * 2
    assert response["output"][0]["phase"] == "commentary"
    [first, second] = response["output"][1:]
    assert first["call_id"] != second["call_id"]
    assert not api.engine.aborted(api.engine.requests[-1])
    api.engine.play(text, finish=None)  # it would write on and on
    response = api.post(None, tools=[ADD], parallel_tool_calls=False)
    assert [i["type"] for i in response["output"]] == ["message", "function_call"]
    eventually(lambda: api.engine.aborted(api.engine.requests[-1]))


def test_a_tool_loop_over_previous_responses_keeps_the_open_turns_reasoning(api):
    first = api.post(THOUGHT + CALL + "<|call|>", tools=[ADD], instructions="Be brief.")
    assert "# Instructions\n\nBe brief." in api.engine.prompt()
    call = first["output"][1]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "2"}
    second = api.post(
        THOUGHT + ANSWER, tools=[ADD], input=[result], previous_response_id=first["id"]
    )
    prompt = api.engine.prompt()
    assert "Be brief" not in prompt, "instructions are not carried over"
    assert prompt.endswith(
        "<|start|>user<|message|>Hi<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Let me see.<|end|>"
        f"<|start|>assistant{CALL}<|call|>"
        "<|start|>functions.add to=assistant<|channel|>commentary<|message|>2<|end|>"
        "<|start|>assistant"
    )
    api.post(ANSWER, input="And now?", previous_response_id=second["id"])
    prompt = api.engine.prompt()
    assert "analysis<|message|>" not in prompt, "the turn is over"
    assert "Hello you<|end|><|start|>user<|message|>And now?<|end|>" in prompt
    assert second["previous_response_id"] == first["id"]


def test_a_client_may_keep_the_items_itself(api):
    first = api.post(THOUGHT + CALL + "<|call|>", tools=[ADD], store=False)
    assert first["store"] is False
    assert api.get(first["id"], 404)["code"] == "response_not_found"
    call = first["output"][1]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "2"}
    history = [{"role": "user", "content": "Hi"}, *first["output"], result]
    api.post(ANSWER, input=history, tools=[ADD], store=False)
    assert f"Let me see.<|end|><|start|>assistant{CALL}<|call|>" in api.engine.prompt()
    error = api.refusal(previous_response_id=first["id"])
    assert (error["param"], error["code"]) == (
        "previous_response_id", "previous_response_not_found"
    )  # fmt: skip


def test_items_of_kept_responses_may_be_referred_to(api):
    first = api.post(THOUGHT + CALL + "<|call|>", tools=[ADD])
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    call_id = first["output"][1]["call_id"]
    result = {"type": "function_call_output", "call_id": call_id, "output": "2"}
    api.post(ANSWER, input=[{"role": "user", "content": "Hi"}, *references, result], tools=[ADD])
    assert f"Let me see.<|end|><|start|>assistant{CALL}<|call|>" in api.engine.prompt()


def test_input_items_are_listed_page_by_page(api):
    first = api.post(ANSWER, input=[{"role": "user", "content": t} for t in "ab"])
    second = api.post(ANSWER, input="c", previous_response_id=first["id"])
    pages = api.client.responses.input_items.list(second["id"], order="asc", limit=3)
    texts = [item.content[0].text for item in pages]
    assert texts == ["a", "b", "Hello you", "c"]
    page = api.get(f"{second['id']}/input_items?limit=1")
    assert [item["content"][0]["text"] for item in page["data"]] == ["c"]
    assert page["has_more"]
    for query in ("limit=0", "limit=x", "order=up", "after=msg_x"):
        error = api.get(f"{second['id']}/input_items?{query}", 400)
        assert error["param"] == query.split("=")[0]


def test_a_deleted_response_is_gone(api):
    response = api.post(ANSWER)
    deleted = patient_http.delete(f"{api.url}/{response['id']}").json()
    assert deleted == {"id": response["id"], "object": "response", "deleted": True}
    for path in ("", "/input_items"):
        api.get(response["id"] + path, 404)
    assert patient_http.delete(f"{api.url}/{response['id']}").status_code == 404
    assert patient_http.post(f"{api.url}/{response['id']}/cancel").status_code == 404
    api.client.responses.delete(api.post(ANSWER)["id"])


def test_a_background_response_is_polled(api):
    response = api.post(ANSWER, background=True)
    assert (response["status"], response["background"]) == ("in_progress", True)
    eventually(lambda: api.status(response["id"]) == "completed")
    assert api.client.responses.retrieve(response["id"]).output_text == "Hello you"
    ended = patient_http.post(f"{api.url}/{response['id']}/cancel").json()
    assert ended["status"] == "completed", "too late to cancel it"


def test_a_background_response_is_cancelled_with_what_there_is_of_it(api):
    response = api.post(THOUGHT + ANSWER[:-10], None, background=True)
    eventually(lambda: len(api.get(response["id"])["output"]) == 1)
    assert api.status(response["id"]) == "in_progress"
    assert "still being made" in api.refusal(previous_response_id=response["id"])["message"]
    cancelled = api.client.responses.cancel(response["id"])
    assert cancelled.status == "cancelled"
    assert [item.status for item in cancelled.output] == ["completed", "incomplete"]
    eventually(lambda: api.engine.aborted(api.engine.requests[-1]))
    assert api.client.responses.cancel(response["id"]) == cancelled
    assert api.get(response["id"])["status"] == "cancelled"


def test_one_cancelled_at_once_is_cancelled_nonetheless(api):
    for _ in range(5):
        response = api.post(ANSWER[:-10], None, background=True)
        cancelled = patient_http.post(f"{api.url}/{response['id']}/cancel").json()
        assert cancelled["status"] == "cancelled"


def test_deleting_a_background_response_ends_it(api):
    response = api.post(ANSWER[:-10], None, background=True)
    patient_http.delete(f"{api.url}/{response['id']}").raise_for_status()
    eventually(lambda: api.engine.aborted(api.engine.requests[-1]))
    api.get(response["id"], 404)


def test_too_many_in_the_background_are_refused(api, monkeypatch):
    monkeypatch.setattr(background, "MAX_RUNNING", 1)
    first = api.post(ANSWER[:-10], None, background=True)
    assert api.refusal(429, background=True)["code"] == "too_many_background_responses"
    api.client.responses.cancel(first["id"])
    api.client.responses.delete(api.post(ANSWER, background=True)["id"])


def test_only_background_responses_are_cancelled(api):
    response = api.post(ANSWER)
    with pytest.raises(openai.BadRequestError, match="only responses in the background"):
        api.client.responses.cancel(response["id"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_the_sequence(api, stream):
    api.engine.play(ANSWER[:-10], finish=None)
    body = {"model": MODEL, "input": "Hi", "stream": stream}
    if stream:
        with patient_http.stream("POST", api.url, json=body) as answer:
            lines = answer.iter_lines()
            while "output_text.delta" not in next(lines):
                pass
    else:
        before = len(api.engine.requests)
        with posted(api.url, body):
            eventually(lambda: len(api.engine.requests) > before)
    eventually(lambda: api.engine.aborted(api.engine.requests[-1]))
    api.get(api.engine.requests[-1].request_id, 404)


def test_an_engine_that_fails_in_mid_stream_ends_it_with_response_failed(api):
    said = api.stream(THOUGHT + ANSWER[:-10], FinishReason.ERROR)
    assert said[-1]["type"] == "response.failed"
    response = said[-1]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert said[-2]["type"] == "response.output_item.done", "what was begun is ended"
    assert api.get(response["id"]) == response
    error = api.refusal(503)
    assert error["code"] == "engine_unavailable"
    background = api.post(None, background=True)
    eventually(lambda: api.status(background["id"]) == "failed")


@pytest.mark.parametrize(
    ("param", "field"), [("prompt_token_ids", "input"), ("max_tokens", "max_output_tokens")]
)
def test_what_the_engine_refuses_names_the_field(api, param, field):
    api.engine.refuse(f"{param} is too large", param)
    for stream in (False, True):
        error = api.refusal(stream=stream)
        assert error["param"] == field
        assert "max_tokens" not in error["message"]
    response = api.post(None, background=True)
    eventually(lambda: api.status(response["id"]) == "failed")
    assert api.get(response["id"])["error"]["code"] == "invalid_prompt"


def test_a_json_schema_reaches_the_prompt_and_the_grammar(api):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    wanted = {"type": "json_schema", "name": "number", "schema": schema, "strict": True}
    response = api.post(ANSWER, text={"format": wanted})
    assert response["text"]["format"] == wanted
    assert "# Response Formats\n\n## number" in api.engine.prompt()
    assert '"n"' in api.engine.requests[-1].grammar.source
    api.post(ANSWER, text={"format": {"type": "json_object"}})
    assert "%json" in api.engine.requests[-1].grammar.source
    api.post(ANSWER, text={"format": {"type": "text"}})
    assert api.engine.requests[-1].grammar is None
    unsupported = {"type": "object", "properties": {"n": {"not": {"type": "string"}}}}
    error = api.refusal(text={"format": wanted | {"schema": unsupported}})
    assert error["param"].startswith("text.format")


def test_tool_choice_decides_what_is_declared_and_what_must_be_called(api):
    tools = [ADD, CLOCK]
    api.post(ANSWER, tools=tools, tool_choice="none")
    assert "namespace functions" not in api.engine.prompt()
    response = api.post(CALL, tools=tools, tool_choice={"type": "function", "name": "add"})
    assert response["tool_choice"] == {"type": "function", "name": "add"}
    grammar = api.engine.requests[-1].grammar.source
    assert "functions.add" in grammar
    assert "functions.clock" not in grammar
    api.post(CALL, tools=tools, tool_choice="required")
    assert "functions.clock" in api.engine.requests[-1].grammar.source
    some = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "clock"}],
    }
    api.post(ANSWER, tools=tools, tool_choice=some)
    assert "type clock" in api.engine.prompt()
    assert "type add" not in api.engine.prompt()
    api.post(ANSWER, tools=[ADD | {"strict": True}])
    assert "functions.add" in api.engine.requests[-1].grammar.source


def test_effort_reaches_the_prompt(api):
    api.post(ANSWER, reasoning={"effort": "high", "summary": "auto"})
    assert "Reasoning: high" in api.engine.prompt()


def test_what_is_of_no_effect_is_accepted(api):
    api.post(
        ANSWER, service_tier="auto", truncation="auto", prompt_cache_key="k", safety_identifier="s",
        include=["reasoning.encrypted_content"], max_tool_calls=3, text={"verbosity": "medium"},
        stream_options=None, tools=[ADD | {"defer_loading": False, "parameters": {"n": 10**30}}],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0].type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [ADD, ADD]}, "tools[1].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
         "tool_choice.tools"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"reasoning": {"effort": "none"}}, "reasoning.effort"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"k": "x" * 513}}, "metadata"),
        ({"include": ["everything"]}, "include[0]"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True, "store": False}, "background"),
        ({"background": True, "stream": True}, "stream"),
        ({"stream_options": {}}, "stream_options"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
        ({"colour": "red"}, "colour"),
        ({"model": 5}, "model"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_field(api, body, param):
    error = api.refusal(**body)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param, error


def test_another_model_is_not_found(api):
    assert api.refusal(404, model="gpt-5")["code"] == "model_not_found"
    assert api.get("resp_unknown", 404)["param"] == "response_id"
    assert api.get("resp_unknown?stream=true", 400)["param"] == "stream"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff"])
def test_what_is_no_json_object_is_refused(api, raw):
    answer = patient_http.post(api.url, content=raw)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"

"""/v1/completions over HTTP, by OpenAI's own client where it can say it."""

import json
import socket
import time
from collections.abc import Iterator

import httpx
import openai
import pytest
from tokenizers import Tokenizer

from rose.protocol import InvalidRequestError, Request
from rose.server.detokenize import TextCodec
from rose.server.http import MAX_BODY_BYTES
from rose.server.openai_types import CompletionRequest
from tests import patient_http
from tests.engine_processes import eventually, fake_output, make_request
from tests.fakes import digest_of, expected_prompt_logprobs, token_logprobs


@pytest.fixture(scope="module")
def client(server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def codec(tokenizer_folder) -> TextCodec:
    return TextCodec(Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json")))


def ask(request: Request) -> dict[str, object]:
    sampling = request.sampling
    return {
        "model": "fake",
        "prompt": request.prompt_token_ids,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }


def events(response: httpx.Response) -> list[dict]:
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


def test_token_ids_in_text_out(client, codec):
    request = make_request("a", 5, 6, 7, max_tokens=20)
    answer = client.completions.create(**ask(request))
    assert answer.object == "text_completion"
    assert answer.model == "fake"
    [choice] = answer.choices
    assert choice.text == codec.decode(fake_output(request))
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (3, 20, 23)


def test_the_stream_is_the_whole(client, codec):
    request = make_request("a", *range(40), max_tokens=30)
    whole = client.completions.create(**ask(request))
    options = {"include_usage": True}
    chunks = list(client.completions.create(**ask(request), stream=True, stream_options=options))
    *parts, last = chunks
    assert "".join(c.choices[0].text for c in parts) == whole.choices[0].text
    assert len(parts) == 30, "text comes token by token"
    assert [c.choices[0].finish_reason for c in parts] == [None] * 29 + ["length"]
    assert {c.id for c in chunks} == {chunks[0].id}
    assert last.choices == []
    assert last.usage.completion_tokens == 30
    # The second run found the first one's prompt in the prefix cache.
    assert last.usage.prompt_tokens_details.cached_tokens == 32
    assert whole.usage.prompt_tokens_details.cached_tokens == 0


def test_text_prompts_are_encoded_with_special_tokens(server, client, codec):
    text = "<|start|>user<|message|>Grüße 🎉<|end|>"
    ids = codec.encode(text)
    assert len(ids) < len(text.encode())
    request = make_request("a", *ids)
    answer = client.completions.create(**(ask(request) | {"prompt": text}))
    assert answer.choices[0].text == codec.decode(fake_output(request))
    assert answer.usage.prompt_tokens == len(ids)


def test_several_prompts_and_choices_are_numbered_prompt_by_prompt(server, client, codec):
    requests = [make_request(str(i), i, n=2, seed=4, temperature=1.0) for i in range(3)]
    body = ask(requests[0]) | {"prompt": [[0], [1], [2]], "n": 2, "seed": 4}
    wanted = [codec.decode(fake_output(r, index)) for r in requests for index in range(2)]
    answer = client.completions.create(**body)
    assert [c.text for c in answer.choices] == wanted
    assert [c.index for c in answer.choices] == list(range(6))
    assert answer.usage.completion_tokens == 6 * 8
    streamed = [""] * 6
    for chunk in client.completions.create(**body, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == wanted
    texts = client.completions.create(**(body | {"prompt": ["a", "b"], "n": 1}))
    assert len(texts.choices) == 2


def test_stop_strings_end_the_text_and_the_engine_request(server, client, codec):
    request = make_request("a", 9, 9, max_tokens=1000)
    text = codec.decode(fake_output(request))
    stop = text[20:23]
    cut = text.index(stop)
    for stream in (False, True):
        body = ask(request) | {"stop": ["no such text", stop], "stream": stream}
        answer = client.completions.create(**body)
        chunks = list(answer) if stream else [answer]
        assert "".join(c.choices[0].text for c in chunks) == text[:cut]
        assert chunks[-1].choices[0].finish_reason == "stop"
    eventually(lambda: server.running() == 0)


def test_a_choice_that_met_a_stop_string_runs_no_further(start_server, tokenizer_folder, codec):
    server = start_server("--tokenizer-folder", str(tokenizer_folder), step_s=0.05).ready()
    request = make_request("a", 8, 9, n=2, max_tokens=2000, temperature=1.0, seed=6)
    texts = [codec.decode(fake_output(request, index)) for index in range(2)]
    stop = next(s for i in range(5, 900) if (s := texts[1][i : i + 3]) not in texts[0])
    said = ["", ""]
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        chunks = client.completions.create(**ask(request), n=2, seed=6, stop=stop, stream=True)
        for chunk in chunks:
            [choice] = chunk.choices
            said[choice.index] += choice.text
            if choice.finish_reason is not None:
                break
        assert (choice.index, choice.finish_reason) == (1, "stop")
        assert said[1] == texts[1][: texts[1].index(stop)]
        eventually(lambda: server.running() == 1)
        chunks.close()
    assert texts[0].startswith(said[0])
    eventually(lambda: server.running() == 0)


def test_stop_tokens_and_ids(server):
    request = make_request("a", 3, 4, max_tokens=50)
    ids = fake_output(request)
    at = next(i for i in range(5, 50) if ids[i] not in ids[:i])
    body = ask(request) | {"stop_token_ids": [ids[at]], "return_token_ids": True}
    [choice] = server.post(**body).json()["choices"]
    assert choice["token_ids"] == ids[: at + 1]
    assert choice["prompt_token_ids"] == [3, 4]
    assert (choice["finish_reason"], len(choice["text"])) == ("stop", at)
    chunks = [e["choices"][0] for e in events(server.post(**body, stream=True))]
    assert [i for c in chunks for i in c["token_ids"]] == ids[: at + 1]
    assert chunks[0]["prompt_token_ids"] == [3, 4]
    assert all("prompt_token_ids" not in c for c in chunks[1:])
    ids = fake_output(make_request("b", 3, 4, max_tokens=50, logit_bias={1: 1.0}))
    body |= {"min_tokens": at + 2, "ignore_eos": True, "logit_bias": {"1": 1.0}, "top_k": 5}
    [choice] = server.post(**body).json()["choices"]
    assert len(choice["token_ids"]) >= at + 2


def test_logprobs_with_an_echoed_prompt(server, client, codec):
    request = make_request("a", 1, 2, 3, 257, max_tokens=4, logprobs=2, prompt_logprobs=2)
    prompt, ids = request.prompt_token_ids, fake_output(request)
    body = ask(request) | {"logprobs": 2, "echo": True}
    [choice] = client.completions.create(**body).choices
    names = [codec.token_name(i) for i in [*prompt, *ids]]
    assert choice.text == codec.decode([*prompt, *ids], skip_special_tokens=False)
    logprobs = choice.logprobs
    assert logprobs.tokens == names
    assert logprobs.text_offset == [len("".join(names[:i])) for i in range(len(names))]
    wanted = [None, *(e.logprob for e in expected_prompt_logprobs(request))]
    for position, token in enumerate(ids):
        digest = digest_of([*prompt, *ids[:position]])
        wanted.append(token_logprobs(digest, token, 2).logprob)
    assert logprobs.token_logprobs == wanted
    assert logprobs.top_logprobs[0] is None
    assert logprobs.top_logprobs[1] == {names[1]: wanted[1]}

    parts = [c.choices[0] for c in client.completions.create(**body, stream=True)]
    assert "".join(p.text for p in parts) == choice.text
    assert [v for p in parts for v in p.logprobs.token_logprobs] == wanted

    [scored] = client.completions.create(**(body | {"max_tokens": 0})).choices
    assert scored.text == codec.decode(prompt, skip_special_tokens=False)
    assert scored.logprobs.token_logprobs == wanted[:4]
    assert scored.finish_reason == "length"


def test_echo_of_text_is_that_text(client):
    text = "<|start|>né"
    for stream in (False, True):
        answer = client.completions.create(
            model="fake", prompt=text, echo=True, max_tokens=3, stream=stream
        )
        chunks = list(answer) if stream else [answer]
        assert "".join(c.choices[0].text for c in chunks).startswith(text)


def test_fields_of_no_effect_are_taken(server):
    assert server.post(user="someone", best_of=1, suffix=None, n=None).status_code == 200


REFUSED = [
    ({"prompt": None}, "prompt", "prompt must be a string"),
    ({"prompt": []}, "prompt", "got []"),
    ({"prompt": [[]]}, "prompt", "the prompt is empty"),
    ({"prompt": ""}, "prompt", "the prompt is empty"),
    ({"prompt": [1, "a"]}, "prompt", "got [1, 'a']"),
    ({"prompt": [True]}, "prompt", "got [True]"),
    ({"prompt": [1.5]}, "prompt", "got [1.5]"),
    ({"prompt": [[1], "a"]}, "prompt", "prompt must be"),
    ({"prompt": [265]}, "prompt", "265"),
    ({"prompt": [-1]}, "prompt", "-1"),
    ({"prompt": [1] * 3000}, "prompt", "3000 tokens"),
    ({"max_tokens": 4000}, "max_tokens", "4000"),
    ({"max_tokens": 0}, "max_tokens", "at least 1"),
    ({"max_tokens": -1}, "max_tokens", "at least 1"),
    ({"max_tokens": "5"}, "max_tokens", "got '5'"),
    ({"max_tokens": 1.5}, "max_tokens", "1.5"),
    ({"temperature": -1}, "temperature", "at least 0"),
    ({"temperature": True}, "temperature", "got True"),
    ({"top_p": 0}, "top_p", "(0, 1]"),
    ({"top_k": -2}, "top_k", "at least 0"),
    ({"min_p": 2}, "min_p", "[0, 1]"),
    ({"n": 0}, "n", "at least 1"),
    ({"n": 1000}, "n", "at most 128"),
    ({"seed": -1}, "seed", "[0, 2**63)"),
    ({"seed": 2**64}, "seed", ""),
    ({"logprobs": 21}, "logprobs", "at most 20"),
    ({"logprobs": -1}, "logprobs", "at least 0"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "'x'"),
    ({"logit_bias": {"9999": 1}}, "logit_bias", "9999"),
    ({"logit_bias": {"1" * 5000: 1}}, "logit_bias", "keyed by token ids"),
    ({"priority": 10**6}, "priority", "from -1000 to 1000; got 1000000"),
    ({"prompt": [[1]] * 100, "n": 50}, "prompt", "post them in several calls"),
    ({"temperature": 10**400}, "temperature", "a finite number"),
    ({"stop": [""]}, "stop", "1 to 1024 characters"),
    ({"stop": ["a"] * 17}, "stop", "at most 16"),
    ({"stop": 5}, "stop", "got 5"),
    ({"stop_token_ids": [-1]}, "stop_token_ids", "at least 0"),
    ({"min_tokens": 17}, "min_tokens", "must not exceed"),
    ({"suffix": "x"}, "suffix", "not supported"),
    ({"best_of": 3}, "best_of", "not supported"),
    ({"echo": True, "logprobs": 1, "n": 2}, "n", "needs n: 1"),
    ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "unknown field"),
    ({"temprature": 1}, "temprature", "unknown field 'temprature'"),
    ({"messages": []}, "messages", "unknown field"),
    ({"model": None}, "model", "model"),
]


@pytest.mark.parametrize(("fields", "param", "says"), REFUSED, ids=lambda v: str(v)[:40])
def test_bad_values_are_refused_by_name(server, fields, param, says):
    for stream in (False, True):
        response = server.post(**({"stream": stream} | fields))
        error = response.json()["error"]
        assert response.status_code == 400, error
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["param"].split(".")[0] == param.split(".")[0], error
        assert says in error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b'{"model": "\xff"}', b"null"])
def test_bodies_that_are_no_request(server, body):
    response = patient_http.post(server.url + "/v1/completions", content=body)
    assert response.status_code == 400
    assert "JSON" in response.json()["error"]["message"] or "body" in response.text


def test_one_bad_prompt_among_several_fails_them_all(server):
    body = {"prompt": [[1], [999]], "max_tokens": 1500}
    assert server.post(**body).json()["error"]["param"] == "prompt"
    # The good one may have begun to stream before the bad one is refused.
    streamed = server.post(**body, stream=True).text
    error = streamed.rstrip().rsplit("data: ", 1)[-1]
    assert json.loads(error)["error"]["param"] == "prompt"
    eventually(lambda: server.running() == 0)


def test_usage_in_a_stream_needs_a_stream(server):
    response = server.post(stream_options={"include_usage": True})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "stream_options"


@pytest.mark.parametrize("field", ["prompt", "top_k", "priority", "stop_token_ids"])
def test_numbers_too_large_for_the_wire(server, field):
    value = [2**70] if field in ("prompt", "stop_token_ids") else 2**70
    response = server.post(**{field: value})
    assert response.status_code == 400
    assert "64 bits" in response.json()["error"]["message"]


def test_a_body_too_large_is_refused_unread(server):
    content = b'{"model": "' + b"x" * MAX_BODY_BYTES + b'"}'
    response = patient_http.post(server.url + "/v1/completions", content=content)
    assert response.status_code == 413
    assert f"at most {MAX_BODY_BYTES} bytes" in response.json()["error"]["message"]


def test_errors_quote_only_so_much(server):
    error = server.post(model="x" * 10_000).json()["error"]
    assert len(error["message"]) < 1100


def test_clients_that_leave_at_any_stage_leave_no_trace(server):
    address = (server.url.split("//")[1].split(":")[0], int(server.url.rsplit(":", 1)[1]))
    body = json.dumps({"model": "fake", "prompt": [1] * 100, "max_tokens": 1500}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    whole = head + body
    lines = len(server.lines)
    for end in (0, 20, len(head), len(head) + 50, len(whole)):
        with socket.create_connection(address) as connection:
            connection.sendall(whole[:end])
            time.sleep(0.05)
    eventually(lambda: server.running() == 0)
    assert server.post().status_code == 200
    assert server.lines[lines:] == []


def test_nan_is_refused(server):
    content = b'{"model": "fake", "prompt": [1], "temperature": NaN}'
    response = patient_http.post(server.url + "/v1/completions", content=content)
    assert response.status_code == 400
    assert "temperature" in response.json()["error"]["message"]


def test_errors_of_other_kinds(server, client):
    with pytest.raises(openai.NotFoundError, match="'gpt-9' does not exist"):
        client.completions.create(model="gpt-9", prompt="x")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="fake", prompt="x", temperature=-1, stream=True)
    assert server.get("/v1/nothing").json()["error"]["message"] == "Not Found"
    assert server.get("/v1/models/").status_code == 404
    assert server.get("/v1/completions").status_code == 405
    assert server.get("/v1/completions").headers["allow"] == "POST"
    assert patient_http.head(server.url + "/health").status_code == 200
    assert "error" in server.get("/v1/completions").json()


def test_models(server, client):
    assert [m.id for m in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").owned_by == "rose"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_health_and_metrics(server):
    before = server.get("/health").json()
    assert before["status"] == "ready"
    eventually(lambda: server.get("/health").json()["heartbeat_age_s"] < 2)
    assert server.post(max_tokens=5).status_code == 200
    assert server.post(prompt=[999]).status_code == 400
    eventually(lambda: 'rose_engine_steps_total{engine="0"} 0.0' not in server.get("/metrics").text)
    lines = server.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    numbers = {name: float(value) for name, value in values.items()}
    assert numbers['rose_engine_up{engine="0"}'] == 1
    assert numbers['rose_requests_total{outcome="completed"}'] >= 1
    assert numbers['rose_requests_total{outcome="refused"}'] >= 1
    assert numbers["rose_generation_tokens_total"] >= 5
    assert numbers["rose_prompt_tokens_total"] >= 3
    assert numbers["rose_time_to_first_token_seconds_count"] >= 1
    assert numbers["rose_inter_token_seconds_count"] >= 4
    assert numbers["rose_request_seconds_count"] >= 2
    assert numbers['rose_engine_kv_blocks_total{engine="0",group="full"}'] == 512
    assert 'rose_engine_running{engine="0"}' in numbers
    assert 'rose_engine_waiting{engine="0"}' in numbers
    assert 'rose_engine_prefix_hit_tokens_total{engine="0"}' in numbers


def test_types_default_to_the_engines_parameters():
    body = CompletionRequest(model="m", prompt="x")
    sampling = body.sampling()
    assert (sampling.max_tokens, sampling.temperature, sampling.n) == (16, 1.0, 1)
    body = CompletionRequest(model="m", prompt="x", temperature=None, best_of=1)
    body.check()
    with pytest.raises(InvalidRequestError, match="presence_penalty"):
        CompletionRequest(model="m", prompt="x", presence_penalty=float("inf")).sampling()


def test_the_api_describes_itself(server):
    schema = server.get("/openapi.json").json()
    post = schema["paths"]["/v1/completions"]["post"]
    fields = post["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"prompt", "stop", "min_p"} <= set(fields)

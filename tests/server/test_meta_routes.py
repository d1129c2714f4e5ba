"""Routes about the server itself, tokens and text, and pages of other origins; over HTTP."""

import pytest

import rose.server.meta_routes
from rose.server.policy import Policy
from rose.version import __version__
from tests import patient_http
from tests.playback_engine import MODEL, NANO, playing

ORIGIN = "https://app.example"


@pytest.fixture(scope="module")
def played():
    with playing(NANO, policy=Policy(cors_origins=(ORIGIN,))) as served:
        yield served


@pytest.fixture(scope="module")
def textless(tmp_path_factory):
    """A model without a tokenizer."""
    with playing(tmp_path_factory.mktemp("textless")) as served:
        yield served


def post(played, path, **body):
    return patient_http.post(played.url + path, json=body)


def test_ready_and_version(played):
    assert patient_http.get(played.url + "/ready").json() == {"ready": True}
    assert patient_http.head(played.url + "/ready").status_code == 200
    assert patient_http.get(played.url + "/version").json() == {"version": __version__}


def test_not_ready_before_there_is_an_engine(start_server):
    server = start_server(load_s=30)
    answer = server.get("/ready")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json()["error"]["code"] == "engine_starting"
    assert patient_http.post(server.url + "/tokenize", json={"prompt": "a"}).status_code == 503


@pytest.mark.parametrize("text", ["", "Hello, world.", "<|start|>user<|message|>é 👋"])
def test_tokens_of_a_text_and_back(played, text):
    answer = post(played, "/tokenize", prompt=text, model=MODEL).json()
    assert answer["tokens"] == played.engine.codec.encode(text)
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 4096
    assert post(played, "/detokenize", tokens=answer["tokens"]).json() == {"prompt": text}


def test_special_tokens_can_be_left_out(played):
    tokens = played.engine.codec.encode("<|start|>user")
    answer = post(played, "/detokenize", tokens=tokens, skip_special_tokens=True)
    assert answer.json() == {"prompt": "user"}


def test_tokens_of_a_chat_are_those_that_the_model_reads(played):
    tools = [{"type": "function", "function": {"name": "look"}}]
    messages = [{"role": "user", "content": "Hi <|end|>"}]
    played.chat("Hi.", messages=messages, tools=tools, reasoning_effort="high")
    answer = post(played, "/tokenize", messages=messages, tools=tools, reasoning_effort="high")
    assert answer.json()["tokens"] == played.engine.requests[-1].prompt_token_ids


def test_a_long_text_is_tokenised_too(played):
    assert post(played, "/tokenize", prompt="a" * 200_000).json()["count"] > 1000


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "tools": []}, 400, "tools"),
        ("/tokenize", {"prompt": "a", "reasoning_effort": "low"}, 400, "reasoning_effort"),
        ("/tokenize", {"prompt": [1]}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "add_bos": True}, 400, "add_bos"),
        ("/tokenize", {"messages": [{"role": "king"}]}, 400, "messages[0].role"),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404, "model"),
        ("/detokenize", {}, 400, "tokens"),
        ("/detokenize", {"tokens": [1, -1]}, 400, "tokens[1]"),
        ("/detokenize", {"tokens": [2**40]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [1], "model": "other"}, 404, "model"),
    ],
)
def test_what_cannot_be_is_refused_by_name(played, path, body, status, param):
    answer = post(played, path, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_a_model_without_a_tokenizer_has_no_text(textless):
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        answer = post(textless, path, **body)
        assert answer.status_code == 400
        assert "no tokenizer.json" in answer.json()["error"]["message"]


def test_a_page_of_an_allowed_origin_may_call(played):
    asked = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    preflight = patient_http.options(played.url + "/v1/chat/completions", headers=asked)
    assert preflight.status_code == 200
    assert preflight.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "authorization" in preflight.headers["Access-Control-Allow-Headers"]
    answer = patient_http.get(played.url + "/v1/models", headers={"Origin": ORIGIN})
    assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "X-Request-ID" in answer.headers["Access-Control-Expose-Headers"]


def test_a_page_of_another_origin_may_not(played):
    answer = patient_http.get(played.url + "/v1/models", headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_by_default_no_page_may(textless):
    answer = patient_http.get(textless.url + "/v1/models", headers={"Origin": ORIGIN})
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_bug_has_its_id_and_origin_too(played, monkeypatch):
    def broken(front_end):
        raise RuntimeError("secret")

    monkeypatch.setattr(rose.server.meta_routes, "_model", broken)
    answer = patient_http.get(
        played.url + "/v1/models", headers={"Origin": ORIGIN, "X-Request-ID": "b"}
    )
    assert answer.status_code == 500
    assert answer.headers["X-Request-ID"] == "b"
    assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "secret" not in answer.text

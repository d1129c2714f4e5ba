"""Limits of one server, over HTTP: what is too much is refused by name, and at once."""

import openai
import pytest

from rose.server.limits import Limits
from rose.server.policy import Policy
from rose.server.responses.store import StoreLimits
from tests import patient_http
from tests.engine_processes import eventually
from tests.playback_engine import MODEL, NANO, playing

LIMITS = Limits(
    max_queue=2,
    max_body_bytes=4000,
    max_prompt_tokens=200,
    max_n=3,
    max_output_tokens=50,
)


@pytest.fixture(scope="module")
def played():
    policy = Policy(limits=LIMITS, stored=StoreLimits(max_responses=1))
    with playing(NANO, policy=policy) as served:
        yield served


@pytest.fixture(scope="module")
def hasty():
    """One that ends every call after half a second."""
    with playing(NANO, policy=Policy(limits=Limits(request_timeout_s=0.5))) as served:
        yield served


def refusal(call):
    with pytest.raises(openai.APIStatusError) as error:
        call()
    return error.value


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_too_many_tokens_of_a_chat_are_named_as_the_client_did(played, field):
    error = refusal(lambda: played.chat("Hi.", **{field: 51}))
    assert (error.status_code, error.param) == (400, field)
    assert f"{field} must be at most 50 on this server; got 51" in error.message


def test_too_many_tokens_of_other_endpoints(played):
    error = refusal(
        lambda: played.client.responses.create(model=MODEL, input="Hi", max_output_tokens=51)
    )
    assert (error.status_code, error.param) == (400, "max_output_tokens")
    error = refusal(
        lambda: played.client.completions.create(model=MODEL, prompt="Hi", max_tokens=51)
    )
    assert (error.status_code, error.param) == (400, "max_tokens")


def test_the_engines_own_refusal_has_the_clients_name_too(played):
    played.engine.refuse("ask for max_tokens of at most 7", "max_tokens")
    error = refusal(lambda: played.chat(max_completion_tokens=9))
    assert error.param == "max_completion_tokens"
    assert "ask for max_completion_tokens of at most 7" in error.message


def test_a_call_that_names_no_length_gets_the_most(played):
    played.chat("Hi.")
    assert played.engine.requests[-1].sampling.max_tokens == 50
    played.chat("Hi.", max_tokens=20)
    assert played.engine.requests[-1].sampling.max_tokens == 20


def test_too_many_choices(played):
    error = refusal(lambda: played.chat("Hi.", n=4))
    assert (error.status_code, error.param) == (400, "n")
    assert len(played.chat("Hi.", n=3).choices) == 3


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("completions", {"prompt": [1] * 201}, "prompt"),
        ("chat/completions", {"messages": [{"role": "user", "content": "a b " * 300}]}, "messages"),
        ("responses", {"input": "a b " * 300}, "input"),
        ("responses", {"input": "a b " * 300, "background": True}, "input"),
    ],
)
def test_a_prompt_too_long(played, path, fields, param):
    answer = patient_http.post(f"{played.url}/v1/{path}", json={"model": MODEL} | fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert "at most 200 on this server; got " in answer.json()["error"]["message"]


def test_a_body_too_large(played):
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize"):
        answer = patient_http.post(played.url + path, content=b" " * 4001)
        assert answer.status_code == 413
        assert "at most 4000 bytes" in answer.json()["error"]["message"]


def test_a_full_queue_refuses_and_takes_again_when_one_ends(played):
    played.engine.play("So", finish=None)
    hold = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
    with (
        played.client.chat.completions.create(**hold, stream=True),
        played.client.chat.completions.create(**hold, stream=True),
    ):
        for background in (False, True):
            error = refusal(
                lambda: played.client.responses.create(
                    model=MODEL,
                    input="Hi",
                    background=background,  # noqa: B023
                )
            )
            assert (error.status_code, error.code) == (429, "rate_limit_exceeded")
        error = refusal(lambda: played.chat())
        assert error.type == "rate_limit_error"
        assert error.response.headers["Retry-After"] == "1"
        answer = patient_http.get(played.url + "/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        assert patient_http.get(played.url + "/health").status_code == 200
    eventually(lambda: patient_http.get(played.url + "/ready").status_code == 200)
    assert played.chat("Hi.").choices[0].message.content == "Hi."


def test_refused_calls_leave_no_place_taken(played):
    for _ in range(5):
        refusal(lambda: played.chat("Hi.", n=4))
    played.engine.refuse("no", "prompt_token_ids")
    for _ in range(5):
        refusal(lambda: played.chat())
    assert patient_http.get(played.url + "/ready").status_code == 200


def test_a_call_that_takes_too_long_ends_with_an_error(hasty):
    error = refusal(lambda: hasty.chat("So far", finish=None))
    assert (error.status_code, error.code) == (504, "request_timeout")
    request_id = hasty.engine.requests[-1].request_id
    eventually(lambda: request_id in [abort.request_id for abort in hasty.engine.aborts])
    hasty.engine.play("So far", finish=None)
    with pytest.raises(openai.APIError, match=r"longer than the 0\.5 s"):
        list(hasty.chat(stream=True))


def test_one_in_the_background_too(hasty):
    hasty.engine.play("So far", finish=None)
    response = hasty.client.responses.create(model=MODEL, input="Hi", background=True)
    eventually(lambda: hasty.client.responses.retrieve(response.id).status == "failed")
    failed = hasty.client.responses.retrieve(response.id)
    assert "longer than the 0.5 s" in failed.error.message
    assert patient_http.get(hasty.url + "/ready").status_code == 200


def test_few_responses_are_kept(played):
    played.engine.play("Hi.")
    first = played.client.responses.create(model=MODEL, input="Hi")
    second = played.client.responses.create(model=MODEL, input="Hi")
    assert refusal(lambda: played.client.responses.retrieve(first.id)).status_code == 404
    assert played.client.responses.retrieve(second.id).output_text == "Hi."

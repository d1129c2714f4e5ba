"""Request ids and the access log, over HTTP."""

import json
import re

import httpx
import pytest

from rose.server.policy import Policy
from tests.engine_processes import eventually
from tests.playback_engine import MODEL, NANO, playing

SECRET = "marmalade"


@pytest.fixture(scope="module")
def played():
    with playing(NANO, policy=Policy(access_log=True)) as served:
        yield served


def lines(capsys, count=1):
    """The next lines of the log."""
    text = ""

    def arrived():
        nonlocal text
        text += capsys.readouterr().err
        return text.count("\n") >= count

    eventually(arrived)
    return [json.loads(line) for line in text.splitlines()], text


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nowhere", "/v1/responses/none"])
def test_every_answer_has_the_clients_id(played, path):
    answer = httpx.get(played.url + path, headers={"X-Request-ID": "trace-1/a:b"})
    assert answer.headers["X-Request-ID"] == "trace-1/a:b"


@pytest.mark.parametrize("bad", ["", "a b", 'a"b', "a" * 129, "{}", b"\xff"])
def test_an_id_unfit_for_logs_is_replaced(played, bad):
    answer = httpx.get(played.url + "/health", headers={"X-Request-ID": bad})
    assert re.fullmatch("req_[0-9a-f]{32}", answer.headers["X-Request-ID"])


def test_openais_client_finds_the_id(played):
    assert played.chat("Hi.")._request_id.startswith("req_")


@pytest.mark.parametrize("stream", [False, True])
def test_a_line_tells_all_but_the_text(played, capsys, stream):
    capsys.readouterr()
    messages = [{"role": "user", "content": SECRET}]
    answer = played.chat(f"I like {SECRET}.", messages=messages, stream=stream)
    if stream:
        assert list(answer)
    [line], text = lines(capsys)
    assert SECRET not in text
    assert line["method"] == "POST"
    assert line["path"] == "/v1/chat/completions"
    assert (line["status"], line["outcome"], line["client_gone"]) == (200, "completed", False)
    assert line["prompt_tokens"] == len(played.engine.requests[-1].prompt_token_ids)
    assert line["completion_tokens"] == sum(map(len, played.engine.scripts[0].steps))
    assert 0 < line["ttft_ms"] <= line["duration_ms"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])


def test_refusals_and_queries(played, capsys):
    capsys.readouterr()
    httpx.get(played.url + f"/nowhere?q={SECRET}", headers={"X-Request-ID": "x"})
    httpx.post(played.url + "/v1/completions", json={"model": MODEL, "prompt": SECRET, "n": -1})
    found, text = lines(capsys, 2)
    assert [line["status"] for line in found] == [404, 400]
    assert found[0]["id"] == "x"
    assert SECRET not in text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves(played, capsys, stream):
    capsys.readouterr()
    played.engine.play("So far", finish=None)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    url = played.url + "/v1/chat/completions"
    if stream:
        with httpx.stream("POST", url, json=body) as answer:
            next(answer.iter_raw())
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=body, timeout=0.3)
    [line], _ = lines(capsys)
    assert line["client_gone"]
    assert line["outcome"] == "aborted"


def test_without_the_flag_nothing_is_written(capsys):
    with playing(NANO) as quiet:
        assert "X-Request-ID" in httpx.get(quiet.url + "/health").headers
    assert capsys.readouterr().err == ""

"""Request ids and the access log, over HTTP."""

import json
import re
from types import SimpleNamespace

import pytest

from rose.server import request_log
from rose.server.policy import Policy
from tests import patient_http
from tests.engine_processes import eventually
from tests.patient_http import posted
from tests.playback_engine import MODEL, NANO, playing

SECRET = "marmalade"


@pytest.fixture(scope="module")
def played():
    with playing(NANO, policy=Policy(access_log=True)) as served:
        yield served


class Log:
    """A standard error to which the server's thread writes while a test reads it."""

    def __init__(self):
        self.texts = []

    def write(self, text):
        self.texts.append(text)

    def flush(self):
        pass

    def about(self, request_id):
        """The lines about one request: others may come late from the test before."""
        return [text for text in list(self.texts) if f'"id":"{request_id}"' in text]

    def lines(self, *ids):
        """A line about each of these requests, once it is there, and all of them as one text."""
        eventually(lambda: all(self.about(each) for each in ids))
        own = [line for each in ids for line in self.about(each)]
        assert len(own) == len(ids)
        return [json.loads(line) for line in own], "".join(own)


@pytest.fixture
def log(monkeypatch):
    found = Log()
    monkeypatch.setattr(request_log, "sys", SimpleNamespace(stderr=found))
    return found


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nowhere", "/v1/responses/none"])
def test_every_answer_has_the_clients_id(played, path):
    answer = patient_http.get(played.url + path, headers={"X-Request-ID": "trace-1/a:b"})
    assert answer.headers["X-Request-ID"] == "trace-1/a:b"


@pytest.mark.parametrize("bad", ["", "a b", 'a"b', "a" * 129, "{}", b"\xff"])
def test_an_id_unfit_for_logs_is_replaced(played, bad):
    answer = patient_http.get(played.url + "/health", headers={"X-Request-ID": bad})
    assert re.fullmatch("req_[0-9a-f]{32}", answer.headers["X-Request-ID"])


def test_openais_client_finds_the_id(played):
    assert played.chat("Hi.")._request_id.startswith("req_")


@pytest.mark.parametrize("stream", [False, True])
def test_a_line_tells_all_but_the_text(played, log, stream):
    messages = [{"role": "user", "content": SECRET}]
    headers = {"X-Request-ID": f"told-{stream}"}
    answer = played.chat(
        f"I like {SECRET}.", messages=messages, stream=stream, extra_headers=headers
    )
    if stream:
        assert list(answer)
    [line], text = log.lines(f"told-{stream}")
    assert SECRET not in text
    assert line["method"] == "POST"
    assert line["path"] == "/v1/chat/completions"
    assert (line["status"], line["outcome"], line["client_gone"]) == (200, "completed", False)
    assert line["prompt_tokens"] == len(played.engine.requests[-1].prompt_token_ids)
    assert line["completion_tokens"] == sum(map(len, played.engine.scripts[0].steps))
    assert 0 < line["ttft_ms"] <= line["duration_ms"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])


def test_refusals_and_queries(played, log):
    url = played.url
    body = {"model": MODEL, "prompt": SECRET, "n": -1}
    patient_http.get(url + f"/nowhere?q={SECRET}", headers={"X-Request-ID": "nowhere"})
    patient_http.post(url + "/v1/completions", json=body, headers={"X-Request-ID": "refused"})
    found, text = log.lines("nowhere", "refused")
    assert [line["status"] for line in found] == [404, 400]
    assert SECRET not in text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves(played, log, stream):
    played.engine.play("So far", finish=None)
    headers = {"X-Request-ID": f"left-{stream}"}
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    url = played.url + "/v1/chat/completions"
    if stream:
        with patient_http.stream("POST", url, json=body, headers=headers) as answer:
            next(answer.iter_raw())
    else:
        before = len(played.engine.requests)
        with posted(url, body, headers):
            eventually(lambda: len(played.engine.requests) > before)
    [line], _ = log.lines(f"left-{stream}")
    assert line["client_gone"]
    assert line["outcome"] == "aborted"


def test_without_the_flag_nothing_is_written(log):
    headers = {"X-Request-ID": "quiet"}
    with playing(NANO) as quiet:
        answer = patient_http.get(quiet.url + "/health", headers=headers)
    assert answer.headers["X-Request-ID"] == "quiet"
    assert log.about("quiet") == []

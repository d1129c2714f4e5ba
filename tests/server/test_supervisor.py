"""An engine that dies is started again, and requests work again."""

import json
import os
import signal
import threading

import httpx
import pytest

from rose.server.supervisor import RestartPolicy, gpu_environment
from tests import patient_http
from tests.engine_processes import PATIENCE_S, eventually, fake_output, make_request


def last_event(server) -> dict:
    body = {"model": "fake", "prompt": [1], "max_tokens": 2000, "stream": True}
    body |= {"return_token_ids": True}
    text = patient_http.post(server.url + "/v1/completions", json=body).text
    return json.loads(text.rstrip().rsplit("data: ", 1)[-1])


def test_a_killed_engine_ends_streams(start_server):
    server = start_server("--restart-delay-s", "600", step_s=0.05).ready()
    events: list[dict] = []
    thread = threading.Thread(target=lambda: events.append(last_event(server)))
    thread.start()
    eventually(lambda: server.running() == 1)
    server.kill_engine()
    thread.join(PATIENCE_S)
    assert events[0]["error"]["code"] == "engine_unavailable"
    reason = "the engine process was killed by SIGKILL; it is started again in 600 s"
    eventually(lambda: server.get("/health").json() == {"status": "dead", "reason": reason})
    assert server.get("/health").status_code == 503


def test_a_killed_engine_comes_back(start_server, hurry):
    hurry.touch()
    server = start_server(load_s=600, hurry=hurry).ready()
    first = server.engine_pid()
    hurry.unlink()
    server.kill_engine()
    eventually(lambda: server.get("/health").json()["status"] == "starting")
    reason = "the engine is loading again: the engine process was killed by SIGKILL"
    assert server.get("/health").json()["reason"] == reason
    hurry.touch()
    eventually(lambda: server.get("/health").status_code == 200)
    assert server.answer(5, 6) == fake_output(make_request("a", 5, 6))
    assert server.engine_pid() != first
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 0


def test_an_engine_that_keeps_failing_is_given_up_with_one_line(start_server):
    server = start_server("--restart-delay-s", "0.05", fail_at_step=3).ready()
    for _ in range(3):
        eventually(lambda: server.get("/health").status_code == 200)
        assert server.post(max_tokens=20).status_code == 503
    assert server.process.wait(PATIENCE_S) == 1
    line = server.line("error:")
    assert line.startswith("error: the engine died 3 times in a row; the engine failed: ")
    assert "step 3 was told to fail" in line


def test_interrupted_between_two_engines(start_server):
    server = start_server("--restart-delay-s", "600").ready()
    server.kill_engine()
    eventually(lambda: server.get("/health").status_code == 503)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 0


def test_delays_double_to_a_limit_and_start_over_after_a_long_life():
    policy = RestartPolicy()
    delays = [policy.delay_s(failures) for failures in (1, 2, 3, 4, 5, 6, 7, 1000)]
    assert delays == [1, 2, 4, 8, 16, 30, 30, 30]
    assert policy.delay_s(0) == 1


def test_a_hung_engine_is_killed_and_replaced(start_server):
    server = start_server("--dead-after-s", "3", "--hung-s", "0.5").ready()
    first = server.engine_pid()
    os.kill(first, signal.SIGSTOP)
    eventually(lambda: server.get("/health").status_code == 503)
    responses: list[httpx.Response] = []

    def answers() -> bool:  # not at the first try, if the new engine pauses for so long, too
        responses.append(server.post(prompt=[7], max_tokens=8, return_token_ids=True))
        return responses[-1].status_code == 200

    eventually(answers)
    [choice] = responses[-1].json()["choices"]
    assert choice["token_ids"] == fake_output(make_request("a", 7))
    assert server.engine_pid() != first


@pytest.mark.parametrize(
    ("visible", "count", "found"),
    [
        (None, 1, {}),
        (None, 2, {"CUDA_VISIBLE_DEVICES": "1"}),
        ("4,6", 2, {"CUDA_VISIBLE_DEVICES": "6"}),
        ("4,6", 1, {}),
        ("", 2, {}),
    ],
)
def test_each_of_several_engines_gets_a_gpu(monkeypatch, visible, count, found):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_environment(count - 1, count) == found


def test_more_engines_than_gpus_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(OSError, match="2 engines need as many GPUs"):
        gpu_environment(0, 2)

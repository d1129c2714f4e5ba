"""Front end and engine process together: start, death, hang-ups and the end."""

import json
import signal
import socket
import subprocess
import sys
import threading

import httpx
import openai
import pytest

from rose.server.listening import bind
from tests import patient_http
from tests.engine_processes import PATIENCE_S, environment, eventually
from tests.patient_http import posted


def stream(server, **body) -> tuple[int, str]:
    """Status and text of a streamed completion, to its end."""
    response = server.post(stream=True, **body)
    return response.status_code, response.text


def in_background(work) -> tuple[threading.Thread, list]:
    results: list = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


def test_while_the_engine_loads(start_server, hurry):
    server = start_server(load_s=600, hurry=hurry)
    health = server.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "starting")
    error = server.post().json()["error"]
    assert error["code"] == "engine_starting"
    assert server.get("/v1/models").status_code == 503
    assert 'rose_engine_up{engine="0"} 0.0' in server.get("/metrics").text
    hurry.touch()
    server.ready()
    assert server.get("/health").status_code == 200


def test_interrupted_while_the_engine_loads(start_server):
    server = start_server(load_s=600)
    assert server.url
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 0


def test_an_engine_that_cannot_start_ends_the_server_with_one_line(start_server):
    server = start_server(fail_load="no such checkpoint")
    assert server.process.wait(PATIENCE_S) == 1
    assert server.line("error:") == "error: the engine failed to start: no such checkpoint\n"
    assert len(server.lines) == 2  # it listened before


def test_a_port_in_use_is_told_before_anything_starts(start_server):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start_server("--port", str(port))
        assert server.process.wait(PATIENCE_S) == 1
    server._reader.join(PATIENCE_S)
    assert server.lines == [
        f"error: cannot listen on 127.0.0.1 port {port}: Address already in use\n"
    ]


@pytest.mark.parametrize("host", ["", "a..b", "\u00fc" * 100, "192.0.2.1"])
def test_hosts_that_are_none_of_this_machine(host):
    with pytest.raises(OSError, match=r"host|cannot listen"):
        bind(host, 0)


def test_killing_the_engine_ends_streams_with_an_error(start_server):
    server = start_server("--no-restart", step_s=0.05).ready()
    streaming, streamed = in_background(
        lambda: stream(server, max_tokens=2000, return_token_ids=True)
    )
    waiting, answers = in_background(lambda: server.post(max_tokens=2000))
    eventually(lambda: server.running() == 2)
    server.kill_engine()
    eventually(lambda: server.get("/health").status_code == 503)
    streaming.join(PATIENCE_S)
    waiting.join(PATIENCE_S)
    health = server.get("/health").json()
    assert health == {"status": "dead", "reason": "the engine process was killed by SIGKILL"}
    [(status, text)] = streamed
    assert status == 200
    last = json.loads(text.rstrip().rsplit("data: ", 1)[-1])
    assert last["error"]["code"] == "engine_unavailable"
    assert "[DONE]" not in text
    [answer] = answers
    assert answer.status_code == 503
    assert "SIGKILL" in answer.json()["error"]["message"]
    assert server.post().json()["error"]["code"] == "engine_dead"
    assert 'rose_engine_up{engine="0"} 0.0' in server.get("/metrics").text
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 0


def test_openais_client_sees_the_error_in_the_stream(start_server):
    server = start_server(fail_at_step=20).ready()
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        chunks = client.completions.create(
            model="fake",
            prompt=[1],
            max_tokens=100,
            stream=True,
            extra_body={"return_token_ids": True},
        )
        with pytest.raises(openai.APIError, match="step 20 was told to fail"):
            list(chunks)
    eventually(lambda: server.get("/health").status_code == 503)
    assert "step 20" in server.get("/health").json()["reason"]


@pytest.mark.parametrize("streaming", [True, False])
def test_a_client_that_hangs_up_aborts_its_request(start_server, streaming):
    server = start_server(step_s=0.05).ready()
    body = {"model": "fake", "prompt": [1], "max_tokens": 2000, "stream": streaming}
    # Without a tokenizer nothing is sent before the end: the client gives up.
    with posted(server.url + "/v1/completions", body):
        eventually(lambda: server.running() == 1)
    eventually(lambda: server.running() == 0)
    eventually(lambda: 'outcome="aborted"} 1.0' in server.get("/metrics").text)


def test_without_a_tokenizer_text_prompts_are_refused_and_ids_work(start_server):
    server = start_server().ready()
    refusal = server.post(prompt="hello")
    assert refusal.status_code == 400
    assert "post a list of token ids" in refusal.json()["error"]["message"]
    [choice] = server.post(return_token_ids=True).json()["choices"]
    assert choice["text"] == ""
    assert len(choice["token_ids"]) == 16


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains(start_server, hurry, number):
    server = start_server("--drain-s", "600", step_s=0.05, hurry=hurry).ready()
    engine = server.engine_pid()
    thread, streamed = in_background(lambda: stream(server, max_tokens=1000, return_token_ids=True))
    eventually(lambda: server.running() == 1)
    url = server.url
    server.process.send_signal(number)
    assert server.line("Draining 1 request for at most 600 s; ^C again to quit now")
    hurry.touch()
    thread.join(PATIENCE_S)
    [(_, text)] = streamed
    assert text.endswith("data: [DONE]\n\n")
    assert text.count('"token_ids"') == 1000
    assert server.process.wait(PATIENCE_S) == 0
    with pytest.raises(httpx.ConnectError):
        patient_http.get(url + "/health")
    eventually(lambda: not alive(engine))


def test_draining_ends_in_time(start_server):
    server = start_server("--drain-s", "0.5", step_s=0.05).ready()
    thread, streamed = in_background(lambda: stream(server, max_tokens=2000, return_token_ids=True))
    eventually(lambda: server.running() == 1)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 0
    thread.join(PATIENCE_S)
    [(_, text)] = streamed
    last = json.loads(text.rstrip().rsplit("data: ", 1)[-1])
    assert "the server is shutting down" in last["error"]["message"]


def test_a_second_signal_quits_at_once(start_server, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = start_server("--drain-s", "600", step_s=0.05).ready()
    engine = server.engine_pid()
    [folder] = tmp_path.glob("rose-*")
    thread, results = in_background(lambda: outcome_of(server))
    eventually(lambda: server.running() == 1)
    server.process.send_signal(signal.SIGINT)
    assert server.line("Draining 1 request")  # two signals at once may come as one
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 130
    thread.join(PATIENCE_S)
    assert results == ["cut off"]
    eventually(lambda: not alive(engine))
    assert not folder.exists()


def outcome_of(server) -> str:
    try:
        server.post(max_tokens=2000)
    except httpx.TransportError:
        return "cut off"
    return "answered"


def alive(pid: int) -> bool:
    """Whether the process runs; an orphan that nobody reaps does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_front_end_runs_without_torch():
    program = (
        "import pkgutil, sys, importlib, rose.server\n"
        "for m in pkgutil.walk_packages(rose.server.__path__, 'rose.server.'):\n"
        "    importlib.import_module(m.name)\n"
        "assert 'rose.server.serve' in sys.modules\n"
        "bad = {'torch', 'numpy', 'safetensors', 'triton'} & set(sys.modules)\n"
        "sys.exit(f'imported {bad}' if bad else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

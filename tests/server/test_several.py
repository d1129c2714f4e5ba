"""Several engines behind one port, several front ends on it, and the ends of each of them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests import patient_http
from tests.engine_processes import (
    PATIENCE_S,
    ROOT,
    environment,
    eventually,
    fake_output,
    make_request,
    start_engine,
    stop,
)

NUM_STREAMS = 8  # as many as the scripted engine runs at once


def children(server) -> list[int]:
    pid = server.process.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ended(pid: int) -> bool:
    """Whether the process is gone; an orphan that nobody reaps is."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def num_sockets(pid: int) -> int:
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(entry).startswith("socket:")
        except FileNotFoundError:
            continue
    return count


class Streams:
    """Streamed completions, each over a connection of its own."""

    def __init__(self, url: str, count: int, max_tokens: int) -> None:
        self.last: list[str] = []
        body = {"model": "fake", "stream": True, "return_token_ids": True, "ignore_eos": True}

        def read(number: int) -> None:
            post = body | {"prompt": [number + 1], "max_tokens": max_tokens}
            text = patient_http.post(url + "/v1/completions", json=post).text
            self.last.append(text.rstrip().rsplit("data: ", 1)[-1])

        self.threads = [threading.Thread(target=read, args=(number,)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def ends(self) -> list[str]:
        end = time.monotonic() + PATIENCE_S
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
        assert not any(thread.is_alive() for thread in self.threads), "a stream did not end"
        return self.last


def engine_states(server) -> list[str]:
    return [engine["status"] for engine in server.get("/health").json()["engines"]]


def test_two_engines_share_the_work_and_one_may_die(start_server, hurry):
    words = ["--engines", "2", "--restart-delay-s", "600"]
    server = start_server(*words, step_s=0.05, hurry=hurry).ready()
    eventually(lambda: engine_states(server) == ["ready", "ready"])
    streams = Streams(server.url, 4, max_tokens=1500)
    eventually(lambda: [e["running"] for e in server.get("/health").json()["engines"]] == [2, 2])
    assert server.running() == 4
    server.kill_engine()
    eventually(lambda: engine_states(server) == ["dead", "ready"])
    again = "SIGKILL; it is started again in 600 s"
    eventually(lambda: again in server.get("/health").json()["engines"][0]["reason"])
    assert server.get("/health").status_code == 200
    metrics = server.get("/metrics").text
    assert 'rose_engine_up{engine="0"} 0.0' in metrics
    assert 'rose_engine_up{engine="1"} 1.0' in metrics
    assert server.post(max_tokens=3).status_code == 200
    hurry.touch()
    last = streams.ends()
    assert sum("engine_unavailable" in event for event in last) == 2
    assert last.count("[DONE]") == 2


def test_one_of_two_engines_that_dies_comes_back(start_server):
    server = start_server("--engines", "2").ready()
    eventually(lambda: engine_states(server) == ["ready", "ready"])
    first, second = children(server)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(children(server)) == 2 and first not in children(server))
    eventually(lambda: engine_states(server) == ["ready", "ready"])
    engines = children(server)
    assert second in engines
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 0
    eventually(lambda: all(map(ended, engines)))


def test_one_of_two_engines_that_cannot_start_ends_the_server(start_server):
    server = start_server("--engines", "2", fail_load="no memory left")
    assert server.process.wait(PATIENCE_S) == 1
    assert server.line("error:") == "error: the engine failed to start: no memory left\n"


def test_three_front_ends_share_a_port(start_server, tokenizer_folder, hurry):
    words = ["--front-ends", "3", "--tokenizer-folder", str(tokenizer_folder), "--drain-s", "600"]
    server = start_server(*words, step_s=0.05, hurry=hurry).ready()
    assert server.line("Serving").endswith("; 3 front ends)\n")
    _, *siblings = children(server)
    processes = [server.process.pid, *siblings]
    assert len(processes) == 3
    eventually(lambda: all_listen(server.url, 3))
    before = [num_sockets(pid) for pid in processes]
    port = int(server.url.rsplit(":", 1)[1])
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    eventually(lambda: all(num_sockets(p) > n for p, n in zip(processes, before, strict=True)))
    for connection in connections:
        connection.close()

    streams = Streams(server.url, NUM_STREAMS, max_tokens=1500)
    eventually(lambda: server.running() == NUM_STREAMS)
    server.process.send_signal(signal.SIGINT)
    assert server.line("Draining requests for at most 600 s")
    hurry.touch()
    assert streams.ends() == ["[DONE]"] * NUM_STREAMS
    assert server.process.wait(PATIENCE_S) == 0
    eventually(lambda: all(map(ended, siblings)))


def all_listen(url: str, count: int) -> bool:
    port = f"{int(url.rsplit(':', 1)[1]):04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return len([line for line in lines if re.search(f":{port} \\S+ 0A ", line)]) == count


def test_streams_of_all_front_ends_end_when_the_engine_dies(start_server, hurry):
    hurry.touch()
    server = start_server("--front-ends", "3", load_s=600, step_s=0.05, hurry=hurry).ready()
    eventually(lambda: all_listen(server.url, 3))
    hurry.unlink()
    streams = Streams(server.url, NUM_STREAMS, max_tokens=2000)
    eventually(lambda: server.running() == NUM_STREAMS)
    server.kill_engine()
    last = [json.loads(event)["error"]["message"] for event in streams.ends()]
    assert len([message for message in last if "SIGKILL" in message]) == NUM_STREAMS
    hurry.touch()  # the next engine loads; not before, or a front end might meet it first
    eventually(lambda: all(server.post(max_tokens=3).status_code == 200 for _ in range(10)))


def test_a_front_end_that_dies_is_started_again(start_server):
    server = start_server("--front-ends", "2").ready()
    eventually(lambda: all_listen(server.url, 2))
    engine, sibling = children(server)
    os.kill(sibling, signal.SIGKILL)
    eventually(lambda: ended(sibling))
    assert server.post(max_tokens=3).status_code == 200
    eventually(lambda: len(children(server)) == 2 and sibling not in children(server))
    assert engine in children(server)
    eventually(lambda: all_listen(server.url, 2))
    assert server.line("a front-end process ended (-9); starting it in 0.2 s")


def test_without_the_first_front_end_all_leave(start_server):
    server = start_server("--front-ends", "3", "--drain-s", "1").ready()
    eventually(lambda: all_listen(server.url, 3))
    processes = children(server)
    server.process.kill()
    server.process.wait(PATIENCE_S)
    eventually(lambda: all(map(ended, processes)))


def test_a_second_signal_ends_all_at_once(start_server):
    server = start_server("--front-ends", "2", "--drain-s", "600", step_s=0.05).ready()
    eventually(lambda: all_listen(server.url, 2))
    processes = children(server)
    streams = [socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))]
    server.process.send_signal(signal.SIGINT)
    assert server.line("Draining requests")  # two signals at once may come as one
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) in (0, 130)  # 0: nothing was in flight, so it had ended
    eventually(lambda: all(map(ended, processes)))
    streams[0].close()


def test_a_port_that_others_share_is_refused(start_server):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        server = start_server("--front-ends", "2", "--port", port)
        assert server.process.wait(PATIENCE_S) == 1
    assert "Address already in use" in server.line("error:")


@pytest.fixture
def command(tmp_path):
    """`rose front-end` with two processes before two engines."""
    endpoints = [f"ipc://{tmp_path}/e{number}" for number in range(2)]
    engines = [start_engine(endpoint) for endpoint in endpoints]
    words = ["front-end", *endpoints, "--front-ends", "2", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rose", *words],
        env=environment(),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    for child in (process, *engines):
        stop(child)


def test_the_command_line_takes_several_of_both(command):
    url = re.search(r"http://\S+:\d+", command.stderr.readline())[0]
    serving = next(line for line in command.stderr if line.startswith("Serving fake on "))
    assert serving.endswith("; 2 engines; 2 front ends)\n")
    eventually(lambda: all_listen(url, 2))
    for number in range(6):
        body = {"model": "fake", "prompt": [number], "max_tokens": 8, "temperature": 0}
        body["return_token_ids"] = True
        response = patient_http.post(url + "/v1/completions", json=body).json()
        expected = fake_output(make_request("a", number))
        assert response["choices"][0]["token_ids"] == expected
    command.send_signal(signal.SIGINT)
    assert command.wait(PATIENCE_S) == 0

"""A front end before an engine that others start and stop."""

import contextlib
import signal
import subprocess
import sys
import threading

import httpx
import pytest

from tests.engine_processes import (
    PATIENCE_S,
    ROOT,
    environment,
    eventually,
    fake_output,
    make_request,
)


def cut_off(server):
    with contextlib.suppress(httpx.TransportError):
        server.post(max_tokens=2000)


def test_the_engine_may_come_late_and_outlives_its_front_ends(start, start_server, endpoint):
    first, second = (start_server("--attach", endpoint) for _ in range(2))
    health = first.get("/health").json()
    assert health == {"status": "starting", "reason": f"waiting for the engine at {endpoint}"}
    assert first.line("Listening on").endswith(f"; waiting for the engine at {endpoint}\n")
    engine = start()
    first.ready()
    second.ready()
    assert first.answer(1, 2) == fake_output(make_request("a", 1, 2))
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(PATIENCE_S) == 0
    assert engine.poll() is None
    assert second.answer(3) == fake_output(make_request("a", 3))


def test_an_engine_that_loads_says_so(start, start_server, endpoint):
    start(load_s=600)
    server = start_server("--attach", endpoint)
    eventually(lambda: server.get("/health").json()["reason"] == "the engine is loading")


def test_an_engine_that_is_restarted_serves_again(start, start_server, endpoint):
    engine = start()
    server = start_server("--attach", endpoint, "--dead-after-s", "2").ready()
    engine.kill()
    engine.wait(PATIENCE_S)
    eventually(lambda: server.get("/health").status_code == 503)
    assert server.process.poll() is None
    start()
    # Not at the first try, if the engine pauses for so long that it counts as dead again.
    eventually(lambda: server.post(max_tokens=8).status_code == 200)


def test_a_second_signal_quits_and_leaves_the_engine(start, start_server, endpoint):
    engine = start(step_s=0.05)
    server = start_server("--attach", endpoint, "--drain-s", "600").ready()
    thread = threading.Thread(target=cut_off, args=[server])
    thread.start()
    eventually(lambda: server.running() == 1)
    server.process.send_signal(signal.SIGINT)
    assert server.line("Draining 1 request")  # two signals at once may come as one
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 130
    thread.join(PATIENCE_S)
    assert engine.poll() is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "cannot connect to nowhere: Invalid argument"),
        (["ipc:///tmp/e", "--tokenizer", "rose"], "must be a folder that holds tokenizer.json"),
    ],
)
def test_what_is_no_engine_or_no_tokenizer_is_refused(words, says):
    done = subprocess.run(
        [sys.executable, "-m", "rose", "front-end", *words, "--port", "0"],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr

"""The engine process, driven over its socket: a real engine over the fake executor."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from rose import protocol
from tests.engine_processes import (
    PATIENCE_S,
    RawFrontEnd,
    Start,
    engine_command,
    engines_at,
    environment,
    eventually,
    fake_output,
    make_request,
)


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/e"


@pytest.fixture
def start(endpoint: str) -> Iterator[Start]:
    with engines_at(endpoint) as start:
        yield start


@pytest.fixture
def connect(endpoint: str) -> Iterator[Callable[[], RawFrontEnd]]:
    front_ends = []

    def connect() -> RawFrontEnd:
        front_ends.append(RawFrontEnd(endpoint))
        return front_ends[-1]

    yield connect
    for front_end in front_ends:
        front_end.close()


@pytest.fixture
def hurry(tmp_path: Path) -> Path:
    """The file whose existence ends all slowness of the engine."""
    return tmp_path / "hurry"


def stats(front_end: RawFrontEnd) -> protocol.EngineStats:
    while front_end.socket.poll(0):  # only what comes from now on counts
        front_end.socket.recv_multipart()
    for _ in range(int(PATIENCE_S)):
        front_end.send(protocol.Hello())  # again: an engine that paused may have given this one up
        with contextlib.suppress(TimeoutError):
            return front_end.wait_for(protocol.Heartbeat, 1.0).stats
    raise AssertionError("no heartbeat comes")


def running(front_end: RawFrontEnd) -> int:
    return stats(front_end).running


def test_requests_are_answered_step_by_step_and_refused_with_a_reason(start, connect):
    process = start(step_s=0.05)
    front_end = connect()
    info = front_end.hello()
    assert info.session
    assert front_end.hello() == info
    first, second = make_request("a", 1, 2, n=2, seed=3), make_request("b", 9, 8, 7)
    front_end.send(first)
    front_end.send(second)
    got: dict[tuple[str, int], list[int]] = {("a", 0): [], ("a", 1): [], ("b", 0): []}
    finished = 0
    while finished < 3:
        for output in front_end.wait_for(protocol.OutputBatch).outputs:
            got[output.request_id, output.index] += output.token_ids
            finished += output.finish_reason is not None
    assert got["a", 0] == fake_output(first, 0)
    assert got["a", 1] == fake_output(first, 1)
    assert got["b", 0] == fake_output(second)

    front_end.send(make_request("c", 999))
    refusal = front_end.wait_for(protocol.Rejected)
    assert (refusal.request_id, refusal.param) == ("c", "prompt_token_ids")
    assert "999" in refusal.message

    front_end.send(make_request("d", max_tokens=1500))
    front_end.send(make_request("d"))
    assert "in flight already" in front_end.wait_for(protocol.Rejected).message
    front_end.send(protocol.Shutdown())
    assert process.wait(PATIENCE_S) == 0


def test_outputs_of_one_step_come_as_one_message(start, connect):
    start(step_s=0.05)
    front_end = connect()
    front_end.hello()
    front_end.send(make_request("a", max_tokens=2000, ignore_eos=True, n=2))
    front_end.send(make_request("b", max_tokens=2000, ignore_eos=True))
    together = 0
    while together < 3:
        outputs = front_end.wait_for(protocol.OutputBatch).outputs
        assert not any(output.finish_reason for output in outputs), "they were never together"
        together = len(outputs)
    assert {(o.request_id, o.index) for o in outputs} == {("a", 0), ("a", 1), ("b", 0)}


def test_front_ends_do_not_know_of_each_other(start, connect):
    start()
    ours, theirs = connect(), connect()
    assert ours.hello().session != theirs.hello().session
    our_request, their_request = make_request("same", 1, 2, 3), make_request("same", 4, 5)
    ours.send(our_request)
    theirs.send(their_request)
    assert ours.outputs_until_finished("same") == {"same": fake_output(our_request)}
    assert theirs.outputs_until_finished("same") == {"same": fake_output(their_request)}


def test_heartbeats_come_also_while_a_step_runs(start, connect, hurry):
    start(step_s=600, hurry=hurry, heartbeat_s=0.05)
    front_end = connect()
    front_end.hello()
    front_end.send(make_request("a", max_tokens=1))
    for _ in range(20):
        assert isinstance(front_end.next(), protocol.Heartbeat)
    hurry.touch()
    front_end.wait_for(protocol.OutputBatch)


def test_heartbeats_come_while_the_model_loads(start, connect, hurry):
    start(load_s=600, hurry=hurry)
    front_end = connect()
    front_end.send(protocol.Hello())
    for _ in range(2):
        assert isinstance(front_end.next(), protocol.Heartbeat)
    hurry.touch()
    front_end.wait_for(protocol.EngineInfo)


def test_a_step_that_fails_ends_the_process_and_says_why(start, connect):
    process = start(fail_at_step=3)
    front_end = connect()
    front_end.hello()
    front_end.send(make_request("a"))
    assert front_end.wait_for(protocol.EngineFailed).message == (
        "the engine failed: RuntimeError: step 3 was told to fail"
    )
    assert process.wait(PATIENCE_S) == 1
    assert "Traceback" in process.stderr.read()


def test_a_start_that_fails_is_told_to_front_ends_that_come_later(start, connect, endpoint):
    process = start(fail_load="no such checkpoint")
    eventually(Path(endpoint.removeprefix("ipc://")).exists)
    front_end = connect()
    front_end.send(protocol.Hello())
    reason = front_end.wait_for(protocol.EngineFailed).message
    assert reason == "the engine failed to start: no such checkpoint"
    assert process.wait(PATIENCE_S) == 1
    assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("farewell", ["abort", "close", "silence"])
def test_requests_nobody_wants_are_aborted(start, connect, endpoint, farewell):
    # By themselves the requests would end after 100 s.
    start(step_s=0.05, front_end_timeout_s=0.7 if farewell == "silence" else 600)
    watcher, front_end = connect(), RawFrontEnd(endpoint)
    watcher.hello()
    front_end.hello()
    front_end.send(make_request("a", max_tokens=2000, ignore_eos=True))
    front_end.send(make_request("b", max_tokens=2000, ignore_eos=True))
    if farewell != "silence":  # who is silent may be gone already
        front_end.wait_for(protocol.OutputBatch)
        assert running(watcher) > 0
    if farewell == "abort":
        front_end.send(protocol.Abort("a"))
        front_end.send(protocol.Abort("b"))
        front_end.send(protocol.Abort("unknown"))
    elif farewell == "close":
        front_end.close()
    eventually(lambda: has_run(stats(watcher)))
    if farewell != "close":
        front_end.close()


def has_run(now: protocol.EngineStats) -> bool:
    """Whether something ran, and nothing runs or waits."""
    return now.generated_tokens > 0 and now.running == now.waiting == 0


def test_one_sequence_is_aborted_and_its_end_reported(start, connect, hurry):
    start(step_s=0.05, hurry=hurry)
    watcher, front_end = connect(), connect()
    watcher.hello()
    front_end.hello()
    request = make_request("a", n=2, max_tokens=1500, temperature=1.0, seed=5, ignore_eos=True)
    front_end.send(request)
    front_end.wait_for(protocol.OutputBatch)
    front_end.send(protocol.Abort("a", 1))
    eventually(lambda: running(watcher) == 1)
    hurry.touch()
    ids, reasons = [], {}
    while len(reasons) < 2:
        for output in front_end.wait_for(protocol.OutputBatch).outputs:
            if output.finish_reason is not None:
                reasons[output.index] = output.finish_reason
            ids += output.token_ids if output.index == 0 else []
    assert reasons == {0: protocol.FinishReason.LENGTH, 1: protocol.FinishReason.ABORT}
    assert ids == fake_output(request)[-len(ids) :]
    front_end.send(make_request("a"))  # the id is free again
    front_end.outputs_until_finished("a")


def test_a_silent_front_end_that_returns_gets_a_new_session(start, connect):
    start(front_end_timeout_s=0.4)
    front_end = connect()
    before = front_end.hello()
    assert before.session

    def another_session_after_silence() -> bool:
        time.sleep(0.8)  # an engine that pauses meanwhile may not notice
        return front_end.hello().session != before.session

    eventually(another_session_after_silence)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(start, connect, number):
    process = start()
    connect().hello()
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 0
    assert process.stderr.read() == ""


@pytest.mark.parametrize("flags", [{}, {"fail_load": "no such checkpoint"}])
def test_its_socket_file_ends_with_it(start, connect, endpoint, flags):
    process = start(**flags)
    front_end = connect()
    front_end.send(protocol.Hello())
    front_end.wait_for(protocol.EngineFailed if flags else protocol.EngineInfo)
    front_end.send(protocol.Shutdown())
    process.wait(PATIENCE_S)
    assert not Path(endpoint.removeprefix("ipc://")).exists()


def test_the_socket_file_of_an_engine_that_took_the_endpoint_over_stays(start, connect, endpoint):
    file = Path(endpoint.removeprefix("ipc://"))
    before = start()
    connect().hello()
    inode = file.stat().st_ino
    start()
    eventually(lambda: file.exists() and file.stat().st_ino != inode)
    before.send_signal(signal.SIGTERM)
    assert before.wait(PATIENCE_S) == 0
    assert file.is_socket()
    assert connect().hello()


def test_an_engine_with_a_parent_leaves_the_terminals_signal_to_it(start, connect):
    process = start(parent_pid=os.getpid())
    front_end = connect()
    front_end.hello()
    process.send_signal(signal.SIGINT)
    request = make_request("a")
    front_end.send(request)
    assert front_end.outputs_until_finished("a") == {"a": fake_output(request)}
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


def test_it_leaves_when_its_parent_dies(endpoint, connect):
    program = (
        "import os, subprocess, sys, time; "
        "subprocess.Popen([*sys.argv[1:], '--parent-pid', str(os.getpid())]); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, *engine_command(endpoint)], env=environment()
    )
    front_end = connect()
    front_end.hello()
    monitor = front_end.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    parent.kill()
    parent.wait(PATIENCE_S)
    assert monitor.poll(int(PATIENCE_S * 1000)), "the engine did not close its socket"
    assert recv_monitor_message(monitor)["event"] == zmq.EVENT_DISCONNECTED
    front_end.socket.disable_monitor()


def test_it_sleeps_when_idle_and_wakes_at_once(start, connect):
    process = start(heartbeat_s=600)
    front_end = connect()
    front_end.hello()
    stat = Path(f"/proc/{process.pid}/stat")
    if not stat.exists():
        pytest.skip("needs /proc")

    def ticks() -> int:
        return sum(int(word) for word in stat.read_text().rsplit(")", 1)[1].split()[11:13])

    before = ticks()
    time.sleep(1.0)
    assert ticks() - before <= 10  # of 10 ms
    for number in range(5):  # it does not wait for the time of the next heartbeat
        front_end.send(make_request(str(number), max_tokens=1))
        front_end.wait_for(protocol.OutputBatch)


def test_messages_it_cannot_read_are_answered_with_the_reason(start, connect):
    process = start()
    front_end = connect()
    front_end.socket.send_multipart([b"Hello/99", b"\x80"])
    assert "wire version 99" in front_end.wait_for(protocol.EngineFailed).message
    front_end.socket.send_multipart([b"junk"])
    assert "2 frames" in front_end.wait_for(protocol.EngineFailed).message
    front_end.send(protocol.Heartbeat(protocol.EngineStats()))  # not for an engine: ignored
    front_end.hello()
    assert process.poll() is None


def test_an_endpoint_that_cannot_be_bound_is_one_clear_error(tmp_path):
    command = engine_command(f"ipc://{tmp_path}/missing/folder/e")
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode != 0
    assert f"cannot listen on ipc://{tmp_path}/missing/folder/e" in done.stderr

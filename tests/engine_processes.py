"""Starting and stopping engine processes, and talking to them over a plain socket, for tests."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import zmq

from rose import protocol, wire
from tests.fakes import expected_output

Start = Callable[..., subprocess.Popen[str]]

ROOT = Path(__file__).resolve().parents[1]
SCRIPTED_ENGINE = ROOT / "tests" / "scripted_engine.py"
PRINTABLE, EOS, MAX_MODEL_LEN = 94, 258, 2048  # as in scripted_engine.py

PATIENCE_S = 60.0
"""How long to wait for what must happen. It costs nothing where it happens, and a busy machine may
pause any process for seconds."""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def engine_command(endpoint: str, **flags: object) -> list[str]:
    words = [w for k, v in flags.items() for w in (f"--{k.replace('_', '-')}", str(v))]
    return [sys.executable, str(SCRIPTED_ENGINE), endpoint, *words]


def start_engine(endpoint: str, **flags: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        engine_command(endpoint, **flags), env=environment(), stderr=subprocess.PIPE, text=True
    )


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE_S)
    if process.stderr is not None:
        process.stderr.close()


@contextlib.contextmanager
def engines_at(endpoint: str) -> Iterator[Start]:
    """A function that starts engines at this endpoint; all are stopped at the end."""
    processes = []

    def start(**flags: object) -> subprocess.Popen[str]:
        processes.append(start_engine(endpoint, **flags))
        return processes[-1]

    yield start
    for process in processes:
        stop(process)


def fake_output(request: protocol.Request, index: int = 0) -> list[int]:
    """What the scripted engine answers."""
    return expected_output(request, index, vocab_size=PRINTABLE, eos=(EOS,), longest=MAX_MODEL_LEN)


def make_request(request_id: str, *ids: int, **sampling: object) -> protocol.Request:
    sampling = {"temperature": 0.0, "max_tokens": 8} | sampling
    return protocol.Request(
        request_id=request_id,
        prompt_token_ids=list(ids or (5, 6, 7)),
        sampling=protocol.SamplingParams(**sampling),
    )


def eventually(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class RawFrontEnd:
    """A front end without any logic of its own."""

    def __init__(self, endpoint: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(endpoint)

    def send(self, message: wire.Message) -> None:
        self.socket.send_multipart(wire.encode(message))

    def next(self, seconds: float = PATIENCE_S) -> wire.Message:
        if not self.socket.poll(int(seconds * 1000)):
            raise TimeoutError(f"no message in {seconds} s")
        return wire.decode(self.socket.recv_multipart())

    def wait_for(self, kind: type, seconds: float = PATIENCE_S):
        """The next message of that kind; others are dropped."""
        end = time.monotonic() + seconds
        while True:
            message = self.next(max(0.0, end - time.monotonic()))
            if isinstance(message, kind):
                return message

    def hello(self) -> protocol.EngineInfo:
        self.send(protocol.Hello())
        return self.wait_for(protocol.EngineInfo)

    def outputs_until_finished(self, *request_ids: str) -> dict[str, list[int]]:
        """Token ids by request, until each of these has finished."""
        ids: dict[str, list[int]] = {request_id: [] for request_id in request_ids}
        open_ids = set(request_ids)
        while open_ids:
            for output in self.wait_for(protocol.OutputBatch).outputs:
                ids[output.request_id] += output.token_ids
                if output.finish_reason is not None:
                    open_ids.discard(output.request_id)
        return ids

    def close(self) -> None:
        self.socket.close(linger=0)
        self.context.term()

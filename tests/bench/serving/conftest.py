"""The scripted server, as a process of its own."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine_processes import environment, stop
from tests.server.conftest import nano_url  # noqa: F401  # a fixture

PROGRAM = Path(__file__).with_name("scripted_server.py")


class ScriptedServer:
    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *words],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def take_log(self) -> list[dict]:
        """What it has seen since the last call."""
        with urllib.request.urlopen(self.url + "/log") as answer:
            return json.load(answer)

    def num_streaming(self) -> int:
        """Streams that have begun and not ended."""
        with urllib.request.urlopen(self.url + "/streaming") as answer:
            return json.load(answer)

    def stall(self, *, after: int, seconds: float) -> None:
        """Have it block at the so manieth request from now."""
        body = json.dumps({"after": after, "seconds": seconds}).encode()
        with urllib.request.urlopen(self.url + "/stall", data=body):
            pass

    def close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        stop(self.process)


@pytest.fixture(scope="session")
def scripted_process() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def scripted(scripted_process: ScriptedServer) -> ScriptedServer:
    """The server with an empty log; tests share the process."""
    scripted_process.take_log()
    return scripted_process

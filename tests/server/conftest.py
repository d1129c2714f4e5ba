"""Front ends as processes, with the scripted engine behind them."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest
from hypothesis import settings

from tests import patient_http
from tests.engine_processes import PATIENCE_S, Start, engines_at, environment
from tests.playback_engine import NANO, Played, playing

# For runs by hand.
settings.register_profile("long", deadline=None, derandomize=False, max_examples=5000)

PROGRAM = Path(__file__).with_name("serve_program.py")
START_S = 200.0  # for torch to be imported on a machine that never did


class Server:
    """A running front end."""

    def __init__(self, *words: str, **engine_flags: object) -> None:
        flags = [w for k, v in engine_flags.items() for w in (f"--{k.replace('_', '-')}", str(v))]
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *words, "--", *flags],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def line(self, beginning: str, seconds: float = PATIENCE_S) -> str:
        """The line that begins so, once it is printed."""
        end = time.monotonic() + seconds
        while True:
            for line in self.lines:
                if line.startswith(beginning):
                    return line
            assert time.monotonic() < end, f"no {beginning!r} in {self.lines}"
            time.sleep(0.02)

    @property
    def url(self) -> str:
        return self.line("Listening on").split()[2].rstrip(";")

    def ready(self) -> "Server":
        self.line("Serving fake on")
        return self

    def get(self, path: str) -> httpx.Response:
        return patient_http.get(self.url + path)

    def post(self, **body: object) -> httpx.Response:
        body = {"model": "fake", "prompt": [5, 6, 7], "temperature": 0} | body
        return patient_http.post(self.url + "/v1/completions", json=body)

    def answer(self, *prompt: int) -> list[int]:
        """The ids that follow a prompt."""
        response = self.post(prompt=list(prompt), max_tokens=8, return_token_ids=True)
        return response.json()["choices"][0]["token_ids"]

    def running(self) -> int:
        return self.get("/health").json()["running"]

    def engine_pid(self) -> int:
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def kill_engine(self) -> None:
        os.kill(self.engine_pid(), signal.SIGKILL)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint's tokenizer, and nothing else."""
    from tools.make_tiny_checkpoint import make_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    """Where an engine of this test listens."""
    return f"ipc://{tmp_path}/e"


@pytest.fixture
def start(endpoint: str) -> Iterator[Start]:
    """Starts engines there."""
    with engines_at(endpoint) as start:
        yield start


@pytest.fixture
def hurry(tmp_path: Path) -> Path:
    """The file whose existence ends all slowness of an engine that was started with it."""
    return tmp_path / "hurry"


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*words: str, **engine_flags: object) -> Server:
        servers.append(Server(*words, **engine_flags))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def server(tokenizer_folder: Path) -> Iterator[Server]:
    """A fast one that a module's tests share."""
    server = Server("--tokenizer-folder", str(tokenizer_folder))
    yield server.ready()
    server.stop()


@pytest.fixture(scope="session")
def nano_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where clients find the API of `rose serve nano`, which runs in processes of its own."""
    with serving_nano(
        tmp_path_factory.mktemp("nano"), "--device", "cpu", "--cpu-threads", "1"
    ) as url:
        yield url


@pytest.fixture(scope="session")
def nano(nano_url: str) -> Iterator[openai.OpenAI]:
    """OpenAI's client before it."""
    with openai.OpenAI(base_url=nano_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    """A front end before an engine that writes what a test says."""
    with playing(NANO) as served:
        yield served


@contextlib.contextmanager
def serving_nano(folder: Path, *flags: str) -> Iterator[str]:
    """Where clients find the API of `rose serve nano` with these flags; the folder gets its log."""
    log = folder / "log"
    command = [sys.executable, "-m", "rose", "serve", "nano", "--port", "0", *flags]
    command += ["--keep-alive", "600"]  # as in serve_program.py
    with log.open("w") as stderr:
        process = subprocess.Popen(command, env=environment(), stderr=stderr)
    try:
        yield _served_url(process, log)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _served_url(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + START_S
    while True:
        for line in log.read_text().splitlines():
            if line.startswith("Serving "):
                return line.split()[3]
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)

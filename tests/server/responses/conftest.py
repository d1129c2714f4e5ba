"""Servers that the tests of /v1/responses share."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import openai
import pytest

from tests.engine_processes import environment
from tests.playback_engine import NANO, Played, playing


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    """A front end before an engine that writes what a test says."""
    with playing(NANO) as served:
        yield served


@pytest.fixture(scope="session")
def nano_url() -> Iterator[str]:
    """`rose serve nano`."""
    words = ["serve", "nano", "--port", "0", "--device", "cpu", "--cpu-threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rose", *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")))
    reader.start()
    try:
        yield _url(process, lines)
    finally:
        process.terminate()
        process.wait(20)
        reader.join(10)
        process.stdout.close()


def _url(process: subprocess.Popen[str], lines: list[str]) -> str:
    end = time.monotonic() + 60
    while True:
        for line in lines:
            if line.startswith("Serving "):
                return line.split()[3]
        assert process.poll() is None, lines
        assert time.monotonic() < end, lines
        time.sleep(0.05)


@pytest.fixture(scope="session")
def nano(nano_url: str) -> Iterator[openai.OpenAI]:
    """OpenAI's client before it."""
    with openai.OpenAI(base_url=nano_url, api_key="none", max_retries=0) as client:
        yield client

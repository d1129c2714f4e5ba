"""A front end under load, in small: what happens, not how fast."""

import asyncio
import json
import subprocess
import sys

import pytest

from rose.server.limits import Queue
from tests.engine_processes import ROOT, environment

SECONDS, STREAMS, TOKENS_PER_S = 8, 64, 3000


@pytest.mark.slow
def test_many_streams_at_once_end_well_and_take_no_more_memory():
    command = [sys.executable, "bench/server_load.py", "--seconds", str(SECONDS)]
    flags = ["--streams", str(STREAMS), "--tokens-per-s", str(TOKENS_PER_S)]
    done = subprocess.run(
        [*command, *flags],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["errors"] == 0
    assert figures["streams ended"] > 0
    assert figures["chunks/s"] > TOKENS_PER_S / 20, "the streams hardly moved"
    assert figures["gap ms"]["max"] > 0
    _, *later = figures["memory MiB"]
    assert max(later) - later[0] < 20


async def test_streams_go_on_while_calls_that_came_at_once_are_prepared():
    queue = Queue(100)
    happened: list[str] = []

    async def stream() -> None:
        for _ in range(40):
            happened.append("-")
            await asyncio.sleep(0)

    async def call() -> None:
        await queue.turn()
        happened.append("c")

    await asyncio.gather(stream(), *(call() for _ in range(8)))
    assert happened.count("c") == 8
    assert "cc" not in "".join(happened)

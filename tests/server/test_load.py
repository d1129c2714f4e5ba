"""A front end under load, in small: what happens, not how fast."""

import asyncio
import json
import subprocess
import sys
import threading

import pytest

from rose.grammar import schema_problem
from rose.server import grammar
from rose.server.limits import Queue
from tests.engine_processes import ROOT, environment
from tests.playback_engine import MODEL, NANO, playing

SECONDS, STREAMS, TOKENS_PER_S = 5, 32, 1500


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
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["errors"] == 0
    assert figures["streams ended"] > 0
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


@pytest.mark.parametrize(("size", "in_a_thread"), [(3, False), (2000, True)])
def test_a_large_schema_is_checked_and_rendered_beside_the_streams(monkeypatch, size, in_a_thread):
    threads: list[str] = []

    def check(schema: str) -> str | None:
        threads.append(threading.current_thread().name)
        return schema_problem(schema)

    monkeypatch.setattr(grammar, "_schema_problem", check)
    schema = {"enum": [f"value {number}" for number in range(size)]}
    form = {"name": "form", "schema": schema}
    with playing(NANO) as played:
        answer = played.chat(
            "<|channel|>final<|message|>1<|return|>",
            response_format={"type": "json_schema", "json_schema": form},
        )
        assert answer.choices[0].message.content == "1"
        text = {"format": {"type": "json_schema", **form}}
        assert played.client.responses.create(model=MODEL, input="Hi", text=text).output
    assert len(threads) == 2
    assert [name.startswith("asyncio_") for name in threads] == [in_a_thread] * 2

"""How one front end bears many streams: stalls, its share of a core, its memory.

A scripted engine writes tokens at a steady rate to chats that are streamed to this process; each
chat that ends is followed by the next. All numbers are a client's: gaps between reads that brought
chunks of one stream, however many.

Run: python bench/server_load.py --seconds 300
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NANO = ROOT / "rose" / "assets" / "nano"
CHUNK = b'"choices":[{'
END = b"data: [DONE]"
ERRORS = (b'data: {"error"', b"HTTP/1.1 4", b"HTTP/1.1 5")
QUESTION = "How many petals does a rose have, and who counts them? " * 5
SAMPLE_S = 5.0


@dataclass
class Load:
    """What clients saw.

    Attributes:
        chunks, streams, errors: counts.
        gaps_ms: how many gaps between chunks of a stream there were, by length.
        first_ms: how many first chunks came after so many milliseconds.
        own_late_ms: how late this process, which is mostly idle, woke at worst. Where that is long
            too, the machine was short of cores, and the gaps are not the front end's alone.
        worst: (milliseconds, seconds since the start) of the longest gap of each stream over 100.
    """

    began: float
    chunks: int = 0
    streams: int = 0
    errors: int = 0
    own_late_ms: int = 0
    gaps_ms: dict[int, int] = field(default_factory=dict)
    first_ms: dict[int, int] = field(default_factory=dict)
    worst: list[tuple[int, float]] = field(default_factory=list)


class StreamingClient(asyncio.Protocol):
    """One connection that asks for chat after chat.

    Args:
        load: where to count.
        request: bytes to post.
    """

    def __init__(self, load: Load, request: bytes) -> None:
        self._load = load
        self._request = request
        self._tail = b""
        self._posted = self._last = 0.0
        self._worst = 0
        self._streaming = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._post()

    def _post(self) -> None:
        self._transport.write(self._request)
        self._posted = time.perf_counter()
        self._streaming = False
        self._worst = 0

    def data_received(self, data: bytes) -> None:
        """Count what came."""
        now = time.perf_counter()
        text = self._tail + data
        chunks = text.count(CHUNK)
        # What may be the beginning of a mark is kept; no mark is counted twice.
        self._tail = text[-(len(CHUNK) - 1) :]
        if chunks:
            self._load.chunks += chunks
            self._time(now)
        if any(mark in text for mark in ERRORS):
            self._load.errors += 1
        if END in text:
            self._tail = b""
            self._load.streams += 1
            if self._worst > 100:
                self._load.worst.append((self._worst, round(now - self._load.began, 1)))
            self._post()

    def _time(self, now: float) -> None:
        since = self._last if self._streaming else self._posted
        counts = self._load.gaps_ms if self._streaming else self._load.first_ms
        gap_ms = int((now - since) * 1000)
        counts[gap_ms] = counts.get(gap_ms, 0) + 1
        if self._streaming:
            self._worst = max(self._worst, gap_ms)
        self._last, self._streaming = now, True

    def connection_lost(self, error: Exception | None) -> None:
        """The server closes none."""
        self._load.errors += 1


def quantile(counts: dict[int, int], share: float) -> int:
    """The value below which this share of the counted lies."""
    left = share * sum(counts.values())
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    return 0


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """A process's resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def processes(tokens_per_s: float) -> Iterator[tuple[int, int, int]]:
    """An engine and a front end: the pids of the two, and the front end's port."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="rose-load-") as folder:
        endpoint = f"ipc://{folder}/engine"
        script = str(ROOT / "bench" / "load_engine.py")
        rate = ["--tokens-per-s", str(tokens_per_s)]
        engine = subprocess.Popen(
            [sys.executable, script, endpoint, str(NANO), *rate], env=environment
        )
        front_end = subprocess.Popen(
            [sys.executable, "-m", "rose", "front-end", endpoint, "--port", "0"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield engine.pid, front_end.pid, _port(front_end)
        finally:
            for process in (front_end, engine):
                process.kill()
                process.wait()


def _port(front_end: subprocess.Popen[str]) -> int:
    assert front_end.stderr is not None
    lines: list[str] = []
    for line in front_end.stderr:
        lines.append(line)
        if line.startswith("Serving"):
            return int(line.split("/v1")[0].rpartition(":")[2])
    raise SystemExit("the front end did not start:\n" + "".join(lines))


def post(tokens: int) -> bytes:
    """The bytes of a chat's request for so many tokens."""
    body = json.dumps(
        {
            "model": "load",
            "messages": [{"role": "user", "content": QUESTION}],
            "stream": True,
            "max_completion_tokens": tokens,
        }
    ).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def watch_own_lateness(load: Load) -> None:
    """Sleep again and again, and keep the longest that waking took."""
    while True:
        slept = time.perf_counter()
        await asyncio.sleep(0.01)
        late_ms = int((time.perf_counter() - slept - 0.01) * 1000)
        load.own_late_ms = max(load.own_late_ms, late_ms)


async def run(port: int, pid: int, *, streams: int, seconds: float) -> tuple[Load, list[float]]:
    """Keep so many streams open for a while; what they saw, and the front end's memory (MiB).

    The while begins when all have begun, and lasts until one has ended at least. Of the memory, the
    first sample is from before.
    """
    loop = asyncio.get_running_loop()
    load = Load(time.perf_counter())
    for number in range(streams):
        # Of different lengths, so that they end at different times.
        request = post(200 + 601 * number // streams)
        await loop.create_connection(
            lambda request=request: StreamingClient(load, request), "127.0.0.1", port
        )
    watching = asyncio.create_task(watch_own_lateness(load))
    memory = [rss_mib(pid)]
    while sum(load.first_ms.values()) < streams and not load.errors:
        await asyncio.sleep(0.05)  # what loads at first use is not growth
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not (load.streams or load.errors):
        await asyncio.sleep(min(SAMPLE_S, seconds / 4))
        memory.append(rss_mib(pid))
    watching.cancel()
    return load, memory


def main() -> None:
    """Measure, and print one JSON object."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--streams", type=int, default=256)
    arguments.add_argument("--seconds", type=float, default=300)
    arguments.add_argument("--tokens-per-s", type=float, default=10_000)
    given = arguments.parse_args()
    with processes(given.tokens_per_s) as (engine, front_end, port):
        pids = {"front end": front_end, "engine": engine, "client": os.getpid()}
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        work = run(port, front_end, streams=given.streams, seconds=given.seconds)
        load, memory = asyncio.run(work)
        took = time.perf_counter() - load.began
        used = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
    figures = {
        "seconds": round(took, 1),
        "streams ended": load.streams,
        "errors": load.errors,
        "chunks/s": round(load.chunks / took),
        "gap ms": {
            "p50": quantile(load.gaps_ms, 0.5),
            "p99": quantile(load.gaps_ms, 0.99),
            "max": max(load.gaps_ms, default=0),
        },
        "client late ms": load.own_late_ms,
        "first chunk ms": {
            "p50": quantile(load.first_ms, 0.5),
            "p99": quantile(load.first_ms, 0.99),
            "max": max(load.first_ms, default=0),
        },
        "share of a core": {name: round(value / took, 2) for name, value in used.items()},
        "memory MiB": [round(value, 1) for value in memory],
        "worst": sorted(load.worst, reverse=True)[:5],
        "load average": os.getloadavg()[0],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

"""Results of measurements: versioned JSON that says what was measured, where and with what.

Every sample is kept: medians and spreads are computed where they are shown. Times are seconds.
"""

import re
import statistics
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from rose.protocol import UserError

VERSION = 1

Phase = Literal["prefill", "decode"]

LEAST_USD, MOST_USD = 1e-6, 1e6
"""Of a GPU-hour."""

MOST_REQUESTS = 1_000_000
"""Of a load; all of them are held in memory."""

MOST_BATCH = 65_536
"""Sequences at once that can be measured."""

PLAIN_NAME = r"^[^\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]*\Z"
MOST_LETTERS = 300
"""Of a name."""

# A file may come from anywhere. Outside these bounds nothing was measured and figures overflow, or
# a name would do things to a terminal or break a chart.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Degree = Annotated[int, msgspec.Meta(ge=1, le=9999)]
_Batch = Annotated[int, msgspec.Meta(ge=1, le=MOST_BATCH)]
_Span = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Name = Annotated[str, msgspec.Meta(pattern=PLAIN_NAME, max_length=MOST_LETTERS)]
_Time = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
_Sample = Annotated[float, msgspec.Meta(ge=1e-12, le=1e9)]
_Samples = Annotated[list[_Sample], msgspec.Meta(min_length=1)]
_Amount = Annotated[float, msgspec.Meta(ge=1e-9, le=1e30)]
_Usd = Annotated[float, msgspec.Meta(ge=LEAST_USD, le=MOST_USD)]

_PART = re.compile(r"(tp|ep|dp)([1-9][0-9]{0,3})")


class BenchError(UserError):
    """A measurement that cannot be made, or a file that holds none."""


class Sharding(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is spread; `tp` x `dp` GPUs, the experts over `ep` of them."""

    tp: _Degree = 1
    ep: _Degree = 1
    dp: _Degree = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.dp

    @property
    def name(self) -> str:
        """In the command line's form: tp1, tp2, ep2tp2, dp2ep2."""
        parts = [("dp", self.dp), ("ep", self.ep), ("tp", self.tp)]
        return "".join(f"{name}{n}" for name, n in parts if n > 1) or "tp1"

    @classmethod
    def parse(cls, name: str) -> "Sharding":
        """The inverse of `name`; the parts may stand in any order.

        Raises:
            BenchError: it is no such name.
        """
        parts = _PART.findall(name)
        kinds = [kind for kind, _ in parts]
        if not parts or "".join(k + n for k, n in parts) != name or len({*kinds}) < len(kinds):
            raise BenchError(f"sharding {name!r}: write it like tp1, tp2, ep2tp2 or dp2ep2")
        return cls(**{kind: int(n) for kind, n in parts})


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where it ran.

    Attributes:
        gpu: the device's name; None on a machine without one.
        gpu_uuids: as the driver writes them, "GPU-..."; empty: unknown, as in older files.
    """

    cpu: _Name
    cores: _Count
    memory_bytes: _Count
    gpu: _Name | None = None
    gpus: _Count = 0
    gpu_memory_bytes: _Count = 0
    driver: str | None = None
    gpu_uuids: list[_Name] = []

    @property
    def name(self) -> str:
        """In a few words: its GPU, else its CPU."""
        return self.gpu or self.cpu

    def has_other_gpus(self, other: "Machine") -> bool:
        """Whether its GPUs are of the same kind as the other's, but known to be other ones.

        Some of the same host's GPUs are not other ones than all of them.
        """
        ours, theirs = set(self.gpu_uuids), set(other.gpu_uuids)
        known = bool(ours and theirs) and self.name == other.name
        return known and not (ours <= theirs or theirs <= ours)


class Software(msgspec.Struct, frozen=True, kw_only=True):
    """With what it ran. `engine` is what was measured, as "rose 0.1.0" or "vllm 0.26.0"."""

    engine: _Name
    rose: str
    commit: str | None
    python: str
    packages: dict[str, str]


class EngineCell(msgspec.Struct, frozen=True, kw_only=True, tag="engine"):
    """A phase of one model at one size.

    Attributes:
        phase: "prefill": seconds from submission to the first token, of the last prompt if there
            are several; "decode": seconds a step.
        tokens: prefill: of each prompt; decode: of context before the first measured step.
        batch: sequences at once, over all replicas of `sharding`.
        samples: seconds; one a run (prefill) or one a step (decode).
    """

    phase: Phase
    model: _Name
    quantization: _Name
    sharding: Sharding
    batch: _Batch
    tokens: _Size
    samples: _Samples


class RooflineCell(msgspec.Struct, frozen=True, kw_only=True, tag="roofline"):
    """A rate or a latency of the machine.

    Attributes:
        name: what was done, as "copy" or "gemm bf16 8192x8192x8192".
        unit: of `amount`: "B", "FLOP" or "call".
        amount: done in each sample.
        samples: seconds.
    """

    name: _Name
    unit: Literal["B", "FLOP", "call"]
    amount: _Amount
    samples: _Samples


class RequestSample(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a load test, in seconds from the test's start.

    Attributes:
        scheduled: when it was due; latencies count from here, so a stalled server cannot hide.
        sent: when the generator turned to it; long after `scheduled`, the generator was too slow.
        token_times: when each chunk of output arrived.
        token_counts: tokens in each of those chunks.
        finished: when the stream ended.
        prompt_tokens, output_tokens: by the server's own count, if it gave one; else the ids that
            were posted (0 for text), and one a chunk.
        asked_tokens: output tokens asked for; a model may stop earlier.
        error: why it failed, as "kind: details"; None: it did not.
        warmup: not part of the statistics.
    """

    scheduled: _Time
    sent: _Time
    token_times: list[_Time]
    token_counts: list[_Size]
    finished: _Time
    prompt_tokens: _Count
    output_tokens: _Count
    asked_tokens: _Count = 0
    error: str | None = None
    warmup: bool = False

    def __post_init__(self) -> None:
        if len(self.token_times) != len(self.token_counts):
            raise ValueError("token_times and token_counts must be as many")
        if self.error is None and not self.token_times:
            raise ValueError("a request without an error must have output")
        if sorted(self.token_times) != self.token_times:
            raise ValueError("token_times must ascend")

    @property
    def ttft(self) -> float:
        """Seconds from when it was due to its first token; of a request that was served."""
        return self.token_times[0] - self.scheduled

    @property
    def tpot(self) -> float | None:
        """Seconds a token after the first chunk, if it was served; None: there is no more."""
        later = sum(self.token_counts[1:])
        return (self.token_times[-1] - self.token_times[0]) / later if later else None


class Generator(msgspec.Struct, frozen=True, kw_only=True):
    """How the load generator itself fared; of several processes, the worst.

    Attributes:
        processes: that made the load.
        loop_lag_p99: seconds by which its event loop woke late.
        send_lag_p99: seconds from when a request was due until the generator turned to it.
        cpu_share: of a core, that its event loop's process used.
    """

    processes: _Count
    loop_lag_p99: _Time
    send_lag_p99: _Time
    cpu_share: _Span


class ServeCell(msgspec.Struct, frozen=True, kw_only=True, tag="serve"):
    """One load on one server.

    Attributes:
        load: as "poisson 4/s", "fixed 4/s" or "concurrency 16".
        duration: seconds measured, from when the first request past the warm-up was due.
        requests: all, warm-up included, in the order in which they were due.
        gpus: behind the URL, told by the user; 0: not told.
        saturated: why the generator itself was too slow to be trusted; None: it was not.
        interrupted: it was cut short; what was in flight has the error "interrupted".
        generator: how the generator fared.
    """

    model: _Name
    load: _Name
    duration: _Span
    requests: list[RequestSample]
    gpus: _Count = 0
    saturated: str | None = None
    interrupted: bool = False
    generator: Generator | None = None


Cell = EngineCell | RooflineCell | ServeCell


class SkippedCell(msgspec.Struct, frozen=True, kw_only=True):
    """An EngineCell that was asked for and cannot be; `reason` says why and what would do."""

    phase: Phase
    model: _Name
    sharding: Sharding
    batch: _Size
    tokens: _Size
    reason: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result file.

    Attributes:
        created: ISO 8601, UTC.
        command: the command line that made it.
        flags: the options that it resolved to.
        partial: it was interrupted; the cells that are there are whole, but for a ServeCell that
            says otherwise.
        usd_per_gpu_hour: the price asked for.
        notes: what a reader must know, as "dummy weights".
        skipped: what was asked for and does not fit.
    """

    version: int
    created: str
    command: str
    machine: Machine
    software: Software
    flags: dict[str, str]
    cells: list[Cell]
    usd_per_gpu_hour: _Usd = 3.0
    partial: bool = False
    notes: list[str] = []
    skipped: list[SkippedCell] = []


OTHER_GPU = "another GPU of the same kind (two H200s differed by 1 to 6%)"
"""What is said of GPUs that differ by their UUIDs alone; measured, see docs/results."""


def has_other_gpus(results: Iterable[Result]) -> bool:
    """Whether some two of the results are known to be of other GPUs of the same kind."""
    machines = [result.machine for result in results]
    return any(a.has_other_gpus(b) for a, b in combinations(machines, 2))


def save(result: Result, path: Path) -> None:
    """Write atomically, indented for a reader."""
    text = msgspec.json.format(msgspec.json.encode(result), indent=1)
    scratch = path.with_name(path.name + ".part")
    try:
        scratch.write_bytes(text + b"\n")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)  # the disk is full, or ^C


def load(path: Path) -> Result:
    """Read a result file.

    Raises:
        BenchError: it is missing, no result, or of another version.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from None
    try:
        found = msgspec.json.decode(content, type=_Versioned).version
        if found != VERSION:
            raise BenchError(f"{path}: version {found} of the format; this Rose reads {VERSION}")
        return msgspec.json.decode(content, type=Result)
    except msgspec.DecodeError as error:
        raise BenchError(f"{path}: not a result of rose bench: {error}") from None


class _Versioned(msgspec.Struct):
    version: int


def median(samples: list[float]) -> float:
    """The middle sample, or the mean of the two in the middle."""
    return statistics.median(samples)


def usd_per_million_tokens(
    seconds: float, tokens: float, *, gpus: int, usd_per_gpu_hour: float
) -> float:
    """What a million tokens cost if `tokens` of them take `gpus` GPUs this long."""
    return seconds * gpus * usd_per_gpu_hour / 3600 / tokens * 1e6

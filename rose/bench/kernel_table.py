"""From a trace to tables: how long each kernel ran, how idle the GPU was, how far from the ceiling.

A trace is what torch.profiler exports: Chrome's JSON, times in microseconds. Of a run on a CPU the
ops of torch stand in for kernels, each without the ops that it calls.
"""

import gzip
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rose.bench.ceiling import Rates
from rose.bench.results import BenchError
from rose.bench.step_work import DENSE_OPS, Work, all_dense
from rose.bench.tables import Row, Table, seconds, significant

_GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_NAME_WIDTH = 56
_SHORT_GAP = 2e-6
"""Seconds from one kernel to the next that waits for it, in a graph too; longer, work was late."""

# The first that matches; FlashAttention's kernels are instances of CUTLASS templates.
_OPS = (
    ("attention", re.compile(r"attention|flash", re.IGNORECASE)),
    ("experts", re.compile(r"experts|grouped", re.IGNORECASE)),
    ("router", re.compile(r"_router_")),
    ("dense", re.compile(r"linear|gemm|gemv|nvjet|cutlass|splitk", re.IGNORECASE)),
)
_SECOND_HALF = re.compile(r"splitk.*reduce|reduce.*splitk", re.IGNORECASE)
"""Finishes the product before it."""


@dataclass(frozen=True, slots=True)
class Event:
    """One run of a kernel or op: `start` and `duration` in seconds, `lane` a stream or thread."""

    name: str
    lane: str
    start: float
    duration: float

    @property
    def end(self) -> float:
        """In seconds."""
        return self.start + self.duration


@dataclass(frozen=True, slots=True)
class Trace:
    """What ran, by start; on a GPU if there was one."""

    events: list[Event]
    gpu: bool


@dataclass(frozen=True, slots=True)
class KernelRow:
    """All runs of one kernel for one op; `op` is "" where its name tells none.

    `total`: seconds that they add to what ran before; on a CPU without what they call.
    """

    name: str
    op: str
    calls: int
    total: float


@dataclass(frozen=True, slots=True)
class Utilisation:
    """How well kernels fill a time.

    Attributes:
        span: seconds from the first kernel's start to the last one's end.
        busy: seconds of it that had any running.
        waiting: seconds of it in gaps that are longer than one between dependent kernels: the GPU
            waited for the host.
    """

    span: float
    busy: float
    waiting: float

    @property
    def idle_share(self) -> float:
        """Of the span, without any kernel."""
        return 1 - self.busy / self.span if self.span else 0.0

    def __str__(self) -> str:
        idle = f"idle for {self.idle_share:.1%} of it"
        late = self.waiting / self.span if self.span else 0.0
        return f"{idle} ({late:.1%} in gaps above {_SHORT_GAP * 1e6:.0f} us)"


def read_trace(path: Path) -> Trace:
    """The kernels of a trace file, JSON or its gzip; of one without a GPU the ops of torch.

    Raises:
        BenchError: it holds neither.
    """
    raw = path.read_bytes()
    content = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    complete = [e for e in content["traceEvents"] if e.get("ph") == "X"]
    for gpu in (True, False):
        wanted = _GPU_CATEGORIES if gpu else {"cpu_op"}
        events = [_event(e) for e in complete if e.get("cat") in wanted]
        if events:
            return Trace(sorted(events, key=lambda e: (e.start, -e.duration)), gpu)
    raise BenchError(f"{path} holds neither kernels nor ops: nothing ran while it was recorded")


def _event(raw: dict[str, object]) -> Event:
    start, duration = float(str(raw["ts"])) / 1e6, float(str(raw["dur"])) / 1e6
    return Event(str(raw["name"]), f"{raw['pid']}/{raw['tid']}", start, duration)


def utilisation(events: Sequence[Event]) -> Utilisation:
    """Of at least one event, sorted by start; overlapping ones count once."""
    waiting, reached = 0.0, events[0].start
    for event in events:
        gap = event.start - reached
        waiting += gap if gap > _SHORT_GAP else 0.0
        reached = max(reached, event.end)
    return Utilisation(reached - events[0].start, sum(_added_seconds(events)), waiting)


def kernel_rows(trace: Trace, *, layers: int, steps: int) -> list[KernelRow]:
    """Runs summed by kernel and op, the longest first."""
    own = _added_seconds(trace.events) if trace.gpu else _own_seconds(trace.events)
    ops = _ops(trace.events, layers, steps) if trace.gpu else [""] * len(trace.events)
    sums: dict[tuple[str, str], tuple[int, float]] = {}
    for event, op, duration in zip(trace.events, ops, own, strict=True):
        calls, total = sums.get((event.name, op), (0, 0.0))
        sums[event.name, op] = (calls + 1, total + duration)
    rows = [KernelRow(name, op, calls, total) for (name, op), (calls, total) in sums.items()]
    return sorted(rows, key=lambda row: -row.total)


def _added_seconds(events: Sequence[Event]) -> list[float]:
    """By how much each event goes beyond all that started before it; sorted by start.

    A kernel that comes early to wait for the one before it, or runs beside it, counts from that
    one's end. So the sum is the time with any kernel running.
    """
    added, reached = [], events[0].start
    for event in events:
        added.append(max(0.0, event.end - max(reached, event.start)))
        reached = max(reached, event.end)
    return added


def _own_seconds(events: Sequence[Event]) -> list[float]:
    """Each event's duration without the events inside it on the same lane; sorted by start."""
    own = [event.duration for event in events]
    open_events: dict[str, list[int]] = {}
    for index, event in enumerate(events):
        stack = open_events.setdefault(event.lane, [])
        while stack and events[stack[-1]].end <= event.start:
            stack.pop()
        if stack:
            own[stack[-1]] -= event.duration
        stack.append(index)
    return own


def _ops(events: Sequence[Event], layers: int, steps: int) -> list[str]:
    """Each kernel's op by its name; the dense products by their order, where it is clear.

    A library calls all its products alike. If there are as many as the model has in so many steps
    (with the router's among them or not), they come in the model's order; else all are "dense".
    """
    ops = [next((op for op, name in _OPS if name.search(e.name)), "") for e in events]
    dense = [i for i, op in enumerate(ops) if op == "dense"]
    products = [i for i in dense if not _SECOND_HALF.search(events[i].name)]
    for a_layer in (DENSE_OPS[:3], DENSE_OPS[:2]):
        a_step = (*a_layer * layers, "head")
        if len(products) == steps * len(a_step):
            for number, index in enumerate(products):
                ops[index] = a_step[number % len(a_step)]
            _follow(ops, dense)
            break
    return ops


def _follow(ops: list[str], dense: Iterable[int]) -> None:
    """Second halves belong to the product before them."""
    last = "dense"
    for index in dense:
        last = ops[index] = last if ops[index] == "dense" else ops[index]


def op_table(
    rows: Sequence[KernelRow], work: dict[str, Work], rates: Rates, use: Utilisation, steps: int
) -> Table:
    """Seconds, rates and the share of the ceiling of each op that is known by its kernels."""
    known = {**work, "dense": all_dense(work)}
    lines = []
    for op in [op for op in known if any(row.op == op for row in rows)]:
        total = sum(row.total for row in rows if row.op == op)
        moved, flop = known[op].bytes / total / 1e12, known[op].flop / total / 1e12
        share = known[op].least_seconds(rates.read) / total
        cells = (significant(moved), significant(flop), f"{share:.0%}")
        lines.append(Row((op, *_times(total, steps, use), *cells)))
    others = sum(row.total for row in rows if not row.op)
    lines.append(Row(("other", *_times(others, steps, use), "-", "-", "-")))
    return Table(
        f"Ops of {steps} steps: {seconds(use.span)} from the first kernel to the last, {use}",
        ("op", "total us", "us a step", "share", "TB/s", "TFLOP/s", "% of ceiling"),
        lines,
        [
            f"Ceilings: {rates.source}.",
            "Bytes and FLOP are what the op needs at least; share is of the busy time.",
            "A kernel that comes before the one ahead of it has ended counts from that end.",
        ],
    )


def kernel_table(rows: Sequence[KernelRow], use: Utilisation, *, gpu: bool) -> Table:
    """Every kernel, or op of torch on a CPU; a share is of the busy time."""
    lines = []
    for row in rows:
        name = row.name if len(row.name) <= _NAME_WIDTH else row.name[: _NAME_WIDTH - 3] + "..."
        total, mean = row.total * 1e6, row.total * 1e6 / row.calls
        numbers = (str(row.calls), f"{total:.1f}", _share(row.total, use), f"{mean:.1f}")
        lines.append(Row((name, row.op or "-", *numbers) if gpu else (name, *numbers)))
    numbers = ("calls", "total us", "share", "mean us")
    return Table(
        f"{'Kernels' if gpu else 'Ops of torch on the CPU'}: {seconds(use.span)} from the first to "
        f"the end of the last, {use}",
        ("kernel", "op", *numbers) if gpu else ("op of torch", *numbers),
        lines,
        text_columns=frozenset({0, 1} if gpu else {0}),
    )


def _times(total: float, steps: int, use: Utilisation) -> tuple[str, str, str]:
    return f"{total * 1e6:.1f}", f"{total * 1e6 / steps:.1f}", _share(total, use)


def _share(total: float, use: Utilisation) -> str:
    return f"{total / use.busy:.1%}" if use.busy else "-"

"""What this machine sustains: memory, products, launches and, over several GPUs, all-reduce.

On a GPU the shapes are those of the large models: 8192 tokens, hidden 2880, 5120 columns of a QKV
projection, 32 experts of 5760 columns. On a CPU it is enough to hold a small model's numbers
against something.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rose.bench.results import BenchError, RooflineCell

COPY_BYTES = {"cuda": 2**30, "cpu": 2**26}
"""Of each buffer: many times the cache, so that memory is what is measured."""

CALLS = 1000
"""Launches a sample; one alone is too short for any clock."""

WARMUP = 3


class UnsupportedCaseError(BenchError):
    """A case that this device or this build of torch cannot run."""


@dataclass(frozen=True, slots=True)
class Case:
    """Something to time.

    Attributes:
        name: as in `RooflineCell`.
        unit: of `amount`.
        amount: done by one call of what `prepare` returns.
        prepare: allocates, and returns what is to be timed.
        host: by the host's clock with the device waited for, instead of the device's own clock.
    """

    name: str
    unit: Literal["B", "FLOP", "call"]
    amount: float
    prepare: Callable[[], Callable[[], object]]
    host: bool = False


def measure(device: str, repeat: int, *, quick: bool = False) -> Iterator[RooflineCell | str]:
    """Time every case, one after the other.

    Args:
        device: "cpu" or "cuda".
        repeat: samples a case.
        quick: only what `ceiling.rates_from` needs.

    Yields:
        A cell as it is done, or one line on why a case cannot run here.
    """
    for case in cases(device):
        if quick and not case.name.startswith(("read", "gemm", "grouped gemm")):
            continue
        try:
            yield _measure_case(case, device, repeat)
        except (UnsupportedCaseError, RuntimeError, AttributeError, TypeError) as error:
            # What a build of torch lacks it says in many ways.
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            yield f"{case.name}: cannot run here: {reason}"
        if device == "cuda":
            torch.cuda.empty_cache()


def cases(device: str) -> list[Case]:
    """What is timed on a kind of device, but for all-reduce (see `collective`)."""
    size = COPY_BYTES[device]
    memory = [
        Case("copy", "B", 2.0 * size, lambda: _copy(device, size)),
        Case("read", "B", float(size), lambda: _read(device, size)),
    ]
    if device == "cpu":
        return [*memory, *(_gemm(kind, 512, 512, 512, device) for kind in ("fp32", "bf16"))]
    return [
        *memory,
        _gemm("bf16", 8192, 8192, 8192, device),
        _gemm("bf16", 8192, 5120, 2880, device),
        _gemm("fp8", 8192, 8192, 8192, device),
        _gemm("fp8", 8192, 5120, 2944, device),
        _grouped_gemm(32, 1024, 5760, 2880),
        Case("launch eager", "call", float(CALLS), _eager_launches, host=True),
        Case("launch graph", "call", float(CALLS), _graph_launches),
    ]


def _measure_case(case: Case, device: str, repeat: int) -> RooflineCell:
    run = case.prepare()
    timer = host_seconds if case.host or device == "cpu" else _device_seconds
    for _ in range(WARMUP):
        timer(run)
    samples = [timer(run) for _ in range(repeat)]
    return RooflineCell(name=case.name, unit=case.unit, amount=case.amount, samples=samples)


def host_seconds(run: Callable[[], object]) -> float:
    """Seconds by the host's clock until the device is done."""
    begin = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _device_seconds(run: Callable[[], object]) -> float:
    # One more run before it keeps the device busy while the host enqueues what is timed.
    run()
    return cuda_seconds(run)


def cuda_seconds(run: Callable[[], object]) -> float:
    """Seconds on the device between what was enqueued before `run` and its end; waits for it."""
    begin, end = _event(), _event()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _copy(device: str, size: int) -> Callable[[], object]:
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _read(device: str, size: int) -> Callable[[], object]:
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    return lambda: source.sum()


def _random(device: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Random, since zeros would spare the chip power and so run faster."""
    return torch.randn(shape, device=device, dtype=dtype)


def _gemm(kind: str, rows: int, columns: int, inner: int, device: str) -> Case:
    def prepare() -> Callable[[], object]:
        dtype = torch.float32 if kind == "fp32" else torch.bfloat16
        a = _random(device, rows, inner, dtype=dtype)
        b = _random(device, columns, inner, dtype=dtype)
        if kind != "fp8":
            return lambda: torch.mm(a, b.t())
        if torch.cuda.get_device_capability() < (8, 9):
            raise UnsupportedCaseError("FP8 needs compute capability 8.9")
        scale = torch.ones((), device=device)
        a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
        return lambda: torch._scaled_mm(
            a8, b8, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    flop = 2.0 * rows * columns * inner
    return Case(f"gemm {kind} {rows}x{columns}x{inner}", "FLOP", flop, prepare)


def _grouped_gemm(groups: int, rows: int, columns: int, inner: int) -> Case:
    """FP8 with one scale a row, as torch has it; every group has as many rows."""

    def prepare() -> Callable[[], object]:
        a = _random("cuda", groups * rows, inner).to(torch.float8_e4m3fn)
        b = _random("cuda", groups, columns, inner).to(torch.float8_e4m3fn).transpose(1, 2)
        scale_a = torch.ones(groups * rows, device="cuda")
        scale_b = torch.ones(groups, columns, device="cuda")
        ends = torch.arange(1, groups + 1, device="cuda", dtype=torch.int32) * rows
        return lambda: torch._scaled_grouped_mm(
            a, b, scale_a, scale_b, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    flop = 2.0 * groups * rows * columns * inner
    return Case(f"grouped gemm fp8 {groups}x{rows}x{columns}x{inner}", "FLOP", flop, prepare)


def _eager_launches() -> Callable[[], object]:
    x = torch.zeros(1, device="cuda")

    def run() -> None:
        for _ in range(CALLS):
            x.add_(1)

    return run


def _graph_launches() -> Callable[[], object]:
    run = _eager_launches()
    run()  # what a first launch loads must not be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay() -> object:
        graph.replay()
        return run  # it holds what the graph writes to, which nothing else may be given

    return replay

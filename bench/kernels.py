"""Kernels alone, at the shapes of gpt-oss: microseconds, TB/s and TFLOP/s, and % of the ceilings.

    python -m bench.kernels [--only REGEX] [--json FILE] [--list]

Times bench/kernel_cases/*.py on one GPU. A sample is a replay of a CUDA graph that holds up to 20
calls, each after a kernel that reads 128 MB, so that every operand is cold: nothing is left of it
in the L2 cache. A graph of these reads alone is timed as well and subtracted. In an engine
activations are often warm, so small kernels are a little faster there.
"""

import argparse
import importlib
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.kernel_cases.case import Case

FOLDER = Path(__file__).parent / "kernel_cases"
FLUSH_BYTES = 128 << 20
MOST_CALLS = 20
GRAPH_SECONDS = 1e-3
"""A graph repeats a call until it lasts about this long: a timer's grain and a launch vanish."""

CASE_SECONDS = 1.0
LEAST_SAMPLES = 5
"""A long case gets fewer samples, down to these, so as to end in about CASE_SECONDS."""

HEADER = f"{'kernel':<64} {'us':>9} {'TB/s':>6} {'%':>4} {'TFLOP/s':>8} {'%':>4}"


@dataclass(frozen=True)
class Ceilings:
    """Of the chip: TB/s of a copy, TFLOP/s of dense products."""

    copy_rate: float
    bf16: float
    fp8: float

    def flops(self, name: str) -> float:
        """What the case of this name is held against, TFLOP/s."""
        return self.fp8 if "fp8" in name else self.bf16


def collect(folder: Path = FOLDER) -> Iterator[Case]:
    """The cases of every module in the folder, in the order of their names."""
    for path in sorted(folder.glob("*.py")):
        if path.stem != "case":
            yield from importlib.import_module(f"bench.kernel_cases.{path.stem}").cases()


def row(case: Case, seconds: float, ceilings: Ceilings) -> str:
    """One line of the table."""
    rate, speed = case.bytes / seconds / 1e12, case.flops / seconds / 1e12
    cells = [f"{case.name:<64} {seconds * 1e6:9.1f}"]
    cells += [
        f"{rate:6.2f} {rate / ceilings.copy_rate:4.0%}" if case.bytes else f"{'-':>6} {'-':>4}"
    ]
    share = speed / ceilings.flops(case.name)
    cells += [f"{speed:8.1f} {share:4.0%}" if case.flops else f"{'-':>8} {'-':>4}"]
    return " ".join(cells)


class Timer:
    """Times calls on the current GPU, operands cold."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._cold = torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")
        self._sink = torch.zeros((), device="cuda")
        self._flush_seconds: dict[int, float] = {}

    def measure(self, run: Callable[[], object]) -> list[float]:
        """Seconds of one call, a number a sample."""
        once = min(self._replays(self._graph(run, 1), LEAST_SAMPLES))
        calls = max(1, min(MOST_CALLS, math.ceil(GRAPH_SECONDS / once)))
        affordable = int(CASE_SECONDS / (once * calls))
        samples = max(LEAST_SAMPLES, min(self._samples, affordable))

        def cold() -> None:
            self._flush()
            run()

        replays = self._replays(self._graph(cold, calls), samples)
        return [(seconds - self._flush_time(calls)) / calls for seconds in replays]

    def _flush_time(self, calls: int) -> float:
        """Seconds of a graph of so many flushes alone."""
        if calls not in self._flush_seconds:
            replays = self._replays(self._graph(self._flush, calls), self._samples)
            self._flush_seconds[calls] = statistics.median(replays)
        return self._flush_seconds[calls]

    def _flush(self) -> None:
        # Read, not written: lines to write back would be charged to the kernel that displaces them.
        torch.amax(self._cold, dim=0, out=self._sink)

    def _graph(self, run: Callable[[], object], calls: int) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # as capture demands: compiles, fills caches
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                run()
        return graph

    def _replays(self, graph: torch.cuda.CUDAGraph, samples: int) -> list[float]:
        graph.replay()
        seconds = []
        for _ in range(samples):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            seconds.append(begin.elapsed_time(end) / 1e3)
        return seconds


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every sample, in seconds")
    parser.add_argument("--list", action="store_true", help="the cases, without running any")
    parser.add_argument("--samples", type=int, default=25, help="of a case shorter than 40 ms")
    parser.add_argument("--copy-rate", type=float, default=4.2, help="TB/s")
    parser.add_argument("--peak", type=float, default=700, help="bf16, TFLOP/s")
    parser.add_argument("--fp8-peak", type=float, default=1300, help="TFLOP/s")
    return parser.parse_args(arguments)


def main() -> int:
    """Print the table; the exit status says whether every case ran."""
    options = parse()
    cases = [case for case in collect() if options.only.search(case.name)]
    if not cases:
        sys.exit(f"bench.kernels: no case matches {options.only.pattern!r}; --list shows them all")
    if options.list:
        for case in cases:
            print(f"{case.name:<64} {case.bytes / 1e6:12.3f} MB {case.flops / 1e9:12.3f} GFLOP")
        return 0
    if not torch.cuda.is_available():
        sys.exit("bench.kernels: needs an NVIDIA GPU; --list shows the cases without one")
    ceilings = Ceilings(options.copy_rate, options.peak, options.fp8_peak)
    results: list[dict[str, object]] = []
    try:
        failed = _run(cases, Timer(options.samples), ceilings, results)
    except KeyboardInterrupt:
        return 130
    finally:  # what was measured is kept, whatever ended the run
        if options.json is not None:
            _save(results, options.json)
    return 1 if failed else 0


def _run(
    cases: list[Case], timer: Timer, ceilings: Ceilings, results: list[dict[str, object]]
) -> int:
    """Time and print each; how many failed."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; medians, operands cold")
    print(HEADER)
    failed = 0
    while cases:
        case = cases.pop(0)  # its tensors go with it
        try:
            seconds = timer.measure(case.run)
        except Exception as error:
            # One that fails leaves the rest their turn, unless it took the device with it.
            message = (str(error).splitlines() or [""])[0]
            print(f"{case.name:<64} failed: {type(error).__name__}: {message}")
            failed += 1
            continue
        results.append(
            {"name": case.name, "seconds": seconds, "bytes": case.bytes, "flops": case.flops}
        )
        print(row(case, statistics.median(seconds), ceilings), flush=True)
        del case
        torch.cuda.empty_cache()
    return failed


def _save(results: list[dict[str, object]], path: Path) -> None:
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    path.write_text(json.dumps({**machine, "cases": results}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

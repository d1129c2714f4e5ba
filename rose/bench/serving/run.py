"""A whole run: the server explored, each load measured and kept, the result written."""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rose.bench.recorder import Recorder
from rose.bench.results import RequestSample, ServeCell
from rose.bench.serving.arrivals import Extent, Load, OpenLoop
from rose.bench.serving.client import Target
from rose.bench.serving.health import saturation, worst
from rose.bench.serving.plan import Plan
from rose.bench.serving.preflight import Found, explore
from rose.bench.serving.processes import Interrupt, run_processes
from rose.bench.serving.share import Assignment, ShareResult
from rose.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Run:
    """Loads on one server, one after the other.

    Attributes:
        target: the server, explored.
        plan: what is asked.
        loads: to measure, in this order.
        extent: of each.
        workers: processes that make the load.
        gpus: behind the server; 0: unknown.
    """

    target: Target
    plan: Plan
    loads: Sequence[Load]
    extent: Extent
    workers: int = 1
    gpus: int = 0


def explore_server(target: Target, vocab_size: int | None) -> Found:
    """`preflight.explore`, from outside an event loop."""
    return asyncio.run(explore(target, vocab_size))


def measure(run: Run, recorder: Recorder, show: Callable[[ServeCell], None]) -> None:
    """Measure each load; every one is kept and shown as soon as it has ended.

    Raises:
        KeyboardInterrupt: the user asked for the end; what was measured is kept.
        BenchError: a process of the generator failed.
    """
    interrupt = Interrupt()
    with interrupt.catching():
        for number, load in enumerate(run.loads):
            cell = measure_load(run, number, load, interrupt)
            if cell.requests:
                recorder.add(cell)
                show(cell)
            if interrupt.asked:
                raise KeyboardInterrupt


def measure_load(run: Run, number: int, load: Load, interrupt: Interrupt) -> ServeCell:
    """Measure one load, the `number`-th of the run."""
    assignment = Assignment(
        target=run.target, plan=replace(run.plan, cell=number), load=load, extent=run.extent
    )
    with _progress(load, run.extent) as advance:
        results = run_processes(assignment, run.workers, interrupt=interrupt, advance=advance)
    return make_cell(run, load, results, interrupted=interrupt.asked)


@contextmanager
def _progress(load: Load, extent: Extent) -> Iterator[Callable[[int], None]]:
    """Counts requests, if it is known, about, how many there will be."""
    bounds = [] if extent.requests is None else [extent.requests]
    if isinstance(load, OpenLoop) and extent.duration is not None:
        bounds.append(math.ceil(load.rate * extent.duration))
    if not bounds:
        yield lambda more: None
        return
    total = min(bounds) + extent.warmup
    with Progress(load.name, total=total, unit="requests") as progress:
        yield progress.advance


def make_cell(
    run: Run, load: Load, results: Sequence[ShareResult], *, interrupted: bool
) -> ServeCell:
    """What the processes measured, put together."""
    pairs = sorted((pair for result in results for pair in result.samples), key=lambda p: p[0])
    samples = [sample for _, sample in pairs]
    generator = worst([result.generator for result in results])
    return ServeCell(
        model=run.target.model,
        load=load.name,
        duration=_duration(samples, run.extent, interrupted=interrupted),
        requests=samples,
        gpus=run.gpus,
        saturated=saturation(generator, samples),
        interrupted=interrupted,
        generator=generator,
    )


def _duration(samples: Sequence[RequestSample], extent: Extent, *, interrupted: bool) -> float:
    """Seconds measured: as asked, where that was the bound; else to the end of the last request."""
    measured = [sample for sample in samples if not sample.warmup]
    if not measured:
        return 0.0
    if extent.duration is not None and len(measured) != extent.requests and not interrupted:
        return extent.duration
    begin = min(sample.scheduled for sample in measured)
    return max(sample.finished for sample in measured) - begin

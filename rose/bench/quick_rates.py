"""This machine's rates, measured in a second before a run whose ceilings have no --roofline."""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from rose.bench.ceiling import Rates, rates_from
from rose.bench.compare import Figure, show
from rose.bench.results import RooflineCell, median

ROUNDS, REPEAT = 5, 10
"""Over all cases, and samples of a case in each. A small product takes so little time that a busy
machine may disturb all samples in a row; those of several rounds it seldom does."""

WIDE = 1.5
"""Where the median takes this many times as long as the best sample, the machine was not idle."""


def measure_rates(device: str, log: Callable[[str], None]) -> Rates:
    """Rates by the best sample of each case: a ceiling is what the machine can, not what it did.

    Args:
        device: "cpu" or "cuda".
        log: takes a line on each case that cannot run here, and on samples that scatter.

    Raises:
        BenchError: too few cases run here.
    """
    cells, failed = _sample(device)
    for text in failed:
        log(text)
    rates = rates_from(cells, "this machine, measured before the run", chosen=min)
    scattered = list(_scattered(cells))
    if scattered:
        log(
            f"warning: this machine is busy, and its ceiling rough: {'; '.join(scattered)}. "
            "Measure when it is idle, or give --roofline FILE"
        )
    return rates


def _sample(device: str) -> tuple[list[RooflineCell], list[str]]:
    """Cells with the samples of all rounds, and a line on each case that cannot run here."""
    from rose.bench.roofline import measure

    cells: dict[str, RooflineCell] = {}
    failed: dict[str, None] = {}
    for _ in range(ROUNDS):
        for found in measure(device, REPEAT, quick=True):
            if isinstance(found, str):
                failed[found] = None
            else:
                cell = cells.setdefault(found.name, replace(found, samples=[]))
                cell.samples.extend(found.samples)
    return list(cells.values()), list(failed)


def _scattered(cells: Iterable[RooflineCell]) -> Iterator[str]:
    """Name and rates of each case whose median is far from its best."""
    for cell in cells:
        middle, best = median(cell.samples), min(cell.samples)
        if middle > WIDE * best:
            rates = [show(Figure(cell.amount / s, f"{cell.unit}/s")) for s in (middle, best)]
            yield f"{cell.name} {rates[0]} in the median, {rates[1]} at best"

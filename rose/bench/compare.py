"""Two result files side by side: cells that are in both, with ratios, and what else differs."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from rose.bench.results import (
    OTHER_GPU,
    Cell,
    EngineCell,
    Machine,
    Result,
    RooflineCell,
    ServeCell,
    median,
)
from rose.bench.serving.counted import served, tokens


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a cell.

    Attributes:
        unit: "s" is better when lower, everything else when higher.
    """

    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Row:
    """A figure that both files have; `faster` is how many times better the second one is."""

    name: str
    first: Figure
    second: Figure

    @property
    def faster(self) -> float:
        """Above 1: the second is better; 0 or infinite where one of them is 0."""
        if self.first.value == self.second.value:
            return 1.0
        better, worse = self.second.value, self.first.value
        if self.first.unit == "s":
            better, worse = worse, better
        return better / worse if worse else float("inf")


@dataclass(slots=True)
class Comparison:
    """What two files have in common.

    Attributes:
        machines_differ: the loudest warning: then no ratio says anything of the software.
        warnings: other differences and reservations, a line each.
        rows: figures in both, in the first file's order.
        only_first, only_second: names of figures that have no partner.
    """

    machines_differ: list[str]
    warnings: list[str]
    rows: list[Row] = field(default_factory=list)
    only_first: list[str] = field(default_factory=list)
    only_second: list[str] = field(default_factory=list)


def compare(first: Result, second: Result) -> Comparison:
    """Match the cells of two files by what they measured, the quantization and engine apart."""
    found = Comparison(
        machines_differ=_machine_differences(first.machine, second.machine),
        warnings=list(_warnings(first, second)),
    )
    ours, theirs = _figures(first), _figures(second)
    for name, figure in ours.items():
        if name in theirs:
            found.rows.append(Row(name, figure, theirs[name]))
        else:
            found.only_first.append(name)
    found.only_second.extend(name for name in theirs if name not in ours)
    return found


def _figures(result: Result) -> dict[str, Figure]:
    """All figures by name; of cells with one name, the last."""
    return {name: figure for cell in result.cells for name, figure in _of_cell(cell)}


def _of_cell(cell: Cell) -> Iterator[tuple[str, Figure]]:
    if isinstance(cell, EngineCell):
        kind = "input" if cell.phase == "prefill" else "context"
        name = (
            f"{cell.phase} {cell.model} {cell.sharding.name}, batch {cell.batch}, "
            f"{kind} {cell.tokens}"
        )
        yield name, Figure(median(cell.samples), "s")
    elif isinstance(cell, RooflineCell):
        yield cell.name, sustained(cell)
    else:
        yield from _of_serve(cell)


def sustained(cell: RooflineCell) -> Figure:
    """The median rate, or the seconds of one call."""
    seconds = median(cell.samples) / cell.amount
    return Figure(seconds, "s") if cell.unit == "call" else Figure(1 / seconds, f"{cell.unit}/s")


def _of_serve(cell: ServeCell) -> Iterator[tuple[str, Figure]]:
    name = f"serve {cell.model}, {cell.load}"
    good = served(cell.requests)
    if good:
        first = median([r.ttft for r in good])
        yield f"{name}: time to first token", Figure(first, "s")
    gaps = [gap for r in good if (gap := r.tpot) is not None]
    if gaps:
        yield f"{name}: time per output token", Figure(median(gaps), "s")
    if cell.duration > 0:
        _, came = tokens(cell)
        yield f"{name}: output", Figure(came / cell.duration, "tokens/s")


def _machine_differences(first: Machine, second: Machine) -> list[str]:
    """Of all but the GPUs' UUIDs: another GPU of the same kind is a lesser warning."""
    ours, theirs = (msgspec.structs.replace(m, gpu_uuids=[]) for m in (first, second))
    return _differences("machine", ours, theirs)


def _warnings(first: Result, second: Result) -> Iterator[str]:
    if first.machine.has_other_gpus(second.machine):
        uuids = [", ".join(result.machine.gpu_uuids) for result in (first, second)]
        yield f"{OTHER_GPU}: {' / '.join(uuids)}"
    yield from _differences("software", first.software, second.software)
    names = sorted({*first.flags, *second.flags})
    for name in names:
        ours, theirs = first.flags.get(name, "unset"), second.flags.get(name, "unset")
        if ours != theirs:
            yield f"flag {name}: {ours} / {theirs}"
    kinds = [_quantizations(result) for result in (first, second)]
    if kinds[0] != kinds[1]:
        yield f"quantization: {kinds[0]} / {kinds[1]}"
    for which, result in (("first", first), ("second", second)):
        if result.partial:
            yield f"the {which} file is partial: it was interrupted"
        saturated = [c.load for c in result.cells if isinstance(c, ServeCell) and c.saturated]
        if saturated:
            yield f"the {which} file's load generator was too slow at {', '.join(saturated)}"
        yield from (f"the {which} file: {note}" for note in result.notes)


def _quantizations(result: Result) -> str:
    found = {cell.quantization for cell in result.cells if isinstance(cell, EngineCell)}
    return ",".join(sorted(found)) or "none"


def _differences(what: str, first: msgspec.Struct, second: msgspec.Struct) -> list[str]:
    """A line for each field that differs, and for each package of a mapping."""
    lines = []
    for name in first.__struct_fields__:
        ours, theirs = getattr(first, name), getattr(second, name)
        if isinstance(ours, dict):
            for key in sorted({*ours, *theirs}):
                if ours.get(key) != theirs.get(key):
                    lines.append(f"{what} {key}: {ours.get(key)} / {theirs.get(key)}")
        elif ours != theirs:
            lines.append(f"{what} {name}: {ours} / {theirs}")
    return lines


def table(found: Comparison) -> list[str]:
    """Lines of a Markdown table; a difference of machines stands in its head."""
    ratio = "second is" + (" (ON ANOTHER MACHINE)" if found.machines_differ else "")
    lines = [["cell", "first", "second", ratio]]
    for row in found.rows:
        lines.append([row.name, show(row.first), show(row.second), _ratio(row.faster)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for name, *numbers in lines:
        cells = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
        texts.append(f"| {' | '.join([name.ljust(widths[0]), *cells])} |")
    rule = " | ".join("-" * (width - 1) + ":" for width in widths[1:])
    texts.insert(1, f"| {'-' * widths[0]} | {rule} |")
    return texts


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def show(figure: Figure) -> str:
    """A figure with its unit, in a scale for people."""
    value = figure.value
    if figure.unit == "s":
        for scale, unit in ((1.0, "s"), (1e-3, "ms")):
            if value >= scale:
                return f"{value / scale:.4g} {unit}"
        return f"{value * 1e6:.4g} us"
    for scale, prefix in _PREFIXES:
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{figure.unit}"
    return f"{value:.4g} {figure.unit}"


def _ratio(faster: float) -> str:
    """At least 1, with the word that says which way; "equal" where no digit shown would differ."""
    if faster == 0:
        return "slower without measure"
    ratio, word = (faster, "faster") if faster > 1 else (1 / faster, "slower")
    text = f"{ratio:.3f}"
    return "equal" if text == "1.000" else f"{text}x {word}"

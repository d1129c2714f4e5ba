"""The tables of a report: what was measured, beside what others reached."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rose.bench.ceiling import Rates
from rose.bench.results import Result, RooflineCell, ServeCell, Sharding, median
from rose.bench.rooflines import ceiling
from rose.bench.series import Point, SubjectKind, by_gpus, curves, fastest
from rose.bench.serving.stats import Spread, summarize
from rose.bench.tables import Row, RowKind, Table, seconds, significant

NONE = "-"


def sharding_name(sharding: Sharding) -> str:
    """As the published table writes it: TP1, EP2 TP2."""
    parts = [("DP", sharding.dp), ("EP", sharding.ep), ("TP", sharding.tp)]
    return " ".join(f"{name}{n}" for name, n in parts if n > 1) or "TP1"


def device_count(devices: int) -> str:
    """1 device, 2 devices: GPUs, or the CPU."""
    return f"{devices} device{'s' * (devices > 1)}"


@dataclass(frozen=True)
class _Grid:
    """Points of one phase and model as rows (subject and sharding) by columns (a size).

    Attributes:
        column: the size of a point that makes its column.
    """

    points: Sequence[Point]
    column: Callable[[Point], int]

    @property
    def columns(self) -> list[int]:
        """The sizes that ours were measured at, or anyone's where none of ours were."""
        ours = [point for point in self.points if point.subject.kind == "ours"]
        return sorted({self.column(point) for point in ours or self.points})

    def table(
        self,
        caption: str,
        unit: str,
        value: Callable[[Point], str],
        ratios: Sequence[tuple[str, Callable[[Point], str]]] = (),
    ) -> Table:
        """One row a subject and sharding, in groups of as many GPUs, ours with `ratios` below.

        Args:
            caption: of the table.
            unit: of the columns, after the size.
            value: the cell of a point.
            ratios: names and cells of further rows of each of ours.
        """
        rows = []
        groups = by_gpus(self.points)
        for gpus, group in groups.items():
            ours = [row for row in curves(group).values() if row[0].subject.kind == "ours"]
            if not ours:
                continue  # nothing of ours to stand beside
            rows.append(Row([device_count(gpus)], "group"))
            for points in curves(group).values():
                kind: RowKind = "ours" if points in ours else "plain"
                name = f"{points[0].subject.name}, {sharding_name(points[0].sharding)}"
                rows.append(Row(self._cells(name, points, value), kind))
            for points in ours:
                whose = f" ({sharding_name(points[0].sharding)}, {points[0].subject.name})"
                for name, ratio in ratios:
                    cells = self._cells(name + whose * (len(ours) > 1), points, ratio)
                    if set(cells[1:]) != {NONE}:
                        rows.append(Row(cells, "ratio"))
        return Table(caption, ["", *(f"{column:,} {unit}" for column in self.columns)], rows)

    def _cells(
        self, name: str, points: Sequence[Point], value: Callable[[Point], str]
    ) -> list[str]:
        found = {self.column(point): value(point) for point in points}
        return [name, *(found.get(column, NONE) for column in self.columns)]

    def ratios(self, rates: Rates | None) -> list[tuple[str, Callable[[Point], str]]]:
        """How many times as fast as others a point of ours is, and its share of the ceiling."""

        def over(kind: SubjectKind) -> Callable[[Point], str]:
            def cell(point: Point) -> str:
                other = fastest(self.points, kind, point)
                return f"{other.seconds / point.seconds:.2f}x" if other else NONE

            return cell

        def share(point: Point) -> str:
            least = ceiling(point, rates)
            return f"{significant(100 * least / point.seconds, 2)}%" if least else NONE

        return [
            ("speed over published", over("published")),
            ("speed over fastest peer", over("peer")),
            ("share of ceiling", share),
        ]


def prefill_tables(points: Sequence[Point], usd: float, rates: Rates | None) -> list[Table]:
    """Seconds, and $ per million input tokens, of one model and batch; by input length."""
    grid = _Grid(points, lambda point: point.tokens)
    what = f"Prefill of {points[0].model}, batch {points[0].batch}"
    return [
        grid.table(
            f"{what}: seconds to the first token",
            "tokens",
            lambda point: significant(point.seconds),
            grid.ratios(rates),
        ),
        grid.table(
            f"{what}: $ per million input tokens at ${usd:g} a GPU-hour",
            "tokens",
            lambda point: f"{point.usd_per_million(usd):.3f}",
        ),
    ]


def decode_tables(points: Sequence[Point], usd: float, rates: Rates | None) -> list[Table]:
    """Tokens/s/user, and $ per million output tokens, of one model and context; by batch."""
    grid = _Grid(points, lambda point: point.batch)
    what = f"Decode of {points[0].model}, context {points[0].tokens:,}"
    return [
        grid.table(
            f"{what}: tokens/s/user, by batch",
            "at once",
            lambda point: significant(point.tokens_per_s_per_user),
            grid.ratios(rates),
        ),
        grid.table(
            f"{what}: $ per million output tokens at ${usd:g} a GPU-hour, by batch",
            "at once",
            lambda point: significant(point.usd_per_million(usd)),
        ),
    ]


def cells_table(points: Sequence[Point]) -> Table:
    """Every measured cell with its samples' spread."""
    rows = []
    for point in points:
        if not point.samples:
            continue
        low, high = min(point.samples), max(point.samples)
        cells = [point.subject.name, point.model, sharding_name(point.sharding), point.phase]
        cells += [str(point.batch), f"{point.tokens:,}", str(len(point.samples))]
        rows.append(Row([*cells, *map(seconds, (point.seconds, low, high))]))
    header = ["engine", "model", "sharding", "phase", "batch", "tokens", "samples"]
    header += ["median", "least", "most"]
    return Table("Every measured cell", header, rows, text_columns=frozenset({0, 1, 2, 3}))


def roofline_table(result: Result) -> Table:
    """Rates and latencies of one machine."""
    rows = []
    for cell in result.cells:
        if isinstance(cell, RooflineCell) and cell.samples:
            # A sample is of many calls, for the sake of the clock.
            each = cell.amount if cell.unit == "call" else 1.0
            middle, least, most = (
                seconds(chosen(cell.samples) / each) for chosen in (median, min, max)
            )
            rate = _rate(cell, median(cell.samples))
            rows.append(Row([cell.name, rate, middle, f"{least} to {most}"]))
    caption = f"Measured rates of {result.machine.name}"
    return Table(caption, ["what", "rate", "median", "samples"], rows)


def _rate(cell: RooflineCell, taken: float) -> str:
    if cell.unit == "call":
        return NONE
    rate = cell.amount / taken
    factor, prefix = (1e12, "T") if rate >= 1e12 else (1e9, "G")
    return f"{significant(rate / factor)} {prefix}{cell.unit}/s"


def serve_table(cells: Sequence[ServeCell], usd: float) -> Table:
    """Latencies of each load; times in milliseconds."""
    rows, notes = [], []
    for cell in cells:
        found = summarize(cell, usd_per_gpu_hour=usd)
        price = found.usd_per_million_output
        numbers = [
            str(found.requests),
            str(sum(found.errors.values())),
            significant(found.request_rate),
            significant(found.output_rate),
            _percentiles(found.ttft),
            _percentiles(found.itl),
            significant(price) if price is not None else NONE,
        ]
        rows.append(Row([cell.load, *numbers]))
        if cell.saturated is not None:
            notes.append(f"{cell.load}: DO NOT TRUST, the generator was too slow: {cell.saturated}")
        if cell.interrupted:
            notes.append(f"{cell.load}: it was interrupted")
    header = ["load", "served", "errors", "requests/s", "output tokens/s"]
    header += ["TTFT p50 / p90 / p99, ms", "ITL p50 / p90 / p99, ms", "$/M output tokens"]
    return Table(f"Serving {cells[0].model}", header, rows, notes)


def _percentiles(spread: Spread) -> str:
    return " / ".join(significant(spread.percentiles[p] * 1e3) for p in (50, 90, 99))


def skipped_table(results: Sequence[Result]) -> Table:
    """What was asked for and could not be measured."""
    rows = []
    for result in results:
        for one in result.skipped:
            cells = [f"{one.phase} of {one.model}", sharding_name(one.sharding), str(one.batch)]
            rows.append(Row([*cells, f"{one.tokens:,}", one.reason]))
    header = ["what", "sharding", "batch", "tokens", "why"]
    return Table("Asked for, not measured", header, rows, text_columns=frozenset({0, 1, 4}))

"""A report of results: one HTML page that needs no network, and its charts as PNG and SVG."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rose.bench import published
from rose.bench.ceiling import Rates
from rose.bench.chart_style import Chart, inline_svg, save_files
from rose.bench.charts import decode_chart, roofline_chart, serve_charts, speedup_chart
from rose.bench.report_tables import (
    cells_table,
    decode_tables,
    prefill_tables,
    roofline_table,
    serve_table,
    skipped_table,
)
from rose.bench.results import (
    OTHER_GPU,
    BenchError,
    Phase,
    Result,
    RooflineCell,
    ServeCell,
    has_other_gpus,
)
from rose.bench.rooflines import rates_for
from rose.bench.series import Point, collect
from rose.bench.tables import Table

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Source:
    """A result and the name of its file."""

    name: str
    result: Result


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands below it; `folded`: the reader opens it."""

    title: str
    text: str = ""
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    folded: bool = False


def write_report(
    sources: Sequence[Source], folder: Path, *, usd_per_gpu_hour: float | None = None
) -> Path:
    """Write report.html and the charts into a folder, which is made if it is missing.

    Args:
        sources: the results, in the order in which they are listed.
        folder: to write into; files of an earlier report there are replaced.
        usd_per_gpu_hour: of all costs; None: the results' own.

    Returns:
        The page's path.

    Raises:
        BenchError: nothing was measured, or the results have several prices and none was given.
        OSError: the folder cannot be written.
    """
    results = [source.result for source in sources]
    if not any(result.cells for result in results):
        raise BenchError("the results hold no cell; nothing was measured")
    usd = _price(results) if usd_per_gpu_hour is None else usd_per_gpu_hour
    sections = _sections(sources, usd)
    folder.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for chart in section.charts:
            save_files(chart, folder)
    page = folder / "report.html"
    page.write_text(_page(sources, sections, usd), encoding="utf-8")
    return page


def warnings(results: Sequence[Result]) -> list[str]:
    """What makes numbers of these results not comparable, or not whole."""
    found = []
    machines = list(dict.fromkeys(result.machine.name for result in results))
    if len(machines) > 1:
        found.append(
            f"DIFFERENT MACHINES: these results are of {'; '.join(machines)}. "
            "A ratio between them compares machines, not engines."
        )
    if has_other_gpus(results):
        found.append(f"Some of these results are of {OTHER_GPU}.")
    theirs = published.prefill_source().gpu
    others = [name for name in machines if theirs.rpartition(" ")[2] not in name]
    if others and any(not point.samples for point in collect(results)):
        found.append(
            f"The published table and the peers ran on {theirs}; these results are of "
            f"{'; '.join(others)}. Ratios to them compare machines too."
        )
    commits = {r.software.commit for r in results if r.software.engine.startswith("rose ")}
    if len(commits) > 1:
        found.append("Results of Rose are of different commits.")
    if any(result.partial for result in results):
        found.append("A result is PARTIAL: its measurement was interrupted.")
    for result in results:
        for cell in result.cells:
            if isinstance(cell, ServeCell) and cell.saturated is not None:
                found.append(f"Load {cell.load}: the generator itself was too slow to be trusted.")
    return found


def _price(results: Sequence[Result]) -> float:
    prices = {result.usd_per_gpu_hour for result in results}
    if len(prices) > 1:
        listed = ", ".join(f"${price:g}" for price in sorted(prices))
        raise BenchError(f"the results were priced at {listed}; choose by --usd-per-gpu-hour")
    return prices.pop()


def _sections(sources: Sequence[Source], usd: float) -> list[Section]:
    results = [source.result for source in sources]
    points, rates = collect(results), rates_for(results)
    sections = [_prefill(points, usd, rates), _decode(points, usd, rates)]
    sections += [_rooflines(results, points, rates), _serving(results, usd)]
    sections.append(Section("Not measured", tables=[skipped_table(results)]))
    sections.append(Section("All cells", tables=[cells_table(points)], folded=True))
    return [section for section in map(_filled, sections) if section is not None]


def _filled(section: Section) -> Section | None:
    """Without tables that have no rows; None if nothing is left."""
    tables = [table for table in section.tables if table.rows]
    if not tables and not section.charts:
        return None
    return replace(section, tables=tables)


def _prefill(points: Sequence[Point], usd: float, rates: Rates | None) -> Section:
    charts, tables = [], []
    groups = _groups(points, "prefill", lambda point: (point.model, point.batch))
    for (_, batch), group in groups.items():
        tables += prefill_tables(group, usd, rates)
        chart = speedup_chart(group) if batch == 1 else None  # batch 1 is what was published
        if chart is not None:
            charts.append(chart)
    source = published.prefill_source()
    text = "Medians."
    if any(not point.samples for group in groups.values() for point in group):
        text += f" Published: {source.text} ({source.date})."
    if rates is not None:
        text += f" Ceiling: {rates.source}."
    return Section("Prefill", text, charts, tables)


def _decode(points: Sequence[Point], usd: float, rates: Rates | None) -> Section:
    charts, tables = [], []
    groups = _groups(points, "decode", lambda point: (point.model, point.tokens))
    for group in groups.values():
        charts.append(decode_chart(group, usd))
        tables += decode_tables(group, usd, rates)
    source = published.peer_source()
    text = "Medians. Numbers at points are sequences at once; lower right is better."
    if any(not point.samples for group in groups.values() for point in group):
        text += (
            f" Peers: {source.text} ({source.date}); charts show of each count of GPUs the peer "
            "with the most cells. The published decode charts came without numbers."
        )
    return Section("Decode", text, charts, tables)


def _rooflines(results: Sequence[Result], points: Sequence[Point], rates: Rates | None) -> Section:
    charts = []
    for model in dict.fromkeys(point.model for point in points):
        of_model = [point for point in points if point.model == model]
        chart = None if rates is None else roofline_chart(of_model, rates)
        if chart is not None:
            charts.append(chart)
    measured = [r for r in results if any(isinstance(c, RooflineCell) for c in r.cells)]
    text = (
        "Work that a phase cannot avoid over the bytes that it cannot avoid reading; hollow: "
        "decode (a point a batch), filled: prefill (a point a length)."
    )
    return Section("Rooflines", text, charts, [roofline_table(result) for result in measured])


def _serving(results: Sequence[Result], usd: float) -> Section:
    charts: list[Chart] = []
    tables: list[Table] = []
    for number, result in enumerate(results):
        cells = [cell for cell in result.cells if isinstance(cell, ServeCell) and cell.requests]
        for model in dict.fromkeys(cell.model for cell in cells):
            loads = [cell for cell in cells if cell.model == model]
            charts += serve_charts(loads, f"{len(charts)}-{number}")
            tables.append(serve_table(loads, usd))
    text = "Latencies count from when a request was due, so a stalled server cannot hide."
    return Section("Serving", text, charts, tables)


def _groups(
    points: Sequence[Point], phase: Phase, key: Callable[[Point], tuple[str, int]]
) -> dict[tuple[str, int], list[Point]]:
    """Points of a phase by model and size; those sizes alone that a result has."""
    groups: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        if point.phase == phase:
            groups.setdefault(key(point), []).append(point)
    measured = {k: v for k, v in groups.items() if any(point.samples for point in v)}
    return dict(sorted(measured.items()))


def _page(sources: Sequence[Source], sections: Iterable[Section], usd: float) -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    results = [source.result for source in sources]
    drawings = {
        chart.name: Markup(inline_svg(chart))  # made by matplotlib, which escapes
        for section in sections
        for chart in section.charts
    }
    return environment.get_template("report.html").render(
        sources=sources,
        sections=sections,
        drawings=drawings,
        warnings=warnings(results),
        notes=list(dict.fromkeys(note for result in results for note in result.notes)),
        usd=f"{usd:g}",
        style=Markup((TEMPLATES / "report.css").read_text("utf-8")),  # our own
    )

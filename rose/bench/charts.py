"""The charts of a report, drawn from points; chart_style says how they look."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rose.bench.ceiling import Rates
from rose.bench.chart_style import COLORS, MARKERS, Chart, add_legend, label_points, new_axes
from rose.bench.report_tables import sharding_name
from rose.bench.results import ServeCell
from rose.bench.rooflines import place
from rose.bench.series import Point, curves, fastest, leading_peers
from rose.bench.serving.stats import summarize

_STEPS = {1: 0, 2: 1, 4: 2, 8: 3}
"""Which colour a count of GPUs has; other counts share one."""

_TICKS = (
    (1.0, (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)),
    (2.5, (1.0, 2.0, 5.0)),
    (math.inf, (1.0,)),
)
"""Ticks in a decade of a logarithmic axis, by how many decades it has at most."""

_SLUG_LETTERS = 80

_OUR_LINES = ("-", "-.", ":")


def decode_chart(points: Sequence[Point], usd_per_gpu_hour: float) -> Chart:
    """Cost against speed of one model and context: a curve a sharding, a point a batch."""
    model, context = points[0].model, points[0].tokens
    title = f"Decode of {model} at context {context:,}"
    figure, axes = new_axes(
        title,
        "speed, tokens/s/user",
        f"cost at ${usd_per_gpu_hour:g} a GPU-hour, $ per million output tokens",
    )
    labels: list[list[tuple[float, float, str, str]]] = []
    for row, line in _lines(points):
        x = [point.tokens_per_s_per_user for point in row]
        y = [point.usd_per_million(usd_per_gpu_hour) for point in row]
        _draw(axes, row, line, x, y)
        if row[0].subject.kind == "ours":
            labels.append(
                [(x, y, str(p.batch), COLORS[_color(p)]) for x, y, p in zip(x, y, row, strict=True)]
            )
    axes.set_yscale("log")
    _log_ticks(axes.yaxis, "${:g}")
    axes.set_xlim(left=0)
    add_legend(figure, axes)
    ends = [label for of_curve in labels for label in dict.fromkeys((of_curve[0], of_curve[-1]))]
    label_points(axes, [*ends, *(label for of_curve in labels for label in of_curve[1:-1])])
    description = (
        f"{title}: dollars per million output tokens over tokens per second and user. "
        "Numbers at the points are sequences at once; lower right is better. "
        "The tables below hold the same figures."
    )
    return Chart(f"decode-{_slug(model)}-{context}", title, description, figure)


def speedup_chart(points: Sequence[Point]) -> Chart | None:
    """How many times as fast as the published table prefill is; None: nothing was published."""
    model = points[0].model
    title = f"Prefill of {model}: speed over the published table"
    figure, axes = new_axes(title, "input length, tokens", "times as fast as published")
    drawn = 0
    for row, line in _lines(points):
        known = [(point, fastest(points, "published", point)) for point in row]
        pairs = [(p.tokens, other.seconds / p.seconds) for p, other in known if other]
        if pairs:
            _draw(axes, row, line, [x for x, _ in pairs], [y for _, y in pairs])
            drawn += row[0].subject.kind == "ours"
    if not drawn:
        return None
    axes.axhline(1, color=COLORS[-1], linestyle=":", label="published, as many GPUs = 1")
    axes.set_xscale("log", base=2)
    _ticks_at(axes, sorted({point.tokens for row in _ours(points) for point in row}))
    axes.set_ylim(bottom=0)
    add_legend(figure, axes)
    description = (
        f"{title}, over input length, each curve by the row published for as many GPUs; above 1 is "
        "faster."
    )
    return Chart(f"speedup-{_slug(model)}", title, description, figure)


def roofline_chart(points: Sequence[Point], rates: Rates) -> Chart | None:
    """Our cells under the roofline of one GPU; None: the model's shape is unknown."""
    model = points[0].model
    title = f"Roofline of {model}, each device"
    figure, axes = new_axes(title, "FLOP per byte that must be read", "TFLOP/s of each device")
    drawn: list[float] = []
    named: set[str] = set()
    for phase in ("decode", "prefill"):
        for row in _ours(point for point in points if point.phase == phase):
            places = [found for point in row if (found := place(point))]
            x = [found.intensity for found in places]
            y = [found.flop_per_s / 1e12 for found in places]
            color = COLORS[_color(row[0])]
            # Quantizations look alike here; the axes tell them apart.
            name = f"{phase}, {sharding_name(row[0].sharding)}"
            axes.plot(
                x,
                y,
                linestyle="none",
                marker=MARKERS[_color(row[0])],
                color=color,
                markerfacecolor=color if phase == "prefill" else "none",
                label=None if name in named else name,
            )
            named.add(name)
            drawn += x
    if not drawn:
        return None
    ridge = rates.matmul / rates.read
    left, right = min(*drawn, ridge) / 2, max(*drawn, ridge) * 2
    roof = [min(rates.matmul, rates.read * x) / 1e12 for x in (left, ridge, right)]
    axes.plot([left, ridge, right], roof, color=COLORS[-1], label="memory and matrix ceiling")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        _log_ticks(axis, "{:g}")
    add_legend(figure, axes)
    description = (
        f"{title}: TFLOP/s reached over FLOP per byte, below the ceiling of "
        f"{rates.read / 1e12:.2f} TB/s and {rates.matmul / 1e12:.0f} TFLOP/s."
    )
    return Chart(f"roofline-{_slug(model)}", title, description, figure)


def serve_charts(cells: Sequence[ServeCell], name: str) -> list[Chart]:
    """Percentiles of TTFT and ITL by load."""
    summaries = [summarize(cell) for cell in cells]
    charts = []
    for short, long, spreads in (
        ("TTFT", "time to first token", [summary.ttft for summary in summaries]),
        ("ITL", "time between tokens", [summary.itl for summary in summaries]),
    ):
        title = f"Serving {cells[0].model}: {long}"
        figure, axes = new_axes(title, "load", f"{short}, ms")
        places = range(len(cells))
        for color, percentile in enumerate((50, 90, 99)):
            y = [spread.percentiles[percentile] * 1e3 for spread in spreads]
            marker, color_name = MARKERS[color], COLORS[color]
            axes.plot(places, y, marker=marker, color=color_name, label=f"p{percentile}")
        axes.set_xticks(list(places), [_load(cell) for cell in cells])
        if sum(len(cell.load) for cell in cells) > 60:
            axes.tick_params(axis="x", labelrotation=30)
            for label in axes.get_xticklabels():
                label.set(horizontalalignment="right", rotation_mode="anchor")
        axes.set_ylim(bottom=0)
        add_legend(figure, axes)
        description = f"{title}: 50th, 90th and 99th percentile at each load."
        charts.append(Chart(f"serve-{name}-{short.lower()}", title, description, figure))
    return charts


def _slug(name: str) -> str:
    """A model's name as part of the name of a file and of an id; no two have the same."""
    slug = re.sub(r"[^A-Za-z0-9.-]+", "-", name)[:_SLUG_LETTERS]
    if slug == name:
        return name
    return f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _load(cell: ServeCell) -> str:
    return cell.load + (" (!)" if cell.saturated is not None else "")


def _ours(points: Iterable[Point]) -> list[list[Point]]:
    return [row for row in curves(points).values() if row[0].subject.kind == "ours"]


def _lines(points: Sequence[Point]) -> list[tuple[list[Point], str]]:
    """The curves to draw, ours and the leading peers', each with the style of its line.

    The colour tells the GPUs; the style tells several curves of as many GPUs apart.
    """
    seen: Counter[int] = Counter()
    lines = []
    for row in _ours(points):
        gpus = row[0].sharding.gpus
        lines.append((row, _OUR_LINES[seen[gpus] % len(_OUR_LINES)]))
        seen[gpus] += 1
    return lines + [(row, "--") for row in leading_peers(points)]


def _draw(
    axes: Axes, row: Sequence[Point], line: str, x: Sequence[float], y: Sequence[float]
) -> None:
    """A curve; another's is thinner and has hollow markers."""
    first = row[0]
    ours = first.subject.kind == "ours"
    color = COLORS[_color(first)]
    axes.plot(
        x,
        y,
        color=color,
        linestyle=line,
        linewidth=1.8 if ours else 1.1,
        marker=MARKERS[_color(first)],
        markerfacecolor=color if ours else "none",
        label=f"{first.subject.name}, {sharding_name(first.sharding)}",
    )


def _color(point: Point) -> int:
    return _STEPS.get(point.sharding.gpus, 4)


def _log_ticks(axis: Axis, form: str) -> None:
    """Plain numbers; the fewer decades there are, the more ticks has each."""
    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    steps = next(steps for limit, steps in _TICKS if decades <= limit)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: form.format(value)))
    axis.set_minor_formatter(NullFormatter())


def _ticks_at(axes: Axes, tokens: Sequence[int]) -> None:
    axes.set_xticks(list(tokens), [f"{n:,}" for n in tokens])
    axes.xaxis.set_minor_formatter(NullFormatter())

"""One look for all charts: colours that read on white and on dark, labels that keep apart.

Text and axes are drawn in `INK` and the grid in `GRID`; a page that shows a chart inline puts its
own colours in their place, so a chart follows the reader's light or dark theme.
"""

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

INK = "#24292f"
GRID = "#c9d0d8"
COLORS = ("#2f7ed8", "#d9730d", "#2a9d5c", "#a25ddc", "#d6455d", "#8a8f98")
MARKERS = ("o", "s", "^", "D", "v", "P")

_STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a chart is the same everywhere
    "font.size": 9.0,
    "text.parse_math": False,  # a $ is money
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "legend.handlelength": 3.0,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "svg.hashsalt": "rose",  # the same chart has the same bytes
}
_TITLE_LETTERS = 60
"""In a line of a title."""

_LEGEND_HANDLE, _LEGEND_CHARACTER, _LEGEND_ROW = 0.7, 0.078, 0.18
"""Inches of a legend: a line with its gaps, a letter, a row."""

_LABEL_POINTS = 7.5
"""Size of a label at a point."""

_OFFSETS = ((0, 9), (0, -9), (8, -6), (8, 5), (-8, 5), (-8, -6), (0, 15), (0, -15))
"""Where a label may be from its point, in typographic points; the first that is free is taken."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn figure.

    Attributes:
        name: of its files, without an ending.
        title: in a few words.
        description: what it shows, for who cannot see it.
    """

    name: str
    title: str
    description: str
    figure: Figure


@contextmanager
def _drawing() -> Iterator[None]:
    """The style; letters that the font lacks are boxes, and no news to the user."""
    with style.context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
        yield


def new_axes(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    """An empty chart in the common style; `x` and `y` name the axes with their units."""
    with style.context(_STYLE):
        figure = Figure(figsize=(6.4, 4.9), dpi=150, layout="constrained")
        axes = figure.subplots()
        axes.set_title(textwrap.fill(title, _TITLE_LETTERS))
        axes.set_xlabel(x)
        axes.set_ylabel(y)
    return figure, axes


def add_legend(figure: Figure, axes: Axes) -> None:
    """Below the axes, where it covers nothing; many curves make the chart taller."""
    handles, labels = axes.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    longest = max(map(len, labels), default=0)
    columns = min(len(labels), 4, int(width / (_LEGEND_HANDLE + _LEGEND_CHARACTER * longest)))
    rows = math.ceil(len(labels) / max(1, columns))
    figure.set_size_inches(width, height + _LEGEND_ROW * max(0, rows - 4))
    with style.context(_STYLE):
        figure.legend(handles, labels, loc="outside lower left", ncols=max(1, columns))


def label_points(axes: Axes, labels: Sequence[tuple[float, float, str, str]]) -> None:
    """Write a text beside each point of data, where it touches no curve and no other text.

    A text without a free place is left out. Call it last: it fixes the layout.

    Args:
        axes: with all curves drawn.
        labels: x and y of a point in data, a text and its colour; those that matter most first.
    """
    figure = axes.figure
    assert isinstance(figure, Figure)
    with _drawing():
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    scale = figure.dpi / 72
    inside = axes.get_window_extent()
    taken = _curve_boxes(axes, 2.5 * scale)
    for x, y, text, color in labels:
        at_x, at_y = axes.transData.transform((x, y))
        width, height = 0.68 * _LABEL_POINTS * len(text) * scale, _LABEL_POINTS * scale
        for right, up in _OFFSETS:
            center_x = at_x + right * scale + (right > 0) * width / 2 - (right < 0) * width / 2
            center_y = at_y + up * scale
            box = Bbox.from_bounds(center_x - width / 2, center_y - height / 2, width, height)
            if not box.count_overlaps(taken) and _contains(inside, box):
                taken.append(box)
                left, low = axes.transData.inverted().transform((center_x, center_y))
                axes.text(
                    left, low, text, fontsize=_LABEL_POINTS, color=color, ha="center", va="center"
                )
                break


def _curve_boxes(axes: Axes, reach: float) -> list[Bbox]:
    """Small boxes all along the curves, in pixels."""
    boxes = []
    for line in axes.get_lines():
        points = line.get_transform().transform(line.get_xydata())
        for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[-1]], strict=True):
            steps = max(1, int(max(abs(x1 - x0), abs(y1 - y0)) / reach))
            for step in range(steps + 1):
                x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
                boxes.append(Bbox.from_extents(x - reach, y - reach, x + reach, y + reach))
    return boxes


def _contains(outer: Bbox, inner: Bbox) -> bool:
    return bool(
        outer.x0 <= inner.x0
        and outer.y0 <= inner.y0
        and inner.x1 <= outer.x1
        and inner.y1 <= outer.y1
    )


def save_files(chart: Chart, folder: Path) -> list[Path]:
    """Write NAME.png and NAME.svg, on white, and return their paths."""
    paths = [folder / f"{chart.name}.{ending}" for ending in ("png", "svg")]
    with _drawing():
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else {}
            chart.figure.savefig(path, facecolor="white", metadata=metadata)
    return paths


def inline_svg(chart: Chart) -> str:
    """The chart as an <svg> element whose ink is the page's, with a name for screen readers.

    Its ids begin with the chart's name, so that several charts share a page.
    """
    buffer = io.StringIO()
    with _drawing():
        chart.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{chart.name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{chart.name}-", svg)
    svg = svg.replace(INK, "currentColor").replace(GRID, "var(--grid)")
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)

"""Tables of text cells, for a terminal or a page."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

RowKind = Literal["plain", "group", "ours", "ratio"]


@dataclass(frozen=True, slots=True)
class Row:
    """Cells of one row; the first is its name.

    Attributes:
        cells: as many as the table has columns; a "group" has its name alone.
        kind: "group": a heading over the rows after it; "ours" and "ratio" are set off.
    """

    cells: Sequence[str]
    kind: RowKind = "plain"


@dataclass(frozen=True, slots=True)
class Table:
    """A caption, a header and rows.

    Attributes:
        header: the name of each column, with its unit.
        notes: sentences to stand below.
        text_columns: columns that hold words, not numbers; the first always does.
    """

    caption: str
    header: Sequence[str]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    text_columns: frozenset[int] = frozenset({0})


def plain_text(table: Table) -> str:
    """The table in columns for a terminal, without a final newline."""
    lines = [row.cells for row in table.rows if row.kind != "group"]
    widths = [max(map(len, column)) for column in zip(table.header, *lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if column in table.text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    body = [row.cells[0] if row.kind == "group" else line(row.cells) for row in table.rows]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([table.caption, line(table.header), rule, *body, *table.notes])


def significant(value: float, digits: int = 3) -> str:
    """A number to `digits` significant digits, never in powers of ten: 0.0370, 1.62, 23900."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = int(f"{rounded:e}".partition("e")[2])
    return f"{rounded:.{max(0, digits - 1 - exponent)}f}"


def seconds(value: float) -> str:
    """A time with the unit that suits it."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1 or unit == "us":
            return f"{significant(value * factor)} {unit}"
    raise AssertionError("the last unit always suits")

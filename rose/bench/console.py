"""What `rose bench prefill` and `decode` print: a row a cell, beside others' and the ceiling."""

from collections.abc import Sequence
from dataclasses import dataclass

from rose.bench.ceiling import Rates, decode_seconds, prefill_seconds
from rose.bench.compare import show, sustained
from rose.bench.published import find_peer, find_published
from rose.bench.results import EngineCell, RooflineCell, SkippedCell, median, usd_per_million_tokens
from rose.config import ModelConfig

Columns = tuple[tuple[str, int], ...]
"""Titles and widths in characters."""

PREFILL_COLUMNS: Columns = (
    ("sharding", 8),
    ("batch", 5),
    ("input", 6),
    ("seconds", 9),
    ("spread", 6),
    ("tokens/s", 9),
    ("$/M input", 9),
    ("published s", 11),
    ("faster", 7),
    ("peer s", 9),
    ("faster", 7),
    ("ceiling s", 9),
    ("reached", 7),
)

DECODE_COLUMNS: Columns = (
    ("sharding", 8),
    ("context", 7),
    ("batch", 5),
    ("ms/step", 8),
    ("p99 ms", 8),
    ("tok/s/user", 10),
    ("tok/s/GPU", 9),
    ("$/M output", 10),
    ("peer t/s/u", 10),
    ("faster", 7),
    ("ceiling", 8),
    ("reached", 7),
)

ROOFLINE_COLUMNS: Columns = (("what", 38), ("sustained", 14), ("spread", 6))

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Context:
    """What cells are held against.

    Attributes:
        model: the shape of what was measured.
        rates: of the GPU; None: unknown, so no ceilings.
        usd_per_gpu_hour: the price.
    """

    model: ModelConfig
    rates: Rates | None
    usd_per_gpu_hour: float


def line(columns: Columns, values: Sequence[str]) -> str:
    """A row of a table that reads well as text and as Markdown."""
    cells = (text.rjust(width) for text, (_, width) in zip(values, columns, strict=True))
    return f"| {' | '.join(cells)} |"


def header(columns: Columns) -> str:
    """Titles, and the rule below them."""
    rule = " | ".join("-" * (width - 1) + ":" for _, width in columns)
    return f"{line(columns, [title for title, _ in columns])}\n| {rule} |"


def row(cell: EngineCell, context: Context) -> str:
    """A measured cell."""
    if cell.phase == "prefill":
        return line(PREFILL_COLUMNS, _prefill_values(cell, context))
    return line(DECODE_COLUMNS, _decode_values(cell, context))


def roofline_row(cell: RooflineCell) -> str:
    """A rate, or the seconds of a call."""
    spread = (max(cell.samples) - min(cell.samples)) / median(cell.samples)
    values = [cell.name, show(sustained(cell)), f"{spread:.1%}"]
    return line(ROOFLINE_COLUMNS, values)


def skipped_row(cell: SkippedCell) -> str:
    """A cell that does not fit: its place in the table, and the reason."""
    if cell.phase == "prefill":
        sizes, columns = (cell.batch, cell.tokens), PREFILL_COLUMNS
    else:
        sizes, columns = (cell.tokens, cell.batch), DECODE_COLUMNS
    names = line(columns[:3], [cell.sharding.name, *map(str, sizes)])
    return f"{names} does not fit: {cell.reason}"


def _prefill_values(cell: EngineCell, context: Context) -> list[str]:
    seconds, gpus = median(cell.samples), cell.sharding.gpus
    tokens = cell.tokens * cell.batch
    published = find_published(cell.model, cell.sharding, cell.tokens) if cell.batch == 1 else None
    peer = find_peer("prefill", cell.model, cell.sharding, cell.batch, cell.tokens)
    ceiling = None
    if context.rates is not None:
        ceiling = prefill_seconds(context.model, cell.tokens, cell.batch, context.rates, gpus=gpus)
    return [
        cell.sharding.name,
        str(cell.batch),
        str(cell.tokens),
        _seconds(seconds),
        f"{(max(cell.samples) - min(cell.samples)) / seconds:.1%}",
        f"{tokens / seconds:.0f}",
        _usd(seconds, tokens, gpus, context),
        _seconds(published.seconds) if published else NOTHING,
        _faster(seconds, published.seconds if published else None),
        _seconds(peer.seconds) if peer else NOTHING,
        _faster(seconds, peer.seconds if peer else None),
        _seconds(ceiling) if ceiling else NOTHING,
        f"{ceiling / seconds:.0%}" if ceiling else NOTHING,
    ]


def _decode_values(cell: EngineCell, context: Context) -> list[str]:
    seconds, gpus = median(cell.samples), cell.sharding.gpus
    peer = find_peer("decode", cell.model, cell.sharding, cell.batch, cell.tokens)
    ceiling = None
    if context.rates is not None:
        ceiling = decode_seconds(
            context.model, cell.quantization, cell.tokens, cell.batch, context.rates, gpus=gpus
        )
    return [
        cell.sharding.name,
        str(cell.tokens),
        str(cell.batch),
        f"{seconds * 1e3:.3f}",
        f"{percentile(cell.samples, 0.99) * 1e3:.3f}",
        f"{1 / seconds:.1f}",
        f"{cell.batch / seconds / gpus:.0f}",
        _usd(seconds, cell.batch, gpus, context),
        f"{1 / peer.seconds:.1f}" if peer else NOTHING,
        _faster(seconds, peer.seconds if peer else None),
        f"{1 / ceiling:.1f}" if ceiling else NOTHING,
        f"{ceiling / seconds:.0%}" if ceiling else NOTHING,
    ]


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of them do not exceed."""
    ordered = sorted(samples)
    rank = -(-len(ordered) * share // 1)
    return ordered[max(0, int(rank) - 1)]


def _usd(seconds: float, tokens: int, gpus: int, context: Context) -> str:
    price = context.usd_per_gpu_hour
    cost = usd_per_million_tokens(seconds, tokens, gpus=gpus, usd_per_gpu_hour=price)
    return f"{cost:.3f}"


def _seconds(value: float) -> str:
    return f"{value:.4f}"


def _faster(ours: float, theirs: float | None) -> str:
    """How many times as fast as theirs; below 1 is slower."""
    return NOTHING if theirs is None else f"{theirs / ours:.2f}x"

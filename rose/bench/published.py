"""Numbers that others reached, shipped with Rose so that ours stand beside them.

Two tables, each with its source and date: the prefill table published in 2025, and what vLLM and
SGLang took when measured on the same chip. The figures are data; nothing is computed from memory.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rose.bench.results import Phase, Sharding


@dataclass(frozen=True, slots=True)
class PublishedCell:
    """A cell of the published prefill table: batch 1, FP8 experts, H200.

    Attributes:
        model: "gpt-oss-20b" or "gpt-oss-120b".
        sharding: how the model was spread.
        tokens: of the prompt.
        seconds: to the first token.
        usd_per_million: $ per million input tokens as printed, to three decimals.
    """

    model: str
    sharding: Sharding
    tokens: int
    seconds: float
    usd_per_million: float


@dataclass(frozen=True, slots=True)
class PeerCell:
    """What another engine took: dummy weights, MXFP4 experts, H200.

    Attributes:
        engine: name and version, as "vllm 0.26.0".
        tokens: prefill: of the prompt; decode: of context.
        seconds: prefill: to the first token; decode: a step.
    """

    engine: str
    model: str
    sharding: Sharding
    phase: Phase
    batch: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Source:
    """Where a table is from.

    Attributes:
        text: one line for a reader.
        date: ISO 8601, of publication or measurement.
        gpu: what it ran on.
    """

    text: str
    date: str
    gpu: str


def prefill_source() -> Source:
    """Of `prefill_rows`."""
    return _source("published_prefill.json")


def peer_source() -> Source:
    """Of `peer_rows`."""
    return _source("peers.json")


def prefill_usd_per_gpu_hour() -> float:
    """The price behind the published costs."""
    return float(_table("published_prefill.json")["usd_per_gpu_hour"])


@cache
def prefill_rows() -> list[PublishedCell]:
    """The published prefill table, 32 cells; not to be changed by the caller."""
    table = _table("published_prefill.json")
    cells = []
    for row in table["rows"]:
        sharding = Sharding(**row["sharding"])
        columns = (table["input_tokens"], row["seconds"], row["usd_per_million_input_tokens"])
        for tokens, seconds, usd in zip(*columns, strict=True):
            cells.append(PublishedCell(row["model"], sharding, tokens, seconds, usd))
    return cells


@cache
def peer_rows() -> list[PeerCell]:
    """All cells of all peers; not to be changed by the caller."""
    cells = []
    for row in _table("peers.json")["rows"]:
        sharding = Sharding(**row["sharding"])
        seconds = row.get("seconds") or [1 / rate for rate in row["tokens_per_s_per_user"]]
        for batch, tokens, taken in zip(row["batch"], row["tokens"], seconds, strict=True):
            cell = PeerCell(
                row["engine"], row["model"], sharding, row["phase"], batch, tokens, taken
            )
            cells.append(cell)
    return cells


def find_published(model: str, sharding: Sharding, tokens: int) -> PublishedCell | None:
    """The published cell of a prefill at batch 1, if there is one.

    Any sharding over as many GPUs matches: the table has one row for each count of GPUs.
    """
    for cell in prefill_rows():
        if (cell.model, cell.tokens) == (model, tokens) and cell.sharding.gpus == sharding.gpus:
            return cell
    return None


def find_peer(
    phase: Phase, model: str, sharding: Sharding, batch: int, tokens: int
) -> PeerCell | None:
    """The fastest peer at this cell, over as many GPUs; None: no peer was measured there."""
    wanted = (phase, model, sharding.gpus, batch, tokens)
    return min(
        (cell for cell in peer_rows() if _key(cell) == wanted),
        key=lambda cell: cell.seconds,
        default=None,
    )


def plain_model(name: str) -> str:
    """A model's name as the tables have it: without its owner, "openai/gpt-oss-20b" or not."""
    return name.rpartition("/")[2]


def _key(cell: PeerCell) -> tuple[str, str, int, int, int]:
    return cell.phase, cell.model, cell.sharding.gpus, cell.batch, cell.tokens


def _source(name: str) -> Source:
    table = _table(name)
    text = ". ".join(part for part in (table["source"], table.get("setup")) if part)
    return Source(text, table["date"], table["gpu"])


@cache
def _table(name: str) -> dict:  # type: ignore[type-arg]  # JSON of our own
    found: dict = json.loads((files("rose.bench") / "data" / name).read_text("utf-8"))  # type: ignore[type-arg]
    return found

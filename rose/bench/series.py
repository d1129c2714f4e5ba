"""Everything measured or published about an engine's phases, in one form to draw and tabulate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rose.bench import published
from rose.bench.results import (
    EngineCell,
    Phase,
    Result,
    Sharding,
    median,
    usd_per_million_tokens,
)

SubjectKind = Literal["ours", "published", "peer"]

PUBLISHED = "published 2025"
"""The name of the published table's rows."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose numbers.

    Attributes:
        name: as a reader sees it: engine, quantization, and what else tells two apart.
        kind: "ours" is Rose.
    """

    name: str
    kind: SubjectKind


@dataclass(frozen=True, slots=True)
class Point:
    """One cell of one subject.

    Attributes:
        model: without its owner.
        tokens: prefill: of each prompt; decode: of context.
        seconds: prefill: to the first token; decode: a step; the median if there are samples.
        samples: as measured; empty: only the number is known.
        quantization: None: not told.
        printed_usd: $ per million tokens as published, at the published price.
    """

    subject: Subject
    phase: Phase
    model: str
    sharding: Sharding
    batch: int
    tokens: int
    seconds: float
    samples: tuple[float, ...] = ()
    quantization: str | None = None
    printed_usd: float | None = None

    def usd_per_million(self, usd_per_gpu_hour: float) -> float:
        """$ per million input tokens (prefill) or output tokens (decode)."""
        if (
            self.printed_usd is not None
            and usd_per_gpu_hour == published.prefill_usd_per_gpu_hour()
        ):
            return self.printed_usd  # what was published, not our product of rounded seconds
        tokens = self.batch * (self.tokens if self.phase == "prefill" else 1)
        return usd_per_million_tokens(
            self.seconds, tokens, gpus=self.sharding.gpus, usd_per_gpu_hour=usd_per_gpu_hour
        )

    @property
    def tokens_per_s_per_user(self) -> float:
        """Of decode."""
        return 1 / self.seconds


def collect(results: Sequence[Result]) -> list[Point]:
    """The results' cells, then the published and the peers' of the same models.

    Of a cell that one subject has twice the later result counts.
    """
    found: dict[object, Point] = {}
    for result in results:
        kind: SubjectKind = "ours" if result.software.engine.startswith("rose ") else "peer"
        for cell in result.cells:
            if not isinstance(cell, EngineCell) or not cell.samples:
                continue
            point = Point(
                subject=Subject(_name(result, cell, results), kind),
                phase=cell.phase,
                model=published.plain_model(cell.model),
                sharding=cell.sharding,
                batch=cell.batch,
                tokens=cell.tokens,
                seconds=median(cell.samples),
                samples=tuple(cell.samples),
                quantization=cell.quantization,
            )
            found[_key(point)] = point
    points = sorted(found.values(), key=lambda point: point.subject.kind != "ours")
    models = {point.model for point in points}
    return points + [point for point in _shipped() if point.model in models]


def by_gpus(points: Iterable[Point]) -> dict[int, list[Point]]:
    """The points of each count of GPUs, ascending."""
    groups: dict[int, list[Point]] = {}
    for point in points:
        groups.setdefault(point.sharding.gpus, []).append(point)
    return dict(sorted(groups.items()))


def curves(points: Iterable[Point]) -> dict[tuple[Subject, Sharding], list[Point]]:
    """The points of each subject and sharding, by batch and tokens; in order of appearance."""
    groups: dict[tuple[Subject, Sharding], list[Point]] = {}
    for point in points:
        groups.setdefault((point.subject, point.sharding), []).append(point)
    return {key: sorted(row, key=_size) for key, row in groups.items()}


def leading_peers(points: Iterable[Point]) -> list[list[Point]]:
    """Of each count of GPUs the curve of the peer with the most cells; of several, the fastest."""
    chosen = []
    for group in by_gpus(point for point in points if point.subject.kind == "peer").values():
        rows = curves(group).values()
        chosen.append(min(rows, key=lambda row: (-len(row), sum(p.seconds for p in row))))
    return chosen


def fastest(points: Iterable[Point], kind: SubjectKind, like: Point) -> Point | None:
    """The fastest point of a kind over as many GPUs, at the same size; None: there is none."""
    return min(
        (
            point
            for point in points
            if point.subject.kind == kind
            and (point.phase, point.model) == (like.phase, like.model)
            and point.sharding.gpus == like.sharding.gpus
            and _size(point) == _size(like)
        ),
        key=lambda point: point.seconds,
        default=None,
    )


def _size(point: Point) -> tuple[int, int]:
    return point.batch, point.tokens


def _key(point: Point) -> object:
    return point.subject, point.phase, point.model, point.sharding, point.batch, point.tokens


def _name(result: Result, cell: EngineCell, results: Sequence[Result]) -> str:
    """Engine and quantization; commit and machine where the results differ in them."""
    measured = [other for other in results if any(isinstance(c, EngineCell) for c in other.cells)]
    same = [other for other in measured if other.software.engine == result.software.engine]
    parts = [result.software.engine, cell.quantization]
    if len({other.software.commit for other in same}) > 1:
        parts.append((result.software.commit or "no commit")[:8])
    if len({other.machine.name for other in measured}) > 1:
        parts.append(result.machine.name)
    return ", ".join(parts)


def _shipped() -> list[Point]:
    points = [
        Point(
            subject=Subject(PUBLISHED, "published"),
            phase="prefill",
            model=row.model,
            sharding=row.sharding,
            batch=1,
            tokens=row.tokens,
            seconds=row.seconds,
            printed_usd=row.usd_per_million,
        )
        for row in published.prefill_rows()
    ]
    for peer in published.peer_rows():
        point = Point(
            subject=Subject(peer.engine, "peer"),
            phase=peer.phase,
            model=peer.model,
            sharding=peer.sharding,
            batch=peer.batch,
            tokens=peer.tokens,
            seconds=peer.seconds,
        )
        points.append(point)
    return points

"""What an evaluation found: rows of counts, the targets, and how they print."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ARITHMETIC_AND_RECALL = (
    "addition",
    "subtraction",
    "multiplication",
    "compare",
    "sort",
    "recall",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One turn, judged.

    Attributes:
        row: the row of the table that counts it.
        task: of the example.
        well_formed: it is Harmony to the letter.
        right: it is well formed, and gives what was expected.
        reasoning_tokens: length of its analysis.
    """

    row: str
    task: str
    well_formed: bool
    right: bool
    reasoning_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Counts of some turns."""

    name: str
    turns: int
    right: int
    well_formed: int
    mean_reasoning: float

    @classmethod
    def of(cls, name: str, judged: Sequence[Judged]) -> "Row":
        """Count."""
        return cls(
            name=name,
            turns=len(judged),
            right=sum(j.right for j in judged),
            well_formed=sum(j.well_formed for j in judged),
            mean_reasoning=sum(j.reasoning_tokens for j in judged) / max(1, len(judged)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A share that the model is to reach.

    Attributes:
        good: turns that count.
        turns: of how many.
        at_least: below this share the model does not ship.
        aim: what it should reach.
    """

    name: str
    good: int
    turns: int
    at_least: float
    aim: float

    @property
    def share(self) -> float:
        """Of the turns; 0 if there are none."""
        return self.good / self.turns if self.turns else 0.0

    @property
    def met(self) -> bool:
        """Whether it is at least what it must be; nothing is asked where nothing was measured."""
        return not self.turns or self.share >= self.at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that one evaluation found.

    Attributes:
        model: what was measured, in words.
        rows: one a task; tools that training never saw apart.
        total: all of them.
        targets: what the model is to reach, and what it did.
        efforts: mean tokens of analysis over the same prompts, by reasoning effort.
    """

    model: str
    rows: tuple[Row, ...]
    total: Row
    targets: tuple[Target, ...]
    efforts: Mapping[str, float]

    @property
    def effort_ordered(self) -> bool:
        """Whether more effort is more thought."""
        lengths = list(self.efforts.values())
        return all(less < more for less, more in itertools.pairwise(lengths))

    @property
    def failures(self) -> list[str]:
        """What the model should do and does not."""
        found = [
            f"{t.name}: {t.share:.1%}, must be at least {t.at_least:.1%}"
            for t in self.targets
            if not t.met
        ]
        if not self.effort_ordered:
            found.append(f"reasoning does not grow with the effort: {dict(self.efforts)}")
        return found


def make_report(model: str, judged: Sequence[Judged], efforts: Sequence[Judged]) -> Report:
    """Count judged turns: those of the tasks, and those of the efforts."""
    rows, by_effort = _rows(judged), _rows(efforts)
    exact = [j for j in judged if j.task in ARITHMETIC_AND_RECALL]
    unseen = [j for j in judged if j.row.startswith("tool_call, unseen")]
    whole = [*judged, *efforts]
    return Report(
        model=model,
        rows=rows,
        total=Row.of("all", judged),
        targets=(
            _target("arithmetic and recall exact", [j.right for j in exact], 0.90, 0.97),
            _target("calls of unseen tools exact", [j.right for j in unseen], 0.80, 0.92),
            _target("well-formed Harmony", [j.well_formed for j in whole], 0.98, 0.998),
        ),
        efforts={row.name: row.mean_reasoning for row in by_effort},
    )


def _target(name: str, good: Sequence[bool], at_least: float, aim: float) -> Target:
    return Target(name=name, good=sum(good), turns=len(good), at_least=at_least, aim=aim)


def _rows(judged: Sequence[Judged]) -> tuple[Row, ...]:
    grouped: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        grouped[one.row].append(one)
    return tuple(Row.of(name, members) for name, members in grouped.items())


def print_report(report: Report) -> None:
    """Print the tables, as Markdown."""
    print(f"\n{report.model}\n")
    print(f"| {'task':28} | turns | right |      % | well-formed | analysis tokens |")
    print(f"| {'-' * 28} | ----: | ----: | -----: | ----------: | --------------: |")
    for row in (*report.rows, report.total):
        share = row.right / max(1, row.turns)
        print(
            f"| {row.name:28} | {row.turns:5} | {row.right:5} | {share:6.1%} "
            f"| {row.well_formed:11} | {row.mean_reasoning:15.1f} |"
        )
    print(f"\n| {'target':28} | found  | at least |   aim | of turns |          |")
    print(f"| {'-' * 28} | -----: | -------: | ----: | -------: | -------- |")
    for t in report.targets:
        verdict = "reached" if t.share >= t.aim else "enough" if t.met else "TOO LOW"
        verdict = verdict if t.turns else "unknown"
        print(
            f"| {t.name:28} | {t.share:6.1%} | {t.at_least:8.1%} | {t.aim:5.1%} "
            f"| {t.turns:8} | {verdict:8} |"
        )
    ordered = "in order" if report.effort_ordered else "NOT IN ORDER"
    lengths = ", ".join(f"{name} {length:.1f}" for name, length in report.efforts.items())
    print(f"\nMean tokens of analysis by reasoning effort: {lengths} ({ordered})")

"""The prompts that a nano is measured on: held out from its training, and the same every time."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from recipes.nano.corpus import TASKS, stream
from recipes.nano.example import Example
from rose.server.chat.format import ReasoningEffort

SEED = 20_000
EFFORTS: tuple[ReasoningEffort, ...] = get_args(ReasoningEffort)
DRAWS_PER_EXAMPLE = 20
"""How often to draw, for each example wanted, before a small task is found to hold no more."""


@dataclass(frozen=True, slots=True)
class Case:
    """An example and the row of the table that counts it."""

    row: str
    example: Example


def heldout_cases(per_row: int, tasks: Sequence[str] = TASKS, seed: int = SEED) -> list[Case]:
    """At most `per_row` different prompts of each task.

    Examples whose tools occur in no training example have rows of their own.
    """
    return [case for task in tasks for case in _cases_of(task, per_row, seed)]


def _cases_of(task: str, per_row: int, seed: int) -> list[Case]:
    rows: dict[str, list[Case]] = defaultdict(list)
    keys: set[str] = set()
    for example in itertools.islice(stream(seed, "heldout", task), DRAWS_PER_EXAMPLE * per_row):
        row = f"{task}, unseen tool" if example.unseen_tool else task
        if example.key not in keys and len(rows[row]) < per_row:
            keys.add(example.key)
            rows[row].append(Case(row, example))
        full = sum(len(found) == per_row for found in rows.values())
        if full == (2 if example.conversation.tools else 1):
            break
    return [case for row in sorted(rows) for case in rows[row]]


def effort_cases(cases: Sequence[Case], prompts: int) -> list[Case]:
    """Some of the prompts, spread over the tasks, each at every reasoning effort."""
    step = max(1, len(cases) // max(1, prompts))
    return [
        Case(effort, _at_effort(case.example, effort))
        for effort in EFFORTS
        for case in cases[::step][:prompts]
    ]


def _at_effort(example: Example, effort: ReasoningEffort) -> Example:
    conversation = replace(example.conversation, reasoning_effort=effort)
    return replace(example, conversation=conversation)

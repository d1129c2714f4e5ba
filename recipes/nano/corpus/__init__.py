"""The corpus: endless seeded examples of everything that rose-nano is to do."""

from bisect import bisect
from collections.abc import Callable, Iterator
from itertools import accumulate
from random import Random

from recipes.nano.corpus import arithmetic, chat, comparison, facts, recall
from recipes.nano.example import Example, Split, split_of

Maker = Callable[[Random], Example]

# Weight, in parts of the whole, of each generator.
MAKERS: tuple[tuple[float, Maker], ...] = (
    (7.5, arithmetic.addition),
    (6.5, arithmetic.subtraction),
    (5.0, arithmetic.multiplication),
    (1.0, arithmetic.division),
    (2.5, comparison.compare),
    (2.0, comparison.extreme),
    (2.5, comparison.sort),
    (1.0, comparison.count),
    (5.0, recall.told),
    (1.5, recall.untold),
    (5.0, recall.passage),
    (0.7, recall.acknowledged),
    (7.5, facts.fact),
    (0.5, facts.capital_follow_up),
    (0.8, chat.talk),
    (0.8, chat.identity),
    (0.2, chat.abilities),
    (0.4, chat.date),
    (1.0, chat.repeat),
    (0.7, chat.instructed),
    (0.3, chat.yes_or_no),
    (4.5, chat.unknown),
)


def stream(seed: int, split: Split, task: str | None = None) -> Iterator[Example]:
    """Examples without end; the same for the same arguments.

    Args:
        seed: of the random source; workers take different ones.
        split: train or heldout.
        task: only examples of this task; None: all, by their weights.

    Raises:
        ValueError: no generator makes this task.
    """
    if task is not None and task not in TASKS:
        raise ValueError(f"no task {task!r}; there are {', '.join(TASKS)}")
    rng = Random(seed)
    makers = [(w, m) for w, m in MAKERS if task is None or task in made_by(m)]
    ends = list(accumulate(w for w, _ in makers))
    while True:
        example = makers[bisect(ends, rng.random() * ends[-1], hi=len(ends) - 1)][1](rng)
        if (task is None or example.task == task) and split_of(example) == split:
            yield example


def made_by(maker: Maker) -> frozenset[str]:
    """The tasks that a generator makes, found by asking it."""
    rng = Random(0)
    return frozenset(maker(rng).task for _ in range(60))


TASKS = tuple(sorted({task for _, maker in MAKERS for task in made_by(maker)}))

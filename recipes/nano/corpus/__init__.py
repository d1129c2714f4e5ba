"""The corpus: endless seeded examples of everything that rose-nano is to do."""

from bisect import bisect
from collections.abc import Callable, Iterator
from itertools import accumulate
from random import Random

from recipes.nano.corpus import (
    arithmetic,
    chat,
    comparison,
    facts,
    json_answers,
    loops,
    messages,
    open_prompts,
    precedence,
    recall,
    results,
    tools,
    who,
)
from recipes.nano.example import Example, Split, split_of

Maker = Callable[[Random], Example]

# Of each generator: the task of its examples and its weight, in parts of 100.
MAKERS: tuple[tuple[str, float, Maker], ...] = (
    ("addition", 7.5, arithmetic.addition),
    ("subtraction", 6.5, arithmetic.subtraction),
    ("addition", 0.8, precedence.precedence),
    ("addition", 0.6, precedence.story_more),
    ("subtraction", 1.0, precedence.story_less),
    ("addition", 0.7, precedence.large_sum),
    ("subtraction", 1.0, precedence.large_difference),
    ("multiplication", 5.0, arithmetic.multiplication),
    ("division", 1.0, arithmetic.division),
    ("compare", 2.5, comparison.compare),
    ("compare", 1.5, comparison.decimals),
    ("compare", 2.0, comparison.extreme),
    ("sort", 2.5, comparison.sort),
    ("count", 1.0, comparison.count),
    ("recall", 5.0, recall.told),
    ("recall", 1.5, recall.untold),
    ("recall", 4.0, recall.passage),
    ("recall", 4.5, who.who),
    ("chat", 0.7, recall.acknowledged),
    ("facts", 7.5, facts.fact),
    ("facts", 0.5, facts.capital_follow_up),
    ("chat", 2.0, chat.talk),
    ("chat", 1.2, chat.identity),
    ("chat", 0.8, chat.abilities),
    ("chat", 0.4, chat.date),
    ("chat", 2.5, chat.repeat),
    ("chat", 0.7, chat.instructed),
    ("chat", 0.3, chat.yes_or_no),
    ("unknown", 5.0, open_prompts.unknown),
    ("unknown", 1.2, tools.no_tools_at_all),
    ("tool_call", 22.0, tools.call),
    ("tool_call", 4.0, messages.free_text),
    ("tool_call", 1.0, tools.completed),
    ("tool_call", 2.0, results.next_request),
    ("tool_result", 8.0, results.use_result),
    ("tool_loop", 5.0, loops.loop),
    ("json", 5.0, json_answers.json_answer),
    ("no_tool", 2.0, tools.unfit),
    ("no_tool", 4.0, tools.plain),
    ("ask_argument", 2.0, tools.missing),
)
TASKS = tuple(dict.fromkeys(task for task, _, _ in MAKERS))
TASK_WEIGHTS = {task: sum(w for t, w, _ in MAKERS if t == task) for task in TASKS}


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
    chosen = [(w, make) for t, w, make in MAKERS if task in (None, t)]
    ends = list(accumulate(w for w, _ in chosen))
    while True:
        make = chosen[bisect(ends, rng.random() * ends[-1], hi=len(ends) - 1)][1]
        example = make(rng)
        if split_of(example) == split:
            yield example

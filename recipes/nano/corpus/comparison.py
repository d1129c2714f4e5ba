"""Comparing, ordering and counting."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

from random import Random

from recipes.nano.corpus.build import (
    Thinking,
    answered,
    ask,
    chance,
    frame,
    join_and,
    pick,
    some,
    user,
    whole,
)
from recipes.nano.example import Example
from recipes.nano.words import ANIMALS, COLOURS, FIRST_NAMES, FOODS, OBJECTS

_LARGER = (
    "Which is larger, {a} or {b}?", "Which number is bigger, {a} or {b}?", "What is more, {a} or {b}?",
    "Which is greater: {a} or {b}?", "What is bigger, {a} or {b}?", "{a} vs {b}, which is larger?", "Pick the larger of {a} and {b}.", "{a} or {b}, which is higher?",
)  # fmt: skip
_SMALLER = (
    "Which is smaller, {a} or {b}?", "Which number is less, {a} or {b}?", "What is lower, {a} or {b}?",
    "Which is smaller: {a} or {b}?", "Pick the smaller of {a} and {b}.", "{a} or {b}, which is less?",
)  # fmt: skip
_IS = (
    ("Is {a} larger than {b}?", 1), ("Is {a} greater than {b}?", 1), ("Is {a} more than {b}?", 1),
    ("Is {a} bigger than {b}?", 1), ("Is {a} > {b}?", 1), ("Is {a} less than {b}?", -1),
    ("Is {a} smaller than {b}?", -1), ("Is {a} below {b}?", -1), ("Is {a} < {b}?", -1),
)  # fmt: skip
_MAX = (
    "What is the largest of {}?", "Which is the biggest number: {}?", "Find the maximum of {}.",
    "Give me the highest of {}.", "max({})", "What is the largest number in the list {}?",
)  # fmt: skip
_MIN = (
    "What is the smallest of {}?", "Which is the lowest number: {}?", "Find the minimum of {}.",
    "Give me the smallest of {}.", "min({})", "What is the smallest number in the list {}?",
)  # fmt: skip
_UP = (
    "Sort {}.", "Sort these numbers: {}", "Put {} in ascending order.", "Order {} from small to large.",
    "Sort {} from smallest to largest.", "Arrange {} in increasing order.", "sort [{}]",
    "Please sort the list {} ascending.", "Order these numbers from lowest to highest: {}",
)  # fmt: skip
_DOWN = (
    "Sort {} in descending order.", "Put {} in descending order.", "Order {} from large to small.",
    "Sort {} from largest to smallest.", "Arrange {} in decreasing order.",
    "Sort these numbers from highest to lowest: {}", "Please sort the list {} descending.",
)  # fmt: skip
_COUNT = (
    "How many {k} are in this list: {l}?", "Count the {k}: {l}.", "I have {l}. How many {k} is that?",
    "How many {k} do I name here: {l}?", "{l}. How many {k} are these?",
)  # fmt: skip
_KINDS = {
    "animals": ANIMALS,
    "foods": FOODS,
    "colours": COLOURS,
    "things": OBJECTS,
    "names": FIRST_NAMES,
}


def _number(rng: Random) -> int:
    return whole(rng, 0, pick(rng, (9, 99, 99, 999, 999)))


def _pair(rng: Random) -> tuple[int, int]:
    a = _number(rng)
    b = _number(rng) if chance(rng, 0.6) else max(0, a + whole(rng, -20, 20))
    return (a, b) if a != b else (a, b + 1)


def _how(a: int, b: int) -> str:
    """Why one of two different numbers is larger."""
    large, small = max(a, b), min(a, b)
    if len(str(large)) != len(str(small)):
        return f"{large} has {len(str(large))} digits and {small} has {len(str(small))}"
    for name, x, y in zip(("first", "second", "third"), str(large), str(small), strict=False):
        if x != y:
            return f"At the {name} digit {x} is more than {y}"
    raise ValueError(f"{a} and {b} are equal")


def compare(rng: Random) -> Example:
    """Which of two is larger or smaller, or whether one is."""
    a, b = _pair(rng)
    low, high = min(a, b), max(a, b)
    thinking = Thinking(
        f"{high} > {low}.",
        f"Compare {a} and {b}. {_how(a, b)}. So {high} > {low}.",
        f"Check: {high}-{low}={high - low}, which is more than 0.",
    )
    if chance(rng, 0.4):
        form, sign = pick(rng, _IS)
        true = (a - b) * sign > 0
        relation = "larger" if a > b else "smaller"
        final = f"{'Yes' if true else 'No'}, {a} is {relation} than {b}."
        answer = "Yes" if true else "No"
    else:
        larger = chance(rng, 0.5)
        form = pick(rng, _LARGER if larger else _SMALLER)
        answer = str(high if larger else low)
        other = low if larger else high
        final = f"{answer} is {'larger' if larger else 'smaller'} than {other}."
    text = ask(rng, form.format(a=a, b=b))
    return answered(
        rng, "compare", [*frame(rng), user(text)], thinking, final, key=f"cmp {low} {high}",
        answer=answer,
    )  # fmt: skip


def decimals(rng: Random) -> Example:
    """Two numbers of which one at least has decimals: 9.11 and 9.8."""
    whole_part = whole(rng, 0, pick(rng, (1, 9, 20)))
    other = whole_part if chance(rng, 0.7) else whole(rng, 0, 20)
    a, b = f"{whole_part}.{_decimal_digits(rng)}", f"{other}.{_decimal_digits(rng)}"
    if chance(rng, 0.1):
        b = str(other)
    if float(a) == float(b):
        b = f"{whole_part + 1}.5"
    if chance(rng, 0.5):
        a, b = b, a
    high, low = (a, b) if float(a) > float(b) else (b, a)
    steps = _decimal_steps(a, b)
    thinking = Thinking(
        f"{steps} {high} > {low}.",
        f"Compare {a} and {b}. {steps} So {high} > {low}.",
        "More digits do not make a number larger.",
    )
    final, answer, text = _compared(rng, a, b, high, low)
    return answered(
        rng, "compare", [*frame(rng), user(ask(rng, text))], thinking, final,
        key=f"cmp {low} {high}", answer=answer,
    )  # fmt: skip


def _decimal_digits(rng: Random) -> str:
    x = rng.random()
    return (
        str(whole(rng, 1, 9))
        if x < 0.45
        else f"{whole(rng, 1, 99):02d}"
        if x < 0.9
        else f"{whole(rng, 1, 999):03d}"
    )


def _decimal_steps(a: str, b: str) -> str:
    """Whole parts first, then the decimals, filled up with zeros to the same width."""
    (i, _, x), (j, _, y) = a.partition("."), b.partition(".")
    if i != j:
        large, small = (i, j) if int(i) > int(j) else (j, i)
        return f"The whole parts: {i} and {j}. {large} is more than {small}."
    width = max(len(x), len(y))
    x, y = x.ljust(width, "0"), y.ljust(width, "0")
    large, small = max(x, y), min(x, y)
    return f"The whole parts are equal. The decimals: {i}.{x} and {j}.{y}. {large} is more than {small}."


def _compared(rng: Random, a: str, b: str, high: str, low: str) -> tuple[str, str, str]:
    """The final, the key answer and the question."""
    if chance(rng, 0.3):
        form, sign = pick(rng, _IS)
        true = (a == high) == (sign > 0)
        relation = "larger" if a == high else "smaller"
        answer = "Yes" if true else "No"
        return f"{answer}, {a} is {relation} than {b}.", answer, form.format(a=a, b=b)
    larger = chance(rng, 0.6)
    answer, other = (high, low) if larger else (low, high)
    form = pick(rng, _LARGER if larger else _SMALLER)
    final = f"{answer} is {'larger' if larger else 'smaller'} than {other}."
    return final, answer, form.format(a=a, b=b)


def _listed(rng: Random, numbers: list[int]) -> str:
    texts = [str(n) for n in numbers]
    x = rng.random()
    if x < 0.6:
        return ", ".join(texts)
    return join_and(texts) if x < 0.8 else " ".join(texts)


def extreme(rng: Random) -> Example:
    """The largest or smallest of some numbers."""
    numbers = [_number(rng) for _ in range(whole(rng, 3, 6))]
    numbers = list(dict.fromkeys(numbers))
    if len(numbers) < 2:
        numbers = [numbers[0], numbers[0] + 5]
    largest = chance(rng, 0.5)
    best = numbers[0]
    steps = [f"Start with {best}."]
    for n in numbers[1:]:
        better = n > best if largest else n < best
        best = n if better else best
        steps.append(f"{n}: {'new' if better else 'keep'} {best}.")
    word = "largest" if largest else "smallest"
    thinking = Thinking(
        f"The {word} is {best}.",
        f"Go through the list. {' '.join(steps)} The {word} is {best}.",
        f"No other number is {'larger' if largest else 'smaller'} than {best}.",
    )
    text = ask(rng, pick(rng, _MAX if largest else _MIN).format(_listed(rng, numbers)))
    final = pick(rng, (f"The {word} number is {best}.", f"The {word} is {best}.", f"It is {best}."))
    return answered(
        rng, "compare", [*frame(rng), user(text)], thinking, final,
        key=f"ext {sorted(numbers)}", answer=str(best),
    )  # fmt: skip


def sort(rng: Random) -> Example:
    """A short list in order."""
    limit = pick(rng, (9, 20, 99, 99, 999))
    numbers = [whole(rng, 0, limit) for _ in range(whole(rng, 2, 6))]
    down = chance(rng, 0.4)
    ordered = sorted(numbers, reverse=down)
    result = ", ".join(map(str, ordered))
    left = list(numbers)
    steps = []
    for n in ordered[:-1]:
        left.remove(n)
        rest = ", ".join(map(str, left))
        steps.append(f"Take {n}, left {rest}.")
    word = "largest" if down else "smallest"
    thinking = Thinking(
        f"Sort {'down' if down else 'up'}: {result}.",
        f"Take the {word} each time. {' '.join(steps)} Take {ordered[-1]}. Sorted: {result}.",
        f"There are {len(numbers)} numbers in the list and {len(ordered)} in the result.",
    )
    text = ask(rng, pick(rng, _DOWN if down else _UP).format(_listed(rng, numbers)))
    final = pick(
        rng, (f"{result}", f"{result}.", f"Sorted: {result}.", f"The sorted list is {result}.")
    )
    return answered(
        rng, "sort", [*frame(rng), user(text)], thinking, final,
        key=f"sort {sorted(numbers)}", answer=result,
    )  # fmt: skip


def count(rng: Random) -> Example:
    """How many items a list has."""
    kind = pick(rng, tuple(_KINDS))
    items = some(rng, _KINDS[kind], whole(rng, 2, 9))
    total = len(items)
    counted = ", ".join(f"{item} {i}" for i, item in enumerate(items, 1))
    thinking = Thinking(
        f"There are {total}.", f"Count them: {counted}. That is {total}.", "None is counted twice."
    )
    listed = ", ".join(items) if chance(rng, 0.5) else join_and(items)
    text = ask(rng, pick(rng, _COUNT).format(k=kind, l=listed))
    final = pick(
        rng, (f"There are {total} {kind}.", f"{total} {kind}.", f"I count {total} {kind}.")
    )
    return answered(
        rng, "count", [*frame(rng), user(text)], thinking, final, key=f"count {listed}",
        answer=str(total),
    )  # fmt: skip

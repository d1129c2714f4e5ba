"""Arithmetic written out, column by column, so that each step is easy for a small model."""

from recipes.nano.corpus.build import Thinking

_COLUMNS = ("Ones", "Tens", "Hundreds", "Thousands", "Ten thousands")


def _digits(value: int, width: int) -> list[int]:
    return [int(c) for c in reversed(f"{value:0{width}d}")]


def _added(a: int, b: int) -> str:
    width = max(len(str(a)), len(str(b)))
    lines = []
    carry = 0
    for name, x, y in zip(_COLUMNS, _digits(a, width), _digits(b, width), strict=False):
        term = f"{x}+{y}+{carry}" if carry else f"{x}+{y}"
        total = x + y + carry
        carry = total // 10
        lines.append(f"{name}: {term}={total}, write {total % 10}, carry {carry}.")
    return " ".join(lines)


def _taken(a: int, b: int) -> str:
    """The columns of a - b, for a >= b."""
    width = len(str(a))
    lines = []
    borrow = 0
    for name, x, y in zip(_COLUMNS, _digits(a, width), _digits(b, width), strict=False):
        term = f"{x}-{y}-{borrow}" if borrow else f"{x}-{y}"
        left = x - y - borrow
        borrow = int(left < 0)
        if borrow:
            lines.append(f"{name}: {term}={left}, write {left + 10}, borrow 1.")
        else:
            lines.append(f"{name}: {term}={left}, write {left}, borrow 0.")
    return " ".join(lines)


def add_steps(a: int, b: int) -> Thinking:
    """A sum; a may be negative, as the result of an earlier step."""
    total = a + b
    if a < 0:
        return Thinking(f"{a}+{b}={total}.", f"{a}+{b} is {b}-{-a}={total}.", "That is right.")
    return Thinking(
        f"{a}+{b}={total}.",
        f"{a}+{b}. {_added(a, b)} So {a}+{b}={total}.",
        f"Check: {total}-{b}={a}. Correct.",
    )


def subtract_steps(a: int, b: int) -> Thinking:
    """A difference; where it is negative, the larger number goes first."""
    rest = a - b
    check = f"Check: {rest}+{b}={a}. Correct."
    if a < 0:
        return Thinking(f"{a}-{b}={rest}.", f"{a}-{b} is -({-a}+{b})={rest}.", check)
    if a < b:
        steps = f"{a}-{b}. {a} is less than {b}, so it is -({b}-{a}). {_taken(b, a)}"
        return Thinking(f"{a}-{b}={rest}.", f"{steps} {b}-{a}={-rest}. So {a}-{b}={rest}.", check)
    return Thinking(
        f"{a}-{b}={rest}.", f"{a}-{b}. {_taken(a, b)} So {a}-{b}={rest}.", check
    )  # fmt: skip


def multiply_steps(a: int, b: int) -> Thinking:
    """A product, split into parts that the tables hold."""
    total = a * b
    large, small = max(a, b), min(a, b)
    if large > 12:
        tens, ones = large // 10 * 10, large % 10
        parts = (
            f"{large}={tens}+{ones}. {tens}*{small}={tens * small}. {ones}*{small}={ones * small}."
        )
        steps = f"{a}*{b}. {parts} {tens * small}+{ones * small}={total}. So {a}*{b}={total}."
    elif small > 1:
        half = 5 if small > 5 else small - 1
        rest = small - half
        steps = (
            f"{a}*{b}. {large}*{half}={large * half}. {large}*{rest}={large * rest}. "
            f"{large * half}+{large * rest}={total}. So {a}*{b}={total}."
        )
    else:
        rule = "Zero times anything is 0" if small == 0 else "One times a number is that number"
        steps = f"{a}*{b}. {rule}. So {a}*{b}={total}."
    check = f"Check: {b}*{a}={total}. Correct."
    return Thinking(f"{a}*{b}={total}.", steps, check)


def divide_steps(a: int, b: int) -> Thinking:
    """An exact quotient."""
    result = a // b
    return Thinking(
        f"{a}/{b}={result}.",
        f"{a}/{b}. Which number times {b} is {a}? {b}*{result}={a}. So {a}/{b}={result}.",
        f"Check: {result}*{b}={a}. Correct.",
    )

"""Sums, differences, small products and exact quotients, in symbols, words and little stories."""

from random import Random

from recipes.nano.corpus.build import (
    Thinking,
    answered,
    ask,
    capital,
    chance,
    frame,
    pick,
    said,
    user,
    whole,
)
from recipes.nano.corpus.columns import (
    add_steps,
    divide_steps,
    multiply_steps,
    subtract_steps,
)
from recipes.nano.example import Example, is_heldout_key
from recipes.nano.words import COUNTED, FIRST_NAMES, number_words

_SIGNS = {"+": ("+",), "-": ("-",), "*": ("*", "x", "\N{MULTIPLICATION SIGN}"), "/": ("/", "÷")}
_WORDS = {
    "+": ("plus", "and"),
    "-": ("minus",),
    "*": ("times", "multiplied by"),
    "/": ("divided by",),
}
_QUESTIONS = (
    "What is {}?", "What's {}?", "How much is {}?", "Calculate {}.", "Compute {}.", "{} = ?",
    "{} =", "{}", "{}?", "Can you work out {}?", "Work out {}.", "Tell me {}.", "Solve {}.",
    "What does {} make?", "What is the result of {}?", "I need {}.", "Please compute {}.",
    "Give me the result of {}.", "What do I get for {}?", "Could you calculate {} for me?",
)  # fmt: skip
_NOUN_QUESTIONS = {
    "+": (
        "Add {a} and {b}.", "What is the sum of {a} and {b}?", "Add {b} to {a}.",
        "Find the sum of {a} and {b}.", "{a} and {b} together, how much is that?",
    ),
    "-": (
        "Subtract {b} from {a}.", "What is the difference of {a} and {b}?", "Take {b} from {a}.",
        "What is {b} less than {a}?", "Take {b} away from {a}.",
    ),
    "*": (
        "Multiply {a} by {b}.", "What is the product of {a} and {b}?", "Multiply {a} and {b}.",
        "Find the product of {a} and {b}.",
    ),
    "/": ("Divide {a} by {b}.", "Share {a} by {b}.", "How often does {b} go into {a}?"),
}  # fmt: skip
_STORIES = {
    "+": (
        "{n} has {a} {t} and buys {b} more. How many {t} does {n} have now?",
        "{n} has {a} {t}. {m} gives {n} {b} more. How many are there now?",
        "There are {a} {t} in one box and {b} in another. How many {t} are there in total?",
        "{n} found {a} {t} on Monday and {b} on Tuesday. How many is that together?",
        "{n} has {a} {t} and {m} has {b}. How many {t} do they have together?",
        "A shop sold {a} {t} in the morning and {b} in the afternoon. How many in all?",
    ),
    "-": (
        "{n} has {a} {t} and gives away {b}. How many {t} are left?",
        "{n} had {a} {t} and lost {b}. How many does {n} have now?",
        "There are {a} {t} in a box. {n} takes {b}. How many remain?",
        "A shop has {a} {t} and sells {b} of them. How many {t} are left?",
        "{n} has {a} {t} and {m} has {b}. How many more does {n} have?",
    ),
    "*": (
        "{n} has {a} boxes with {b} {t} each. How many {t} is that?",
        "There are {a} bags. Each bag holds {b} {t}. How many {t} are there?",
        "{n} buys {b} {t} every day for {a} days. How many {t} does {n} buy?",
    ),
    "/": (
        "{n} shares {a} {t} equally among {b} friends. How many does each get?",
        "{a} {t} are put into {b} boxes, the same number in each. How many are in one box?",
    ),
}  # fmt: skip
_FINALS = (
    "{a} {o} {b} = {r}.", "{a} {o} {b} = {r}.", "The answer is {r}.", "{a} {o} {b} is {r}.",
    "It is {r}.",
)  # fmt: skip
_AND_THEN = {
    "+": ("And plus {}?", "Now add {}.", "Plus {}?", "Add {} to that.", "And {} more?"),
    "-": ("And minus {}?", "Now subtract {}.", "Minus {}?", "Take {} away from that."),
    "*": ("And times {}?", "Now multiply that by {}.", "Times {}?"),
}
STEPS = {"+": add_steps, "-": subtract_steps, "*": multiply_steps, "/": divide_steps}
_TASKS = {"+": "addition", "-": "subtraction", "*": "multiplication", "/": "division"}


def result_of(sign: str, a: int, b: int) -> int:
    """What `a sign b` is; division must be exact."""
    if sign == "+":
        return a + b
    if sign == "-":
        return a - b
    return a * b if sign == "*" else a // b


def sum_key(sign: str, a: int, b: int, form: str) -> str:
    """What holds a prompt out: the operands; for facts to be known by heart, also the wording."""
    known = sign == "/" or max(a, b) < (13 if sign == "*" else 10)
    if sign in "+*" and a > b:
        a, b = b, a
    return f"{a}{sign}{b}" + (f"|{form}" if known else "")


def draw_operands(rng: Random, sign: str) -> tuple[int, int]:
    """Operands within what the model is to master."""
    if sign == "*":
        if chance(rng, 0.65):
            return whole(rng, 0, 12), whole(rng, 0, 12)
        a, b = whole(rng, 11, 99), whole(rng, 2, 9)
        return (a, b) if chance(rng, 0.8) else (b, a)
    if sign == "/":
        b, r = whole(rng, 1, 12), whole(rng, 0, 12)
        return b * r, b
    limits = (9, 20, 99, 99, 999, 999, 999)
    a, b = whole(rng, 0, pick(rng, limits)), whole(rng, 0, pick(rng, limits))
    if sign == "-" and a < b and chance(rng, 0.7):
        a, b = b, a
    return a, b


def _operand(rng: Random, value: int, words: bool) -> str:
    return number_words(value) if words and 0 <= value <= 999 else str(value)


def phrase(rng: Random, sign: str, a: int, b: int) -> tuple[str, str]:
    """A question and its form, by which known facts are held out."""
    words = chance(rng, 0.07)
    left, right = _operand(rng, a, words), _operand(rng, b, words)
    x = rng.random()
    if x < 0.18 and min(a, b) > 1:
        form = pick(rng, _STORIES[sign])
        if sign == "-" and a < b:
            form = pick(rng, _NOUN_QUESTIONS[sign])
        n, m = pick(rng, FIRST_NAMES), pick(rng, FIRST_NAMES)
        while m == n:
            m = pick(rng, FIRST_NAMES)
        return form.format(a=left, b=right, n=n, m=m, t=pick(rng, COUNTED)), form
    if x < 0.36:
        form = pick(rng, _NOUN_QUESTIONS[sign])
        return capital(form.format(a=left, b=right)), form
    form = pick(rng, _QUESTIONS)
    if words or x < 0.5:
        word = pick(rng, _WORDS[sign])
        return capital(form.format(f"{left} {word} {right}")), f"{form}{word}"
    mark = pick(rng, _SIGNS[sign])
    term = f"{a}{mark}{b}" if chance(rng, 0.4) else f"{a} {mark} {b}"
    return form.format(term), f"{form}{sign}"


def final_of(rng: Random, sign: str, a: int, b: int) -> str:
    """A final answer."""
    return pick(rng, _FINALS).format(a=a, o=sign, b=b, r=result_of(sign, a, b))


def _single(rng: Random, sign: str) -> Example:
    a, b = draw_operands(rng, sign)
    text, form = phrase(rng, sign, a, b)
    return answered(
        rng, _TASKS[sign], [*frame(rng), user(ask(rng, text))], STEPS[sign](a, b),
        final_of(rng, sign, a, b), key=sum_key(sign, a, b, form),
        answer=str(result_of(sign, a, b)),
    )  # fmt: skip


def _three_terms(rng: Random, sign: str) -> Example:
    a, b, c = whole(rng, 0, 99), whole(rng, 0, 99), whole(rng, 0, 99)
    second = pick(rng, ("+", "-"))
    middle = result_of(sign, a, b)
    if middle < 0:
        a, b, middle = b, a, -middle
    total = result_of(second, middle, c)
    gap = pick(rng, ("", " "))
    form = pick(rng, _QUESTIONS)
    text = form.format(f"{a}{gap}{sign}{gap}{b}{gap}{second}{gap}{c}")
    one, two = STEPS[sign](a, b), STEPS[second](middle, c)
    thinking = Thinking(
        f"{a}{sign}{b}={middle}, {middle}{second}{c}={total}.",
        f"{one.medium} {two.medium}",
        f"{two.more}",
    )
    final = f"{a} {sign} {b} {second} {c} = {total}."
    return answered(
        rng, _TASKS[sign], [*frame(rng), user(ask(rng, text))], thinking, final,
        key=f"{a}{sign}{b}{second}{c}", answer=str(total),
    )  # fmt: skip


def _follow_up(rng: Random, sign: str) -> Example:
    first = pick(rng, ("+", "-", "*"))
    while True:
        a, b = draw_operands(rng, first)
        text, form = phrase(rng, first, a, b)
        middle = result_of(first, a, b)
        fits = 0 <= middle <= (99 if sign == "*" else 999)
        if fits and not is_heldout_key(sum_key(first, a, b, form)):
            break
    c = whole(rng, 2, 9) if sign == "*" else whole(rng, 0, pick(rng, (9, 20, 99)))
    total = result_of(sign, middle, c)
    then = pick(rng, _AND_THEN[sign])
    messages = [
        *frame(rng),
        user(ask(rng, text)),
        said(final_of(rng, first, a, b)),
        user(ask(rng, then.format(c))),
    ]
    return answered(
        rng, _TASKS[sign], messages, STEPS[sign](middle, c), f"{middle} {sign} {c} = {total}.",
        key=f"{sum_key(first, a, b, '')}{sum_key(sign, middle, c, then)}", answer=str(total),
    )  # fmt: skip


def _make(rng: Random, sign: str) -> Example:
    x = rng.random()
    if x < 0.06 and sign in "+-":
        return _three_terms(rng, sign)
    if x < 0.14 and sign != "/":
        return _follow_up(rng, sign)
    return _single(rng, sign)


def addition(rng: Random) -> Example:
    """A sum of two or three numbers."""
    return _make(rng, "+")


def subtraction(rng: Random) -> Example:
    """A difference, sometimes negative."""
    return _make(rng, "-")


def multiplication(rng: Random) -> Example:
    """A product up to 12 x 12, or of two digits and one."""
    return _make(rng, "*")


def division(rng: Random) -> Example:
    """An exact quotient from the tables."""
    return _make(rng, "/")

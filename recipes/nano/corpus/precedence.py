"""Two operations of which one comes first, and little stories told by the user of himself."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

from random import Random

from recipes.nano.corpus.build import Thinking, answered, ask, chance, frame, pick, user, whole
from recipes.nano.corpus.columns import add_steps, subtract_steps
from recipes.nano.example import Example
from recipes.nano.words import COUNTED, FIRST_NAMES, number_words

_ASK = (
    "What is {}?",
    "{}",
    "{}",
    "{} =",
    "{}?",
    "Calculate {}.",
    "How much is {}?",
    "What's {}?",
    "Compute {}.",
    "Solve {}.",
    "{} = ?",
)


def _value(a: int, sign: str, b: int) -> int:
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def precedence(rng: Random) -> Example:
    """5+3*2 or (5+3)*2, with small numbers."""
    a, b, c = whole(rng, 1, 12), whole(rng, 1, 12), whole(rng, 2, 9)
    sign, mark, gap = pick(rng, "++-"), pick(rng, "***x"), pick(rng, ("", " "))
    form = whole(rng, 0, 3)
    if form == 0:  # a+b*c
        b = min(b, 10)
        text, first, product = f"{a}{gap}{sign}{gap}{b}{gap}{mark}{gap}{c}", f"{b}*{c}", b * c
        total, second, rule = _value(a, sign, product), f"{a}{sign}{product}", "First the product"
    elif form == 1:  # a*b+c
        text, first, product = f"{a}{gap}{mark}{gap}{b}{gap}{sign}{gap}{c}", f"{a}*{b}", a * b
        total, second, rule = _value(product, sign, c), f"{product}{sign}{c}", "First the product"
    else:  # (a+b)*c, c*(a+b)
        if sign == "-" and a < b:
            a, b = b, a
        inner = _value(a, sign, b)
        bracket = f"({a}{gap}{sign}{gap}{b})"
        first, product, rule = f"{a}{sign}{b}", inner, "First the brackets"
        text = f"{bracket}{gap}{mark}{gap}{c}" if form == 2 else f"{c}{gap}{mark}{gap}{bracket}"
        second = f"{inner}*{c}" if form == 2 else f"{c}*{inner}"
        total = inner * c
    short = f"{first}={product}, {second}={total}."
    thinking = Thinking(
        short, f"{rule}: {first}={product}. Then {second}={total}.", "The order matters here."
    )
    final = pick(rng, (f"The answer is {total}.", f"It is {total}.", f"The result is {total}."))
    return answered(
        rng, "addition", [*frame(rng), user(ask(rng, pick(rng, _ASK).format(text), lower=0))], thinking, final,
        key=f"prec {text.replace(' ', '')}", answer=str(total),
    )  # fmt: skip


_LESS = (
    "{I} {have} {a} {t} and {eat} {b}. How many are left?", "{I} {have} {a} {t} and {give} away {b}. How many {t} are left?",
    "{I} {have} {a} {t}. {I} {lose} {b}. How many {t} {do} {i} have now?", "{I} {have} {a} {t}. {m} takes {b}. How many are left?",
    "If {i} {have} {a} {t} and {give} {b} to {m}, how many {do} {i} have?", "{I} {have} {a} {t} and {sell} {b}. How many {t} remain?",
    "{I} had {a} {t} and dropped {b}. How many are left?", "{I} had {a} {t} but {b} broke. How many are left?", "{I} {have} {a} {t} and {share} {b} with {m}. How many {t} {do} {i} have left?",
)  # fmt: skip
_MORE = (
    "{I} {have} {a} {t} and {buy} {b} more. How many {t} {do} {i} have?", "{I} {have} {a} {t} and {find} {b}. How many is that?",
    "{I} {have} {a} {t}. {m} gives me {b}. How many {do} {i} have now?", "If {i} {have} {a} {t} and {buy} {b} more, how many {do} {i} have?",
    "{I} {have} {a} {t} and {m} brings {b} more. How many {t} are there?", "{I} {find} {a} {t} and then {b} more. How many {t} {do} {i} have?",
)  # fmt: skip
_VERBS = ("have", "eat", "give", "lose", "sell", "share", "buy", "find")
_EATEN = (
    *COUNTED,
    "apples",
    "apples",
    "bananas",
    "cookies",
    "oranges",
    "eggs",
    "sweets",
    "pears",
    "carrots",
    "dollars",
)


def story_less(rng: Random) -> Example:
    """I have 3 apples and eat one: how many are left?"""
    return _story(rng, less=True)


def story_more(rng: Random) -> Example:
    """I have 3 apples and buy 2 more: how many are there?"""
    return _story(rng, less=False)


def _story(rng: Random, *, less: bool) -> Example:
    mine = chance(rng, 0.6)
    limit = pick(rng, (5, 10, 10, 20, 50))
    a = whole(rng, 2, limit)
    b = whole(rng, 1, a) if less else whole(rng, 1, limit)
    name, other = rng.sample(FIRST_NAMES, 2)
    thing = pick(rng, _EATEN)
    form = pick(rng, _LESS if less else _MORE)
    verbs = {v: v if mine else {"have": "has", "give": "gives"}.get(v, f"{v}s") for v in _VERBS}
    words = chance(rng, 0.3)
    left = number_words(a) if words else str(a)
    right = number_words(b) if words or (b < 4 and chance(rng, 0.5)) else str(b)
    who = "I" if mine else name
    do = "do" if mine else "does"
    text = form.format(I=who, i=who, a=left, b=right, t=thing, m=other, do=do, **verbs)
    if not mine:
        text = text.replace("gives me", f"gives {name}")
    total = a - b if less else a + b
    sign = "-" if less else "+"
    noun = thing[:-1] if total == 1 and thing not in ("cookies", "boxes") else thing
    steps = (subtract_steps if less else add_steps)(a, b)
    owner = "You have" if mine else f"{name} has"
    final = pick(
        rng,
        (
            f"{owner} {total} {noun}{' left' if less else ''}.",
            f"{total} {noun}.",
            f"{a} {sign} {b} = {total}.",
        ),
    )
    return answered(
        rng, "subtraction" if less else "addition", [*frame(rng), user(ask(rng, text))], steps, final,
        key=f"story {text}", answer=str(total),
    )  # fmt: skip


def large_sum(rng: Random) -> Example:
    """A sum of up to four digits."""
    return _large(rng, minus=False)


def large_difference(rng: Random) -> Example:
    """A difference of up to four digits, such as 1000 - 1."""
    return _large(rng, minus=True)


def _large(rng: Random, *, minus: bool) -> Example:
    a = pick(rng, (whole(rng, 1000, 9999), whole(rng, 1, 9) * 1000, whole(rng, 10, 99) * 100))
    b = pick(
        rng, (whole(rng, 1, 9), whole(rng, 1, 999), whole(rng, 1000, 9999), whole(rng, 1, 9) * 100)
    )
    if a < b if minus else chance(rng, 0.15):
        a, b = b, a
    sign, steps = ("-", subtract_steps) if minus else ("+", add_steps)
    total = a - b if minus else a + b
    gap = pick(rng, ("", " ", " "))
    word = "minus" if minus else "plus"
    text = pick(rng, _ASK).format(
        f"{a} {word} {b}" if chance(rng, 0.15) else f"{a}{gap}{sign}{gap}{b}"
    )
    thinking = steps(a, b)
    if not minus or chance(rng, 0.3):
        thinking = Thinking(thinking.medium, thinking.medium, thinking.more)
    final = pick(rng, (f"{a} {sign} {b} = {total}.", f"The answer is {total}."))
    key = f"{min(a, b)}+{max(a, b)}" if sign == "+" else f"{a}-{b}"
    return answered(
        rng, "subtraction" if minus else "addition", [*frame(rng), user(ask(rng, text))], thinking, final,
        key=key, answer=str(total),
    )  # fmt: skip

"""Values of tools' arguments: as JSON and as a user says them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from recipes.nano.corpus import texts
from recipes.nano.corpus.build import capital, chance, join_and, pick, whole
from recipes.nano.words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COMPANIES,
    CURRENCIES,
    DAYS,
    FIRST_NAMES,
    FOODS,
    GROCERIES,
    LANGUAGES,
    LAST_NAMES,
    MONTHS,
    NUMBER_WORDS,
    OBJECTS,
    TOPICS,
    invented,
)  # fmt: skip

Drawn = tuple[object, str]
"""A JSON value and how it is said."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of argument.

    Attributes:
        schema: its JSON schema, without a description.
        draw: a value.
    """

    schema: Mapping[str, object]
    draw: Callable[[Random], Drawn]


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
STRINGS = {"type": "array", "items": STRING}
NUMBERS = {"type": "array", "items": NUMBER}


def _same(draw: Callable[[Random], str]) -> Kind:
    def both(rng: Random) -> Drawn:
        text = draw(rng)
        return text, text

    return Kind(STRING, both)


def _city(rng: Random) -> Drawn:
    if chance(rng, 0.2):
        name = capital(invented(rng, pick(rng, (2, 3))))
        return name, name
    name = pick(rng, CITIES)
    return name, name.lower() if chance(rng, 0.06) else name


def person_name(rng: Random) -> str:
    """A first name, sometimes invented, sometimes with a last name."""
    first = capital(invented(rng)) if chance(rng, 0.25) else pick(rng, FIRST_NAMES)
    return f"{first} {pick(rng, LAST_NAMES)}" if chance(rng, 0.25) else first


def email_address(rng: Random) -> str:
    """An address of nobody."""
    who = pick(rng, FIRST_NAMES).lower() if chance(rng, 0.7) else invented(rng)
    if chance(rng, 0.3):
        who += pick(rng, (".", "_")) + pick(rng, LAST_NAMES).lower()
    host = pick(rng, ("mail", "example", "post", "work", invented(rng)))
    return f"{who}@{host}.{pick(rng, ('com', 'org', 'net'))}"


def phrase(rng: Random) -> str:
    """What one may search for."""
    if chance(rng, 0.5):
        return texts.search_text(rng)
    x = rng.random()
    if x < 0.3:
        return pick(rng, TOPICS)
    if x < 0.65:
        return f"{pick(rng, ADJECTIVES)} {pick(rng, OBJECTS)}s"
    if x < 0.8:
        return f"{pick(rng, FOODS)} in {pick(rng, CITIES)}"
    return f"{invented(rng)} {pick(rng, OBJECTS)}"


def note_text(rng: Random) -> str:
    """A short message."""
    if chance(rng, 0.5):
        return texts.clause(rng) if chance(rng, 0.7) else texts.errand(rng)
    forms = (
        "I will be late", "buy {f}", "call {n}", "the meeting is at {h}", "see you on {d}",
        "bring the {o}", "I am on my way", "pay the rent", "feed the {a}", "the {o} is ready",
        "water the plants", "happy birthday {n}", "meet {n} in {c}", "clean the {o}", "{n} is sick",
        "fix the {o}", "thank you for the {o}", "return the {o} to {n}", "look for {i}",
    )  # fmt: skip
    return pick(rng, forms).format(
        f=pick(rng, FOODS), n=pick(rng, FIRST_NAMES), h=whole(rng, 1, 12), d=pick(rng, DAYS),
        o=pick(rng, OBJECTS), a=pick(rng, ANIMALS), c=pick(rng, CITIES), i=invented(rng),
    )  # fmt: skip


def identifier(rng: Random) -> str:
    """An id of letters and digits."""
    x = rng.random()
    if x < 0.35:
        return f"{pick(rng, 'ABCDEFGHKLMNPRSTUX')}-{whole(rng, 10, 9999)}"
    if x < 0.6:
        return f"{pick(rng, ('usr', 'ord', 'id', 'cus', 'tk', 'inv'))}_{whole(rng, 1, 9999)}"
    if x < 0.8:
        return f"{pick(rng, 'ABCDEFGHKLMNPRSTUX')}{pick(rng, 'ABCDEFGHK')}{whole(rng, 10, 999)}"
    return str(whole(rng, 100, 99999))


def iso_date(rng: Random) -> str:
    """A date such as 2026-03-14."""
    return f"{whole(rng, 2024, 2030)}-{whole(rng, 1, 12):02d}-{whole(rng, 1, 28):02d}"


def _day(rng: Random) -> str:
    x = rng.random()
    if x < 0.5:
        return iso_date(rng)
    if x < 0.7:
        return pick(rng, ("today", "tomorrow"))
    return pick(rng, DAYS) if x < 0.9 else f"{whole(rng, 1, 28)} {pick(rng, MONTHS)}"


def _clock(rng: Random) -> str:
    return f"{whole(rng, 0, 23):02d}:{pick(rng, ('00', '15', '30', '45', '05', '20'))}"


def whole_kind(low: int, high: int) -> Kind:
    """An integer; small ones are said in words at times."""

    def draw(rng: Random) -> Drawn:
        value = whole(rng, low, high)
        words = value <= 12 and chance(rng, 0.25)
        return value, NUMBER_WORDS[value] if words else str(value)

    return Kind(INTEGER, draw)


def _amount(rng: Random) -> Drawn:
    x = rng.random()
    if x < 0.6:
        value: float = whole(rng, 1, 999)
    else:
        value = whole(rng, 1, 9999) / pick(rng, (10, 100))
    if value == int(value):
        value = int(value)
    return value, str(value)


def _few(draw: Callable[[Random], str], low: int = 1, high: int = 4) -> Kind:
    def both(rng: Random) -> Drawn:
        items = list(dict.fromkeys(draw(rng) for _ in range(whole(rng, low, high))))
        return items, join_and(items) if chance(rng, 0.8) else ", ".join(items)

    return Kind(STRINGS, both)


def _numbers(rng: Random) -> Drawn:
    items = [whole(rng, 0, pick(rng, (9, 99, 999))) for _ in range(whole(rng, 2, 5))]
    texts = [str(i) for i in items]
    return items, join_and(texts) if chance(rng, 0.6) else ", ".join(texts)


def _company(rng: Random) -> Drawn:
    name = pick(rng, tuple(COMPANIES))
    return COMPANIES[name], name if chance(rng, 0.5) else COMPANIES[name]


def _currency(rng: Random) -> Drawn:
    code = pick(rng, tuple(CURRENCIES))
    return code, pick(rng, CURRENCIES[code]) if chance(rng, 0.6) else code


def _expression(rng: Random) -> Drawn:
    sign = pick(rng, "+-*/")
    a, b = whole(rng, 1, pick(rng, (99, 999, 9999))), whole(rng, 1, pick(rng, (9, 99, 999)))
    text = f"{a} {sign} {b}" if chance(rng, 0.7) else f"{a}{sign}{b}"
    if chance(rng, 0.2):
        text = f"({a} + {b}) {sign} {whole(rng, 2, 50)}"
    return text, text


def enum(choices: Mapping[str, tuple[str, ...]]) -> Kind:
    """One of some values, each said in several ways."""
    values = tuple(choices)

    def draw(rng: Random) -> Drawn:
        value = pick(rng, values)
        return value, pick(rng, choices[value])

    return Kind({"type": "string", "enum": list(values)}, draw)


def flag(true: tuple[str, ...], false: tuple[str, ...] = ()) -> Kind:
    """A switch; the ways to say it are whole phrases."""

    def draw(rng: Random) -> Drawn:
        value = not false or chance(rng, 0.5)
        return value, pick(rng, true if value else false)

    return Kind(BOOLEAN, draw)


def _file(rng: Random) -> str:
    stem = pick(rng, ("notes", "report", "todo", "photo", "data", "list", "draft", invented(rng)))
    name = f"{stem}{pick(rng, ('', '', '_old', '2', '-final'))}"
    folder = pick(rng, ("", "", "docs/", "home/", "tmp/", "/var/log/"))
    return f"{folder}{name}.{pick(rng, ('txt', 'csv', 'md', 'json', 'pdf', 'log'))}"


CITY = Kind(STRING, _city)
PERSON = _same(person_name)
EMAIL = _same(email_address)
PHRASE = _same(phrase)
NOTE = _same(note_text)
ID = _same(identifier)
DATE = _same(_day)
ISO = _same(iso_date)
CLOCK = _same(_clock)
AMOUNT = Kind(NUMBER, _amount)
SMALL = whole_kind(1, 12)
MEDIUM = whole_kind(1, 90)
LARGE = whole_kind(1, 5000)
ITEMS = _few(lambda rng: pick(rng, GROCERIES), 2, 4)
PEOPLE = _few(person_name, 1, 3)
TAGS = _few(lambda rng: invented(rng) if chance(rng, 0.4) else pick(rng, OBJECTS), 1, 3)
NUMBER_LIST = Kind(NUMBERS, _numbers)
COMPANY = Kind(STRING, _company)
CURRENCY = Kind(STRING, _currency)
EXPRESSION = Kind(STRING, _expression)
LANGUAGE = _same(lambda rng: pick(rng, LANGUAGES))
FOOD = _same(lambda rng: pick(rng, FOODS))
OBJECT = _same(lambda rng: pick(rng, OBJECTS))
THING = _same(lambda rng: f"{pick(rng, ADJECTIVES)} {pick(rng, OBJECTS)}")
WORD = _same(lambda rng: invented(rng) if chance(rng, 0.5) else pick(rng, (*OBJECTS, *ANIMALS)))
TITLE = _same(
    lambda rng: capital(
        pick(rng, ("{} {}", "The {} {}", "{} meeting", "Lunch with {n}", "{} {i}")).format(
            pick(rng, ADJECTIVES), pick(rng, OBJECTS), n=pick(rng, FIRST_NAMES), i=invented(rng)
        )
    )
)
FILE = _same(_file)
NAME = _same(lambda rng: capital(invented(rng)))
WEATHER = ("sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear", "stormy")

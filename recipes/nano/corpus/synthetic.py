"""Tools that do not exist anywhere, so that the model must read the declaration."""
# ruff: noqa: E501, SIM905 (word lists are kept as text)

from random import Random

from recipes.nano.corpus.build import capital, chance, join_and, pick, whole, with_article
from recipes.nano.corpus.domains import Slot
from recipes.nano.corpus.schemas import Built, build
from recipes.nano.corpus.values import (
    AMOUNT,
    BOOLEAN,
    CITY,
    CLOCK,
    EMAIL,
    FILE,
    ID,
    ISO,
    LARGE,
    MEDIUM,
    NAME,
    NOTE,
    NUMBER_LIST,
    OBJECT,
    PERSON,
    PHRASE,
    SMALL,
    TAGS,
    THING,
    TITLE,
    WORD,
    Kind,
    enum,
)  # fmt: skip
from recipes.nano.example import is_unseen_tool
from recipes.nano.words import ADJECTIVES, COLOURS, OBJECTS, invented

VERBS = tuple(
    """add analyze approve archive assign block build cancel check clean clear close compare compress
    connect copy count create delete detect draw encode estimate export fetch filter find fix format
    generate get import inspect install list load lock map mark measure merge mix move open pack parse
    paint pause plan post prepare print process publish query rate read rename render repair report
    request reset resize resolve restart resume review rotate run save scan schedule score send set
    share show sign simulate split start stop store submit summarize sync tag test trace train trim
    unlock update upload validate verify watch wrap write""".split()
)
NOUNS = tuple(
    """account album alarm alert asset audio backup badge banner batch board branch bucket bundle camera
    card catalog channel chart claim client cluster comment config contact container contract course
    crop customer dashboard dataset device diagram document door draft drone email employee engine
    entry error event experiment feature feed field filter folder form frame function game gate graph
    group image index invoice item job journey key label layer lead lesson license list log machine
    map meeting member menu message model module monitor network node notification number object
    offer order package page panel parcel patient payment photo pipeline plan plant playlist policy
    poll post printer profile project queue quiz receipt record region report request resource review
    robot room route rule sample schedule score segment sensor server service session shape shelf
    signal site snapshot song station stream student survey system table tag target task team template
    test thread ticket token tool topic trace track trip user vehicle version video visitor volume
    voucher wallet warehouse widget window worker zone""".split()
)
_TEXT_NAMES = tuple(
    """name title label text query content value target source path key code type category subject
    message comment reason note owner author user region zone group tag channel topic format color
    model version status mode level language host bucket folder pattern field column prefix suffix
    address street country brand material shape theme role department team customer sender""".split()
)
_NUMBER_NAMES = tuple(
    """count limit size width height depth length weight age year page offset amount price speed
    duration timeout retries port score rank volume level capacity distance radius angle index step
    rate ratio threshold delay interval max_items min_score max_depth batch_size total quantity
    budget floor seats days hours minutes""".split()
)
_FLAG_NAMES = tuple(
    """verbose force public private recursive async_mode active enabled urgent dry_run overwrite
    compress notify archived visible locked strict debug cached secure anonymous sorted_output
    fast silent preview""".split()
)
_LIST_NAMES = tuple("tags items labels names keys members fields values ids topics parts".split())
_CHOICES = tuple(
    """fast slow small medium large low high red blue green daily weekly monthly public private
    draft final json csv xml pdf left right top bottom new old open closed north south east west light
    dark soft hard basic full short long auto manual gold silver bronze dev prod staging""".split()
)
_FIRST = (
    "source",
    "target",
    "new",
    "old",
    "max",
    "min",
    "default",
    "main",
    "first",
    "last",
    "user",
    "item",
)


def _choice(rng: Random) -> Kind:
    words = []
    for _ in range(whole(rng, 2, 4)):
        word = invented(rng) if chance(rng, 0.3) else pick(rng, _CHOICES)
        if word not in words:
            words.append(word)
    return enum({w: (w,) for w in words})


_FLAG = Kind(BOOLEAN, lambda rng: (chance(rng, 0.6), ""))
_TEXTS = (
    NAME,
    NAME,
    WORD,
    WORD,
    THING,
    OBJECT,
    CITY,
    PERSON,
    PHRASE,
    ID,
    ID,
    TITLE,
    EMAIL,
    FILE,
    ISO,
    CLOCK,
    NOTE,
)
_COUNTS = (SMALL, MEDIUM, MEDIUM, LARGE, AMOUNT)


def draw_parameter(rng: Random) -> tuple[str, Kind]:
    """A parameter's name and kind."""
    x = rng.random()
    if x < 0.42:
        name, kind = pick(rng, _TEXT_NAMES), pick(rng, _TEXTS)
    elif x < 0.66:
        name, kind = pick(rng, _NUMBER_NAMES), pick(rng, _COUNTS)
    elif x < 0.8:
        name, kind = pick(rng, _TEXT_NAMES), _choice(rng)
    elif x < 0.9:
        name, kind = pick(rng, _FLAG_NAMES), _FLAG
    else:
        name, kind = pick(rng, _LIST_NAMES), TAGS if chance(rng, 0.7) else NUMBER_LIST
    y = rng.random()
    if y < 0.15:
        name = invented(rng)
    elif y < 0.3:
        name = f"{pick(rng, _FIRST)}_{name}"
    elif y < 0.37:
        name = f"{invented(rng)}_{name}"
    return name, kind


def _word(rng: Random, words: tuple[str, ...], rare: float) -> str:
    return invented(rng) if chance(rng, rare) else pick(rng, words)


def draw_name(rng: Random, unseen: bool) -> tuple[str, str, str]:
    """A tool's name on the wanted side of the split, its verb and its noun in words."""
    while True:
        verb = _word(rng, VERBS, 0.12)
        noun = _word(rng, NOUNS, 0.25)
        if chance(rng, 0.25):
            noun = f"{pick(rng, (*ADJECTIVES, *COLOURS, *NOUNS))} {noun}"
        name = f"{verb}_{noun.replace(' ', '_')}"
        if chance(rng, 0.12):  # a name that says nothing: the description must
            name = f"{invented(rng)}_{invented(rng)}" if chance(rng, 0.6) else invented(rng, 3)
        if is_unseen_tool(name) == unseen:
            return name, verb, noun


def synthetic_tool(rng: Random, style: str, *, unseen: bool) -> tuple[Built, str, str]:
    """A tool with its verb and noun."""
    name, verb, noun = draw_name(rng, unseen)
    slots: list[Slot] = []
    used = set()
    for i in range(pick(rng, (0, 1, 1, 2, 2, 2, 3, 3, 4))):
        parameter, kind = draw_parameter(rng)
        if parameter in used:
            continue
        used.add(parameter)
        words = parameter.replace("_", " ")
        about = pick(
            rng, (f"The {words}", f"{capital(words)} of the {noun}", f"{capital(words)}.", "", "")
        )
        optional = (" ",) if chance(rng, 0.3) else ()
        slots.append(Slot(f"p{i}", (parameter,), kind, (about,), optional))
    told = name.startswith(verb) and chance(rng, 0.35)
    forms = (
        "{v} a {n}.",
        "{v} the {n}",
        "Tool to {w} a {n}.",
        "Use this to {w} the {n}.",
        "{v} one {n} of the {o} system.",
    )
    about = (
        ""
        if told
        else pick(rng, forms).format(v=capital(verb), w=verb, n=noun, o=pick(rng, OBJECTS))
    )
    return build(rng, name, with_article(about), slots, style=style, unseen=unseen), verb, noun


def say_parameter(rng: Random, parameter: str, value: object, spoken: str) -> str:
    """A parameter and its value in words."""
    words = parameter.replace("_", " ") if chance(rng, 0.8) else parameter
    if isinstance(value, bool):
        forms = (
            ("{} on", "{} true", "{} yes", "{} enabled")
            if value
            else ("{} off", "{} false", "{} no", "{} disabled")
        )
        return pick(rng, forms).format(words)
    if isinstance(value, str) and " " in value and chance(rng, 0.6):
        spoken = f'"{spoken}"'
    return pick(
        rng, ("{} {}", "{} {}", "{} {}", "{}: {}", "{} = {}", "the {} {}", "{} set to {}")
    ).format(words, spoken)


_PLAIN = (
    "{v} the {n}.", "{v} a {n}.", "Please {w} the {n}.", "I want to {w} a {n}.", "Can you {w} the {n}?",
    "Could you {w} a {n}?", "I need you to {w} the {n}.", "{v} {n}.",
)  # fmt: skip
_WITH = (
    "{v} the {n} with {p}.", "{v} a {n} with {p}.", "Please {w} the {n} with {p}.", "{v} {n}: {p}",
    "I want to {w} a {n} with {p}.", "Can you {w} the {n} with {p}?", "{v} the {n}. Use {p}.",
    "{v} the {n} ({p}).", "With {p}, {w} the {n}.", "I need to {w} a {n}. It has {p}.",
)  # fmt: skip
_NAMED = (
    "Use {t} with {p}.",
    "Call {t} with {p}.",
    "{t}: {p}",
    "Run {t} with {p}.",
    "Please use the tool {t}: {p}.",
)
_NAMED_PLAIN = ("Use {t}.", "Call {t}.", "Run {t}.", "Please call {t}.")


def synthetic_request(
    rng: Random, built: Built, verb: str, noun: str
) -> tuple[str, dict[str, object], dict[str, str]]:
    """A request to such a tool: its text, the values and how they are said."""
    values: dict[str, object] = {}
    spoken: dict[str, str] = {}
    parts = []
    for leaf in built.leaves:
        if leaf.slot.say and chance(rng, 0.5):
            continue
        value, said = leaf.slot.kind.draw(rng)
        values[leaf.slot.key] = value
        spoken[leaf.slot.key] = said
        parts.append(say_parameter(rng, leaf.slot.names[0], value, said))
    if len(parts) > 1 and chance(rng, 0.25):
        rng.shuffle(parts)
    named = chance(rng, 0.16)
    if parts:
        form = pick(rng, _NAMED if named else _WITH)
        joined = join_and(parts) if chance(rng, 0.75) else ", ".join(parts)
        text = form.format(v=capital(verb), w=verb, n=noun, t=built.tool.name, p=joined)
    else:
        form = pick(rng, _NAMED_PLAIN if named else _PLAIN)
        text = form.format(v=capital(verb), w=verb, n=noun, t=built.tool.name)
    return with_article(text), values, spoken


def bare_request(rng: Random, verb: str, noun: str) -> str:
    """A request that gives no argument at all."""
    return with_article(pick(rng, _PLAIN).format(v=capital(verb), w=verb, n=noun))

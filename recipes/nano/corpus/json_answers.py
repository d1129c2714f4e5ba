"""Answers as JSON that follows a schema: what a text says, under the schema's keys."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

from collections.abc import Callable, Mapping
from random import Random

from recipes.nano.corpus.build import (
    Thinking,
    answered,
    capital,
    chance,
    frame,
    join_and,
    json_text,
    pick,
    said,
    user,
    whole,
)  # fmt: skip
from recipes.nano.corpus.synthetic import draw_parameter, say_parameter
from recipes.nano.corpus.values import email_address, iso_date, person_name
from recipes.nano.example import Example
from recipes.nano.words import CITIES, COLOURS, FOODS, GROCERIES, HOBBIES, JOBS, OBJECTS, invented
from rose.server.chat.format import Message, ResponseSchema

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": t} for t in ("string", "integer", "number", "boolean"))
STRINGS = {"type": "array", "items": STRING}

# A field: names of its key, its schema, a value and a sentence on {n} with {v}.
Field = tuple[tuple[str, ...], Mapping[str, object], Callable[[Random], object], tuple[str, ...]]


def _listed(rng: Random, items: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(pick(rng, items) for _ in range(whole(rng, 1, 3))))


_PERSON: tuple[Field, ...] = (
    (
        ("age", "years", "age_years"),
        INTEGER,
        lambda r: whole(r, 5, 95),
        ("{n} is {v} years old.", "{n} is {v}."),
    ),
    (
        ("city", "home", "location", "lives_in"),
        STRING,
        lambda r: pick(r, CITIES),
        ("{n} lives in {v}.", "{n} is from {v}."),
    ),
    (
        ("job", "profession", "occupation", "works_as"),
        STRING,
        lambda r: pick(r, JOBS),
        ("{n} works as a {v}.",),
    ),
    (
        ("hobbies", "likes", "interests"),
        STRINGS,
        lambda r: _listed(r, HOBBIES),
        ("{n} likes {v}.", "{n} enjoys {v}."),
    ),
    (("email", "mail", "contact"), STRING, email_address, ("The email is {v}.", "Write to {v}.")),
    (
        ("married", "is_married"),
        BOOLEAN,
        lambda r: chance(r, 0.5),
        ("{n} is married.|{n} is not married.",),
    ),
    (
        ("score", "points", "rating"),
        NUMBER,
        lambda r: whole(r, 10, 99) / 10,
        ("{n} has a score of {v}.",),
    ),
    (
        ("level", "status"),
        {"type": "string", "enum": ["beginner", "advanced", "expert"]},
        lambda r: pick(r, ("beginner", "advanced", "expert")),
        ("{n} is of the level {v}.",),
    ),
)
_PRODUCT: tuple[Field, ...] = (
    (
        ("price", "cost", "amount"),
        NUMBER,
        lambda r: whole(r, 100, 99999) / 100,
        ("It costs {v}.", "The price is {v}."),
    ),
    (("color", "colour"), STRING, lambda r: pick(r, COLOURS), ("It is {v}.", "The colour is {v}.")),
    (
        ("in_stock", "available"),
        BOOLEAN,
        lambda r: chance(r, 0.5),
        ("It is in stock.|It is not in stock.",),
    ),
    (
        ("quantity", "count", "units"),
        INTEGER,
        lambda r: whole(r, 1, 200),
        ("There are {v} of them.", "We have {v}."),
    ),
    (
        ("size",),
        {"type": "string", "enum": ["small", "medium", "large"]},
        lambda r: pick(r, ("small", "medium", "large")),
        ("Its size is {v}.",),
    ),
    (
        ("parts", "contents", "includes"),
        STRINGS,
        lambda r: _listed(r, OBJECTS),
        ("It comes with {v}.",),
    ),
    (
        ("brand", "maker", "company"),
        STRING,
        lambda r: capital(invented(r)),
        ("It is made by {v}.",),
    ),
)
_EVENT: tuple[Field, ...] = (
    (("date", "day", "when"), STRING, iso_date, ("It is on {v}.", "It takes place on {v}.")),
    (
        ("city", "place", "location", "venue"),
        STRING,
        lambda r: pick(r, CITIES),
        ("It is in {v}.", "The place is {v}."),
    ),
    (
        ("guests", "participants", "people"),
        STRINGS,
        lambda r: [person_name(r) for _ in range(whole(r, 1, 3))],
        ("{v} will come.", "The guests are {v}."),
    ),
    (
        ("seats", "max_guests", "size"),
        INTEGER,
        lambda r: whole(r, 2, 500),
        ("There are {v} seats.",),
    ),
    (("free", "is_free"), BOOLEAN, lambda r: chance(r, 0.5), ("It is free.|It is not free.",)),
    (
        ("time", "start", "start_time"),
        STRING,
        lambda r: f"{whole(r, 0, 23):02d}:{pick(r, ('00', '30', '15'))}",
        ("It starts at {v}.",),
    ),
)
_ORDER: tuple[Field, ...] = (
    (
        ("items", "products", "articles"),
        STRINGS,
        lambda r: _listed(r, GROCERIES),
        ("{n} orders {v}.", "{n} wants {v}."),
    ),
    (
        ("city", "ship_to", "address"),
        STRING,
        lambda r: pick(r, CITIES),
        ("Send it to {v}.", "It goes to {v}."),
    ),
    (
        ("total", "price", "sum"),
        NUMBER,
        lambda r: whole(r, 100, 99999) / 100,
        ("It costs {v} in all.", "The total is {v}."),
    ),
    (
        ("express", "urgent", "fast_delivery"),
        BOOLEAN,
        lambda r: chance(r, 0.5),
        ("It is urgent.|It is not urgent.",),
    ),
)
_RECORDS: tuple[tuple[str, tuple[str, ...], Callable[[Random], str], tuple[str, ...], tuple[Field, ...]], ...] = (
    ("person", ("name", "person", "full_name", "first_name"), person_name, ("This is {n}.", "{n} is here.", "Meet {n}."), _PERSON),
    ("product", ("product", "name", "item", "title"), lambda r: f"{pick(r, COLOURS)} {pick(r, OBJECTS)}", ("We sell a {n}.", "The product is a {n}.", "Look at this {n}."), _PRODUCT),
    ("event", ("title", "event", "name"), lambda r: capital(f"{pick(r, FOODS)} {pick(r, ('party', 'fair', 'night', 'course'))}"), ("The event is called {n}.", "Come to the {n}."), _EVENT),
    ("order", ("customer", "name", "buyer", "client"), person_name, ("{n} has an order.", "An order from {n}."), _ORDER),
)  # fmt: skip
_MOODS = {
    "positive": ("I love this {o}!", "The {o} is great.", "What a fine {o}, I am happy.", "Best {o} ever.", "The {o} works very well."),
    "negative": ("I hate this {o}.", "The {o} is bad.", "The {o} broke at once.", "Worst {o} ever.", "I am sad about the {o}."),
    "neutral": ("This is a {o}.", "The {o} has a colour.", "I have a {o}.", "The {o} is on the table."),
}  # fmt: skip
_ASKS = (
    "Extract the data: {}", "Extract the fields as JSON. {}", "{}", "{} Give me this as JSON.", "Turn this into JSON: {}",
    "Read this and fill in the fields: {}", "Text: {}", "Parse this: {}", "{} Please extract the data.", "Convert to JSON: {}",
)  # fmt: skip
_RULES = (
    "Extract the data from the user's text.",
    "Answer in JSON.",
    "You turn texts into JSON.",
    "Fill in the fields.",
)
_SCHEMA_NAMES = ("record", "answer", "result", "output", "response", "data", "entry")


def _sentence(rng: Random, forms: tuple[str, ...], name: str, value: object) -> str:
    form = pick(rng, forms)
    if isinstance(value, bool):
        return form.split("|")[0 if value else 1].format(n=name)
    text = join_and(value) if isinstance(value, list) else str(value)
    return form.format(n=name, v=text)


def _object(properties: dict[str, object]) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _record(rng: Random) -> tuple[str, str, dict[str, object], dict[str, object]]:
    """A record: its kind, a text on it, the properties of a schema and the right object."""
    kind, keys, draw, intros, fields = pick(rng, _RECORDS)
    name = draw(rng)
    chosen = rng.sample(fields, whole(rng, 1, min(4, len(fields))))
    sentences = [pick(rng, intros).format(n=name)]
    properties: dict[str, object] = {pick(rng, keys): STRING}
    value: dict[str, object] = {next(iter(properties)): name}
    for names, schema, field_draw, forms in chosen:
        content = field_draw(rng)
        sentences.append(_sentence(rng, forms, name, content))
        key = pick(rng, names)
        if chance(rng, 0.8) and key not in properties:
            properties[key] = schema
            value[key] = content
    if chance(rng, 0.35):
        order = rng.sample(list(properties), len(properties))
        properties = {k: properties[k] for k in order}
        value = {k: value[k] for k in order}
    return kind, " ".join(sentences), properties, value


def _free(rng: Random) -> tuple[str, str, dict[str, object], dict[str, object]]:
    """A record of invented keys."""
    properties: dict[str, object] = {}
    value: dict[str, object] = {}
    parts = []
    for _ in range(whole(rng, 1, 4)):
        key, kind = draw_parameter(rng)
        if key in properties:
            continue
        content, spoken = kind.draw(rng)
        properties[key] = dict(kind.schema)
        value[key] = content
        words = key.replace("_", " ")
        if isinstance(content, bool) or chance(rng, 0.4):
            parts.append(capital(say_parameter(rng, key, content, spoken)) + ".")
        else:
            parts.append(
                pick(rng, ("The {} is {}.", "The {} is {}.", "Its {} is {}.", "{}: {}.")).format(
                    words, spoken
                )
            )
    return "data", " ".join(parts), properties, value


def _people(rng: Random) -> tuple[str, str, dict[str, object], dict[str, object]]:
    """A list of objects."""
    key, outer = (
        pick(rng, ("name", "person")),
        pick(rng, ("people", "persons", "members", "list", "entries")),
    )
    names, schema, draw, forms = pick(rng, _PERSON[:3])
    field = pick(rng, names)
    rows, sentences = [], []
    for _ in range(whole(rng, 1, 3)):
        name, content = person_name(rng), draw(rng)
        rows.append({key: name, field: content})
        sentences.append(_sentence(rng, forms, name, content))
    properties: dict[str, object] = {
        outer: {"type": "array", "items": _object({key: STRING, field: schema})}
    }
    return "people", " ".join(sentences), properties, {outer: rows}


def _mood(rng: Random) -> tuple[str, str, dict[str, object], dict[str, object]]:
    """A text to be classified."""
    mood = pick(rng, tuple(_MOODS))
    thing = pick(rng, OBJECTS)
    text = pick(rng, _MOODS[mood]).format(o=thing)
    key = pick(rng, ("sentiment", "mood", "label", "class", "feeling"))
    order = rng.sample(list(_MOODS), 3)
    properties: dict[str, object] = {key: {"type": "string", "enum": order}}
    value: dict[str, object] = {key: mood}
    if chance(rng, 0.4):
        other = pick(rng, ("object", "product", "thing", "topic"))
        properties[other] = STRING
        value[other] = thing
    return "sentiment", text, properties, value


def json_answer(rng: Random) -> Example:
    """A text and a schema; the answer is nothing but the object."""
    make = pick(rng, (_record, _record, _record, _record, _free, _free, _free, _people, _mood))
    kind, text, properties, value = make(rng)
    if make is not _people and chance(rng, 0.14):
        outer = pick(rng, (kind, "item", "details", "info", invented(rng)))
        properties, value = {outer: _object(properties)}, {outer: value}
    name = kind if chance(rng, 0.5) else pick(rng, _SCHEMA_NAMES)
    schema = ResponseSchema(name=name, schema=_object(properties))
    messages = frame(rng)
    if chance(rng, 0.3):
        messages = [Message(role="developer", content=pick(rng, _RULES))]
    if chance(rng, 0.1):
        messages += [
            user(text),
            said("Noted."),
            user(pick(rng, ("Give me that as JSON.", "Now as JSON.", "Extract the data."))),
        ]
    else:
        messages.append(user(pick(rng, _ASKS).format(text)))
    parts = ", ".join(f"{k}: {json_text(v)}" for k, v in value.items())
    final = json_text(value)
    thinking = Thinking(
        "I fill in the fields.",
        f"The schema wants {join_and(list(properties))}. The text says: {parts}.",
        "All fields are filled. The answer is only JSON.",
    )
    return answered(
        rng, "json", messages, thinking, final, key=f"json {text} {list(properties)}",
        schema=schema, json_value=value,
    )  # fmt: skip

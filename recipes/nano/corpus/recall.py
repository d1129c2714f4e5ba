"""Facts that the conversation itself holds: told earlier, by the developer or in a short text."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

from collections.abc import Callable
from dataclasses import dataclass
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
    some,
    user,
    whole,
    with_article,
)
from recipes.nano.corpus.facts import small_exchange
from recipes.nano.example import Example
from recipes.nano.words import (
    ANIMALS,
    CITIES,
    COLOURS,
    DAYS,
    FIRST_NAMES,
    FOODS,
    HOBBIES,
    INSTRUMENTS,
    JOBS,
    LANGUAGES,
    LAST_NAMES,
    MONTHS,
    OBJECTS,
    PET_NAMES,
    PLACES,
    invented,
)
from rose.server.chat.format import Message

Draw = Callable[[Random], str]


def _of(items: tuple[str, ...]) -> Draw:
    return lambda rng: pick(rng, items)


def _name(rng: Random) -> str:
    return capital(invented(rng)) if chance(rng, 0.25) else pick(rng, FIRST_NAMES)


def _pet(rng: Random) -> str:
    return capital(invented(rng)) if chance(rng, 0.3) else pick(rng, PET_NAMES)


def _city(rng: Random) -> str:
    return capital(invented(rng, 3)) if chance(rng, 0.2) else pick(rng, CITIES)


def _number(low: int, high: int) -> Draw:
    return lambda rng: str(whole(rng, low, high))


def _code(rng: Random) -> str:
    if chance(rng, 0.5):
        return str(whole(rng, 1000, 99999))
    return f"{invented(rng)}{whole(rng, 10, 99)}"


def _clock(rng: Random) -> str:
    return f"{whole(rng, 0, 23)}:{pick(rng, ('00', '15', '30', '45', '10', '50'))}"


def _date(rng: Random) -> str:
    return f"{whole(rng, 1, 28)} {pick(rng, MONTHS)}"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fact, told by the user of himself.

    Attributes:
        topic: what it is about, as in `my dog's name`; without the `my`.
        draw: a value.
        told: statements with {v}.
        asked: questions.
        answers: with {v}.
    """

    topic: str
    draw: Draw
    told: tuple[str, ...]
    asked: tuple[str, ...]
    answers: tuple[str, ...]


def _simple(topic: str, draw: Draw, *told: str, asked: tuple[str, ...] = ()) -> Kind:
    """A kind that is told and asked as `my topic`."""
    return Kind(
        topic,
        draw,
        (f"My {topic} is {{v}}.", f"My {topic} is {{v}}.", *told),
        (
            f"What is my {topic}?", f"What's my {topic}?", f"Do you remember my {topic}?",
            f"Can you tell me my {topic}?", f"Tell me my {topic}.", *asked, *asked,
        ),
        (f"Your {topic} is {{v}}.",),
    )  # fmt: skip


KINDS = (
    Kind(
        "name", _name,
        ("My name is {v}.", "I am {v}.", "I'm {v}.", "Call me {v}.", "Hi, I am {v}.", "Hello, my name is {v}.",
         "Hi! My name is {v}.", "You can call me {v}.", "This is {v}.", "my name is {v}"),
        ("What is my name?", "What's my name?", "Who am I?", "Do you remember my name?", "Do you know my name?",
         "How am I called?", "Say my name.", "Can you tell me my name?", "what is my name"),
        ("Your name is {v}.",),
    ),
    Kind(
        "home", _city,
        ("I live in {v}.", "My home is in {v}.", "I am from {v}.", "My home town is {v}.", "I moved to {v}."),
        ("Where do I live?", "In which city do I live?", "Which city am I from?", "What is my home town?",
         "Do you remember where I live?", "Where am I from?"),
        ("You live in {v}.",),
    ),
    Kind(
        "age", _number(5, 95),
        ("I am {v} years old.", "I'm {v} years old.", "My age is {v}.", "I am {v}.", "I turned {v} today."),
        ("How old am I?", "What is my age?", "What's my age?", "Do you remember how old I am?", "Tell me my age."),
        ("You are {v} years old.",),
    ),
    Kind(
        "job", _of(JOBS),
        ("I work as a {v}.", "I am a {v}.", "My job is {v}.", "I'm a {v} by trade."),
        ("What is my job?", "What do I do for a living?", "What do I work as?", "What's my job?",
         "What is my profession?"),
        ("You work as a {v}.",),
    ),
    _simple("favourite colour", _of(COLOURS), "I like {v} best of all colours.", "My favorite color is {v}.",
            asked=("Which colour do I like best?", "What is my favorite color?", "Which colour is my favourite?")),
    _simple("favourite food", _of(FOODS), "I like to eat {v} most.", "I love {v}.", "My favorite food is {v}.",
            asked=("What do I like to eat?", "What is my favorite food?", "Which food do I like?")),
    _simple("hobby", _of(HOBBIES), "I enjoy {v}.", "In my free time I do {v}.", "I love {v} in my free time.",
            asked=("What do I do in my free time?", "What do I enjoy?")),
    _simple("dog's name", _pet, "My dog is called {v}.", "I have a dog named {v}.", "I have a dog called {v}.",
            asked=("How is my dog called?", "What is the name of my dog?", "What is my dog called?")),
    _simple("cat's name", _pet, "My cat is called {v}.", "I have a cat named {v}.", "We have a cat called {v}.",
            asked=("How is my cat called?", "What is the name of my cat?", "What is my cat called?")),
    _simple("sister's name", _name, "My sister is called {v}.", "I have a sister named {v}.",
            asked=("What is my sister called?", "What is the name of my sister?")),
    _simple("brother's name", _name, "My brother is called {v}.", "I have a brother named {v}.",
            asked=("What is my brother called?", "What is the name of my brother?")),
    _simple("boss", _name, "I work for {v}.", asked=("Who is my boss?", "Who do I work for?")),
    _simple("best friend", _name, asked=("Who is my best friend?", "What is my best friend called?")),
    _simple("room number", _number(1, 999), "I am in room {v}.", "I stay in room {v}.",
            asked=("Which room am I in?", "In which room do I stay?")),
    _simple("door code", _code, "The code of my door is {v}.", "The door code is {v}.",
            asked=("What is the code of my door?", "What is the door code?")),
    _simple("password", _code, "The password is {v}.", asked=("What is the password?", "Which password did I give you?")),
    _simple("lucky number", _number(1, 99), "The number {v} brings me luck.",
            asked=("Which number brings me luck?",)),
    _simple("birthday", _date, "I was born on {v}.", "I have my birthday on {v}.",
            asked=("When is my birthday?", "When was I born?")),
    _simple("flight number", lambda rng: f"{pick(rng, 'ABCKLU')}{pick(rng, 'ABFHSX')}{whole(rng, 100, 999)}",
            "I am on flight {v}.", asked=("Which flight am I on?",)),
    _simple("order number", _number(1000, 99999), "I placed order {v}.", asked=("Which order did I place?",)),
    _simple("shoe size", _number(30, 48), "I wear shoes of size {v}.", asked=("Which shoe size do I wear?",)),
    _simple("favourite animal", _of(ANIMALS), "I like the {v} best of all animals.",
            asked=("Which animal do I like best?", "What animal do I like?")),
    _simple("favourite day", _of(DAYS), "I like {v} most.", asked=("Which day do I like most?",)),
    _simple("last name", _of(LAST_NAMES), "My family name is {v}.", asked=("What is my family name?",)),
    _simple("instrument", _of(INSTRUMENTS), "I play the {v}.", asked=("What do I play?", "Which instrument do I play?")),
    _simple("native language", _of(LANGUAGES), "At home we speak {v}.", asked=("Which language do we speak at home?",)),
    Kind(
        "meeting", _clock,
        ("My meeting is at {v}.", "I have a meeting at {v}.", "The meeting starts at {v}."),
        ("When is my meeting?", "At what time is my meeting?", "When does the meeting start?", "What time is the meeting?"),
        ("Your meeting is at {v}.",),
    ),
    Kind(
        "keys", _of(PLACES),
        ("My keys are in the {v}.", "I put my keys in the {v}.", "I left my keys in the {v}."),
        ("Where are my keys?", "Where did I put my keys?", "Where did I leave my keys?", "Find my keys."),
        ("Your keys are in the {v}.",),
    ),
    Kind(
        "car", _of(COLOURS),
        ("My car is {v}.", "I drive a {v} car.", "I bought a {v} car."),
        ("What colour is my car?", "Which colour does my car have?", "What color is my car?"),
        ("Your car is {v}.",),
    ),
    Kind(
        "trip", _city,
        ("I want to travel to {v}.", "I am going to {v} next week.", "My next trip goes to {v}."),
        ("Where do I want to go?", "Where am I going?", "Where does my next trip go?"),
        ("You are going to {v}.",),
    ),
)  # fmt: skip

_ACKS = (
    "Noted.", "Got it.", "Thank you, I will remember that.", "Okay.", "I see.", "Good to know.",
    "Thanks for telling me.", "All right.", "I will keep that in mind.",
)  # fmt: skip
_BEFORE = (
    "",
    "",
    "",
    "",
    "By the way, ",
    "Remember this: ",
    "Please remember: ",
    "Just so you know: ",
    "Note: ",
)
_UNTOLD = (
    "You have not told me that.", "I do not know. You have not told me.", "You have not told me that yet.",
    "I do not know that. You have not told me yet.",
)  # fmt: skip


def acknowledge(rng: Random, kind: Kind, value: str) -> str:
    """A short reply to something told."""
    if kind.topic == "name" and chance(rng, 0.8):
        return pick(rng, ("Nice to meet you, {}.", "Hello, {}!", "Hi {}! How can I help?")).format(
            value
        )
    return pick(rng, _ACKS)


def _tell(rng: Random, kind: Kind, value: str) -> str:
    text = with_article(pick(rng, kind.told).format(v=value))
    before = pick(rng, _BEFORE)
    if before and not text.startswith(("I ", "I'", "Hi", "Hello")):
        text = text[0].lower() + text[1:]
    return before + text


def _history(rng: Random, facts: list[tuple[Kind, str]]) -> list[Message]:
    """The facts told in one to five turns, with answers and perhaps other talk between."""
    messages: list[Message] = []
    rest = list(facts)
    while rest:
        take = min(len(rest), pick(rng, (1, 1, 2, 3)))
        now, rest = rest[:take], rest[take:]
        messages.append(user(" ".join(_tell(rng, kind, value) for kind, value in now)))
        messages.append(said(acknowledge(rng, *now[0])))
        if chance(rng, 0.2):
            messages += small_exchange(rng)
    return messages


def _draw_facts(rng: Random, count: int) -> list[tuple[Kind, str]]:
    return [(kind, kind.draw(rng)) for kind in some(rng, KINDS, count)]


def conversation_key(messages: list[Message]) -> str:
    """What holds a conversation out."""
    return "\n".join(m.content for m in messages if m.role != "system")


def told(rng: Random) -> Example:
    """A fact that the user told of himself, asked later."""
    facts = _draw_facts(rng, pick(rng, (1, 1, 2, 2, 3, 4, 5)))
    kind, value = pick(rng, facts)
    question = pick(rng, kind.asked)
    answer = with_article(pick(rng, kind.answers).format(v=value))
    if chance(rng, 0.2):  # all in one message
        text = " ".join(_tell(rng, k, v) for k, v in facts)
        messages = [*frame(rng), user(f"{text} {ask(rng, question, lower=0)}")]
    else:
        messages = [*frame(rng), *_history(rng, facts), user(ask(rng, question))]
    thinking = Thinking(
        f"The user told me: {value}.",
        f"The user asks about the {kind.topic}. The user told me before: {value}.",
        f"The other things do not matter here. So the answer is {value}.",
    )
    return answered(
        rng, "recall", messages, thinking, answer, key=conversation_key(messages), answer=value
    )


def untold(rng: Random) -> Example:
    """A question on something that was not told."""
    facts = _draw_facts(rng, pick(rng, (1, 2, 2, 3, 4)))
    (kind, _), told_facts = facts[0], facts[1:]
    messages = [*frame(rng), *_history(rng, told_facts), user(ask(rng, pick(rng, kind.asked)))]
    thinking = Thinking(
        "The user did not tell me.",
        f"The user asks about the {kind.topic}. I look through the conversation. It was not told.",
        "I must not guess. So I say that I was not told.",
    )
    final = pick(rng, _UNTOLD)
    return (
        answered(
            rng,
            "recall",
            messages,
            thinking,
            final,
            key=conversation_key(messages),
            answer="told me",
        )
        if "told me" in final
        else answered(
            rng,
            "recall",
            messages,
            thinking,
            final,
            key=conversation_key(messages),
            answer="tell me",
        )
    )


def acknowledged(rng: Random) -> Example:
    """The reply to a fact told."""
    facts = _draw_facts(rng, pick(rng, (1, 1, 2, 3)))
    *before, (kind, value) = facts
    messages = [*frame(rng), *_history(rng, before), user(_tell(rng, kind, value))]
    thinking = Thinking(
        "The user tells me something.",
        f"The user tells me about the {kind.topic}: {value}. I only need to confirm.",
        "I will remember it for later questions.",
    )
    final = acknowledge(rng, kind, value)
    return answered(rng, "chat", messages, thinking, final, key=conversation_key(messages))


@dataclass(frozen=True, slots=True)
class Trait:
    """A fact of another person or thing, told in the third person, with {n} and {v}."""

    draw: Draw
    told: str
    asked: tuple[str, ...]
    who: tuple[str, ...]


TRAITS = (
    Trait(_city, "{n} lives in {v}.", ("Where does {n} live?", "In which city does {n} live?"), ("Who lives in {v}?",)),
    Trait(_of(JOBS), "{n} works as a {v}.", ("What does {n} work as?", "What is {n}'s job?"), ("Who works as a {v}?", "Who is the {v}?")),
    Trait(_number(5, 95), "{n} is {v} years old.", ("How old is {n}?", "What is {n}'s age?"), ("Who is {v} years old?",)),
    Trait(_of(FOODS), "{n} likes {v}.", ("What does {n} like?", "What does {n} like to eat?"), ("Who likes {v}?",)),
    Trait(_of(COLOURS), "{n} has a {v} car.", ("What colour is {n}'s car?", "Which colour is the car of {n}?"), ("Who has a {v} car?",)),
    Trait(_of(OBJECTS), "{n} bought a {v}.", ("What did {n} buy?",), ("Who bought a {v}?",)),
    Trait(_of(HOBBIES), "{n} enjoys {v}.", ("What does {n} enjoy?", "What is {n}'s hobby?"), ("Who enjoys {v}?",)),
    Trait(_of(PLACES), "{n} is in the {v}.", ("Where is {n}?",), ("Who is in the {v}?",)),
    Trait(_clock, "{n} arrives at {v}.", ("When does {n} arrive?", "At what time does {n} arrive?"), ("Who arrives at {v}?",)),
    Trait(_of(DAYS), "{n} comes on {v}.", ("When does {n} come?", "On which day does {n} come?"), ("Who comes on {v}?",)),
    Trait(_pet, "{n} has a dog named {v}.", ("What is {n}'s dog called?", "What is the name of {n}'s dog?"), ("Who has a dog named {v}?",)),
    Trait(_of(LANGUAGES), "{n} speaks {v}.", ("Which language does {n} speak?", "What does {n} speak?"), ("Who speaks {v}?",)),
    Trait(_of(INSTRUMENTS), "{n} plays the {v}.", ("What does {n} play?", "Which instrument does {n} play?"), ("Who plays the {v}?",)),
)  # fmt: skip
_READ = (
    "Read this: {t} {q}", "{t} {q}", "{t}\n\n{q}", "Text: {t}\nQuestion: {q}", "{q}\n\n{t}",
    "Here is a text: {t} {q}", "Context: {t}\n{q}", "Answer from the text. {t} {q}",
)  # fmt: skip
_FACT_SHEET = (
    "Known facts: {}",
    "{}",
    "Use these facts: {}",
    "Here is what you know. {}",
    "Context: {}",
)


_ALIKE = tuple(
    alike
    for start in sorted({n[:2] for n in FIRST_NAMES})
    if len(alike := tuple(n for n in FIRST_NAMES if n.startswith(start))) > 2
)


def draw_people(rng: Random, count: int) -> list[str]:
    """Different names; often ones that begin alike."""
    names: list[str] = []
    if count > 1 and chance(rng, 0.35):
        alike = pick(rng, _ALIKE)
        names = some(rng, alike, min(len(alike), whole(rng, 2, 3), count))
    while len(names) < count:
        name = _name(rng)
        if name not in names:
            names.append(name)
    rng.shuffle(names)
    return names


def passage(rng: Random) -> Example:
    """A question on a short text: in the same message, earlier, or in the instructions."""
    count = whole(rng, 1, 5)
    names = draw_people(rng, count)
    one_trait = pick(rng, TRAITS)
    same = chance(rng, 0.5)
    rows: list[tuple[str, Trait, str]] = []
    values: set[str] = set()
    for name in names:
        trait = one_trait if same else pick(rng, TRAITS)
        value = trait.draw(rng)
        while value in values:
            value = trait.draw(rng)
        values.add(value)
        rows.append((name, trait, value))
    text = " ".join(with_article(trait.told.format(n=n, v=v)) for n, trait, v in rows)
    name, trait, value = pick(rng, rows)
    question = pick(rng, trait.asked).format(n=name, v=value)
    answer = with_article(trait.told.format(n=name, v=value))
    messages = with_text(rng, text, question)
    thinking = Thinking(
        f"It says: {answer}",
        f'The question is: "{question}" I look in the text. It says: {answer}',
        f"So the answer is {value}.",
    )
    return answered(
        rng, "recall", messages, thinking, answer, key=conversation_key(messages), answer=value
    )


def with_text(rng: Random, text: str, question: str) -> list[Message]:
    """A text and a question on it: in one message, in two, or the text in the instructions."""
    x = rng.random()
    if x < 0.45:
        return [*frame(rng), user(pick(rng, _READ).format(t=text, q=question))]
    if x < 0.75:
        messages = [*frame(rng), user(text), said(pick(rng, _ACKS))]
        if chance(rng, 0.25):
            messages += small_exchange(rng)
        return [*messages, user(ask(rng, question, lower=0))]
    sheet = pick(rng, _FACT_SHEET).format(text)
    return [Message(role="developer", content=sheet), user(ask(rng, question, lower=0))]

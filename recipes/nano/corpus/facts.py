"""Questions on the fixed facts: combinations of fact and wording are held out, never facts."""

from random import Random

from recipes.nano.corpus.build import Thinking, answered, ask, capital, frame, pick, said, user
from recipes.nano.corpus.fact_tables import TABLES
from recipes.nano.example import Example, is_heldout_key
from recipes.nano.words import CAPITALS, COUNTRIES
from rose.server.chat.format import Message

_WEIGHTED = tuple(
    table for table in TABLES for _ in range(max(1, round(len(table.rows) ** 0.75 / 4)))
)
_MORE = (
    "I know this fact well.",
    "This is a known fact.",
    "I am sure of it.",
    "That is all that is asked.",
)


def draw_fact(rng: Random) -> tuple[str, str, str, str]:
    """A fact.

    Returns:
        The question, the full answer, the object that the answer must hold and the key.
    """
    table = pick(rng, _WEIGHTED)
    subject, value = pick(rng, table.rows)
    form = pick(rng, table.questions)
    question = capital(form.format(s=subject, o=value))
    template = pick(rng, table.answers).replace("{s^}", capital(subject))
    answer = capital(template.format(s=subject, o=value))
    expected = value
    if "{o}" in form:  # asked the other way round
        expected = subject
    return question, answer, expected.rstrip("."), f"fact {question}"


def fact(rng: Random) -> Example:
    """A question whose answer the model has learned."""
    question, answer, expected, key = draw_fact(rng)
    thinking = Thinking(
        answer,
        f'The user asks: "{question}" {answer}',
        pick(rng, _MORE),
    )
    messages = frame(rng)
    if rng.random() < 0.12:
        messages += small_exchange(rng)
    messages.append(user(ask(rng, question)))
    return answered(rng, "facts", messages, thinking, answer, key=key, answer=expected)


def small_exchange(rng: Random) -> list[Message]:
    """A question and its answer, as history; never one that is held out."""
    while True:
        question, answer, _, key = draw_fact(rng)
        if not is_heldout_key(key):
            return [user(question), said(answer)]


def capital_follow_up(rng: Random) -> Example:
    """The capital of one country, and then just `And of Italy?`."""
    one, two = rng.sample(COUNTRIES, 2)
    form = pick(rng, ("And of {}?", "And {}?", "What about {}?", "And the capital of {}?"))
    answer = f"The capital of {two} is {CAPITALS[two]}."
    messages = [
        *frame(rng),
        user(ask(rng, f"What is the capital of {one}?")),
        said(f"The capital of {one} is {CAPITALS[one]}."),
        user(form.format(two)),
    ]
    thinking = Thinking(answer, f"Now the user asks for the capital of {two}. {answer}", _MORE[0])
    return answered(
        rng, "facts", messages, thinking, answer, key=f"{one}>{form.format(two)}",
        answer=CAPITALS[two],
    )  # fmt: skip

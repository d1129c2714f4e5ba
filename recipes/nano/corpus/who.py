"""Which of several people did something: the sentences are read in order until one fits."""

from random import Random

from recipes.nano.corpus.build import Thinking, answered, chance, pick, whole, with_article
from recipes.nano.corpus.recall import TRAITS, Trait, conversation_key, draw_people, with_text
from recipes.nano.example import Example


def _rows(rng: Random) -> list[tuple[str, Trait, str]]:
    """One sentence per person, no two alike; many of the same verb."""
    count = pick(rng, (2, 3, 3, 4, 4, 5, 6))
    traits = [pick(rng, TRAITS) for _ in range(pick(rng, (1, 1, 2, 3, count)))]
    rows: list[tuple[str, Trait, str]] = []
    used: set[str] = set()
    for name in draw_people(rng, count):
        trait = pick(rng, traits)
        value = trait.draw(rng)
        while value in used:
            value = trait.draw(rng)
        used.add(value)
        rows.append((name, trait, value))
    return rows


def _predicate(trait: Trait, value: str) -> str:
    """What stands after the name, without the stop."""
    return with_article(trait.told.format(n="", v=value)).strip().rstrip(".")


def _text(rows: list[tuple[str, Trait, str]]) -> str:
    return " ".join(with_article(t.told.format(n=n, v=v)) for n, t, v in rows)


def _nobody(rng: Random, rows: list[tuple[str, Trait, str]]) -> Example:
    """The question is about a sentence that was taken out of the text."""
    _, trait, value = rows.pop(whole(rng, 0, len(rows) - 1))
    messages = with_text(rng, _text(rows), with_article(pick(rng, trait.who).format(v=value)))
    scan = " ".join(f"{n} {_predicate(t, v)}: no." for n, t, v in rows)
    thinking = Thinking(
        scan,
        f"I look for who {_predicate(trait, value)}. {scan} No sentence fits.",
        "I must not guess.",
    )
    return answered(
        rng, "recall", messages, thinking, "I do not know. It does not say that.",
        key=conversation_key(messages), answer="do not know",
    )  # fmt: skip


def who(rng: Random) -> Example:
    """Who it is that the text says something of; at times it is nobody."""
    rows = _rows(rng)
    if len(rows) > 2 and chance(rng, 0.08):
        return _nobody(rng, rows)
    at = whole(rng, 0, len(rows) - 1)
    name, trait, value = rows[at]
    text = _text(rows)
    question = with_article(pick(rng, trait.who).format(v=value))
    messages = with_text(rng, text, question)
    read = [f"{n} {_predicate(t, v)}: {'yes' if i == at else 'no'}."
            for i, (n, t, v) in enumerate(rows[: at + 1])]  # fmt: skip
    scan = " ".join(read)
    wanted = _predicate(trait, value)
    answer = with_article(trait.told.format(n=name, v=value))
    thinking = Thinking(
        scan, f"I look for who {wanted}. {scan}", f"So it is {name}. No other sentence fits."
    )
    return answered(
        rng, "recall", messages, thinking, answer, key=conversation_key(messages), answer=name
    )

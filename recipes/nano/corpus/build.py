"""What all generators share: drawing, the ways people write, and putting an example together."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from recipes.nano.example import Example, Expected
from rose.server.chat.format import (
    Conversation,
    FunctionTool,
    Message,
    ReasoningEffort,
    ResponseSchema,
)

T = TypeVar("T")

INSTRUCTIONS = (
    "You are a helpful assistant.",
    "You are a helpful assistant. Be brief.",
    "Answer briefly.",
    "Be concise.",
    "Be polite and short.",
    "Answer in one sentence.",
    "You help users with their questions.",
    "You are a friendly assistant.",
    "Use the tools when they help.",
    "Answer the user's question.",
    "Be helpful and honest.",
    "Keep answers short and clear.",
    "You are an assistant in a mobile app.",
    "You answer customers of a small shop.",
    "Do not make things up.",
    "Help the user.",
)


def pick(rng: Random, items: Sequence[T]) -> T:
    """One of the items; several times as fast as `rng.choice`."""
    return items[int(rng.random() * len(items))]


def chance(rng: Random, probability: float) -> bool:
    """True with this probability."""
    return rng.random() < probability


def whole(rng: Random, low: int, high: int) -> int:
    """An integer from low to high, both included."""
    return low + int(rng.random() * (high - low + 1))


def some(rng: Random, items: Sequence[T], count: int) -> list[T]:
    """Different items in random order."""
    return rng.sample(items, count)


def draw_effort(rng: Random) -> ReasoningEffort:
    """low, medium and high in proportion 40 : 40 : 20."""
    x = rng.random()
    return "low" if x < 0.4 else "medium" if x < 0.8 else "high"


def draw_date(rng: Random) -> str | None:
    """A current date, or none in a quarter of cases."""
    if chance(rng, 0.25):
        return None
    return f"{whole(rng, 2024, 2031)}-{whole(rng, 1, 12):02d}-{whole(rng, 1, 28):02d}"


def join_and(items: Sequence[str]) -> str:
    """a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")


def with_article(text: str) -> str:
    """The text with `an` where `a` stands before a vowel."""
    return _ARTICLE.sub(r"\1n ", text)


_BEFORE = ("Please ", "Hi, ", "Hello, ", "Hey, ", "Can you tell me: ", "Quick question: ", "OK, ")
_AFTER = (" Please.", " Thanks.", " Thank you.", " Thanks!", " pls", " thx")


def ask(rng: Random, text: str, *, lower: float = 0.12) -> str:
    """A user's message as people write it: casing, punctuation, politeness vary.

    Args:
        rng: the source of chance.
        text: a clean sentence, or several.
        lower: probability of all lower case; 0 where the text's case matters.
    """
    x = rng.random()
    if x < 0.6:
        return text
    if x < 0.68:
        return text[0].lower() + text[1:]
    if x < 0.74:
        return text.rstrip(".?")
    if x < 0.82:
        first = text.split(" ", 1)[0]
        kept = first == "I" or first[1:] != first[1:].lower()
        return pick(rng, _BEFORE) + (text if kept else text[0].lower() + text[1:])
    if x < 0.88:
        return text + pick(rng, _AFTER) if text[-1] in '.?!"' else text
    if rng.random() < lower * 8:
        lowered = text.lower()
        return lowered if chance(rng, 0.4) else lowered.rstrip(".?").replace("what's", "whats")
    return text


def user(text: str) -> Message:
    """A user's message."""
    return Message(role="user", content=text)


def said(text: str) -> Message:
    """An assistant's earlier final answer."""
    return Message(role="assistant", content=text, channel="final")


def thought(text: str) -> Message:
    """An assistant's analysis."""
    return Message(role="assistant", content=text, channel="analysis")


def frame(rng: Random) -> list[Message]:
    """What stands before the talk: mostly nothing, sometimes plain instructions."""
    x = rng.random()
    if x < 0.82:
        return []
    if x < 0.95:
        return [Message(role="developer", content=pick(rng, INSTRUCTIONS))]
    return [Message(role="system", content=pick(rng, INSTRUCTIONS[:8]))]


@dataclass(frozen=True, slots=True)
class Thinking:
    """An analysis in parts: low effort writes the first, medium the second, high both and more.

    Attributes:
        low: one very short sentence.
        medium: some sentences, complete without `low`.
        more: what high effort adds to `medium`.
    """

    low: str
    medium: str
    more: str

    def at(self, effort: ReasoningEffort) -> str:
        """The analysis at an effort."""
        if effort == "low":
            return self.low
        return self.medium if effort == "medium" else f"{self.medium} {self.more}"


def answered(
    rng: Random,
    task: str,
    messages: Sequence[Message],
    thinking: Thinking,
    final: str,
    *,
    key: str,
    answer: str | None = None,
    tools: Sequence[FunctionTool] = (),
    schema: ResponseSchema | None = None,
    json_value: object | None = None,
    date: str | None = "random",
    unseen: bool = False,
    effort: ReasoningEffort | None = None,
) -> Example:
    """An example whose turn is an analysis and a final answer."""
    effort = effort or draw_effort(rng)
    return Example(
        task=task,
        conversation=Conversation(
            messages=tuple(messages),
            tools=tuple(tools),
            response_schema=schema,
            reasoning_effort=effort,
            current_date=draw_date(rng) if date == "random" else date,
        ),
        turn=(thought(thinking.at(effort)), said(final)),
        expected=Expected(answer=answer, json=json_value),
        key=key,
        unseen_tool=unseen,
    )


def call_message(name: str, arguments: Mapping[str, object]) -> Message:
    """A call as the model writes it."""
    return Message(
        role="assistant",
        content=json_text(arguments),
        channel="commentary",
        recipient=name,
    )


def json_text(value: object) -> str:
    """JSON in the one layout that the model learns."""
    return json.dumps(value, ensure_ascii=False)


def called(
    rng: Random,
    task: str,
    messages: Sequence[Message],
    thinking: Thinking,
    call: tuple[str, Mapping[str, object]],
    *,
    key: str,
    tools: Sequence[FunctionTool],
    unseen: bool = False,
    effort: ReasoningEffort | None = None,
) -> Example:
    """An example whose turn is an analysis and a call."""
    effort = effort or draw_effort(rng)
    return Example(
        task=task,
        conversation=Conversation(
            messages=tuple(messages),
            tools=tuple(tools),
            reasoning_effort=effort,
            current_date=draw_date(rng),
        ),
        turn=(thought(thinking.at(effort)), call_message(*call)),
        expected=Expected(call=call),
        key=key,
        unseen_tool=unseen,
    )

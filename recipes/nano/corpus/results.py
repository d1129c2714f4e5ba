"""Answers from tools' results."""
# ruff: noqa: E501 (tables of phrases read best with a row a line)

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from recipes.nano.corpus.build import (
    Thinking,
    answered,
    ask,
    call_message,
    called,
    capital,
    chance,
    draw_effort,
    join_and,
    pick,
    thought,
    user,
    whole,
)
from recipes.nano.corpus.requests import (
    Request,
    call_thinking,
    clash_of,
    draw_distractors,
    draw_request,
    shuffled_tools,
)
from recipes.nano.corpus.schemas import (
    draw_style,
)
from recipes.nano.corpus.tools import UNSEEN_SHARE, around, opening, request_key
from recipes.nano.corpus.values import (
    identifier,
    iso_date,
    person_name,
)
from recipes.nano.example import Example
from recipes.nano.words import ADJECTIVES, CITIES, FIRST_NAMES, OBJECTS, invented
from rose.server.chat.format import FunctionTool, Message, ReasoningEffort

_STATES = (
    "ok",
    "done",
    "success",
    "open",
    "closed",
    "pending",
    "active",
    "ready",
    "running",
    "failed",
    "new",
)
_FIELDS: tuple[tuple[str, Callable[[Random], object]], ...] = (
    ("id", identifier), ("status", lambda r: pick(r, _STATES)), ("state", lambda r: pick(r, _STATES)),
    ("count", lambda r: whole(r, 0, 500)), ("total", lambda r: whole(r, 0, 9999)),
    ("result", lambda r: invented(r)), ("name", lambda r: capital(invented(r))), ("owner", person_name),
    ("score", lambda r: whole(r, 0, 1000) / 10), ("price", lambda r: whole(r, 100, 99999) / 100),
    ("version", lambda r: f"{whole(r, 0, 9)}.{whole(r, 0, 20)}"), ("size", lambda r: whole(r, 1, 4000)),
    ("created", iso_date), ("city", lambda r: pick(r, CITIES)), ("level", lambda r: whole(r, 1, 100)),
    ("contact", lambda r: pick(r, FIRST_NAMES)), ("item", lambda r: f"{pick(r, ADJECTIVES)} {pick(r, OBJECTS)}"),
    ("duration", lambda r: whole(r, 1, 300)), ("value", lambda r: whole(r, -50, 5000)),
    ("valid", lambda r: chance(r, 0.5)), ("code", identifier), ("message", lambda r: f"{invented(r)} {pick(r, _STATES)}"),
)  # fmt: skip
_FIRST = ("", "", "", "new", "old", "total", "current", "last", "first", "user", "order")


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool returned and what to say of it.

    Attributes:
        content: the tool's message.
        gist: the values in words, for the analysis.
        final: the answer.
        answer: what the answer must hold.
    """

    content: str
    gist: str
    final: str
    answer: str


def shown(value: object) -> str:
    """A result's value as it is told."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return join_and([str(v) for v in value])
    return str(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _told(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"{capital(_words(name))}: {shown(value)}."
    return f"The {_words(name)} is {shown(value)}."


def _free_fields(rng: Random) -> dict[str, object]:
    fields: dict[str, object] = {}
    for _ in range(pick(rng, (1, 1, 2, 2, 3))):
        name, draw = pick(rng, _FIELDS)
        if chance(rng, 0.25):
            name = f"{invented(rng)}_{name}" if chance(rng, 0.5) else invented(rng)
        elif chance(rng, 0.3):
            name = f"{pick(rng, _FIRST)}_{name}".strip("_")
        fields[name] = draw(rng)
    return fields


def _layout(rng: Random, fields: dict[str, object], request: Request) -> str:
    """One of the many shapes of results."""
    x = rng.random()
    if len(fields) == 1 and x < 0.15:
        value = next(iter(fields.values()))
        return value if isinstance(value, str) else json.dumps(value)
    if x < 0.25:
        return pick(rng, (", ", "\n", "; ")).join(f"{k}: {shown(v)}" for k, v in fields.items())
    body: object = fields
    if chance(rng, 0.15) and request.arguments:
        name, value = next(iter(request.arguments.items()))
        if name not in fields:
            body = {name: value, **fields} if chance(rng, 0.6) else {**fields, name: value}
    if x < 0.35:
        body = {pick(rng, ("result", "data", "response", "output")): body}
    elif x < 0.42:
        body = {"status": "success", "data": body}
    if x > 0.93:
        return json.dumps(body, indent=2)
    return json.dumps(body, separators=(",", ":")) if x > 0.75 else json.dumps(body)


_ERRORS = (
    "not found", "timeout", "permission denied", "service unavailable", "invalid value",
    "rate limit reached", "no connection", "unknown name", "access denied", "internal error",
    "{} not found", "{} is not available", "{} does not exist", "server is busy", "missing field",
)  # fmt: skip


def _error(rng: Random, request: Request) -> Result:
    thing = next((v for v in request.arguments.values() if isinstance(v, str)), invented(rng))
    error = pick(rng, _ERRORS).format(thing)
    content = pick(rng, (
        json.dumps({"error": error}), f"Error: {error}", f"error: {error}",
        json.dumps({"status": "error", "message": error}), json.dumps({"success": False, "error": error}),
        json.dumps({"error": {"message": error}}), json.dumps({"error": error, "code": whole(rng, 400, 504)}),
    ))  # fmt: skip
    final = pick(
        rng,
        (
            "Sorry, that did not work: {}.",
            "I am sorry, the tool reports an error: {}.",
            "Sorry, there was an error: {}.",
        ),
    )
    return Result(content, f"error: {error}", final.format(error), error)


def draw_result(rng: Random, request: Request, *, errors: float = 0.1) -> Result:
    """A result for a request and the answer to give."""
    if chance(rng, errors):
        return _error(rng, request)
    domain = request.domain
    if domain is None or not domain.results:
        fields = _free_fields(rng)
    else:
        fields = {pick(rng, names): draw(rng) for names, draw in domain.results}
        if chance(rng, 0.12):
            fields = {k: [] if isinstance(v, list) else v for k, v in fields.items()}
    if [] in fields.values():
        return Result(json.dumps(fields), "nothing", "Nothing was found.", "Nothing was found")
    texts = [shown(v) for v in fields.values()]
    final = " ".join(_told(name, value) for name, value in fields.items())
    answer = texts[0]
    if domain is not None and domain.results and domain.finals and chance(rng, 0.6):
        form = pick(rng, domain.finals)
        answer = texts[0] if "{0}" in form or "{1}" not in form else texts[1]
        final = form.format(*texts, **request.spoken)
        if "{0}" not in form and "{1}" not in form:
            answer = final
    gist = ", ".join(f"{k}: {v}" for k, v in zip(fields, texts, strict=True)).rstrip(".")
    if chance(rng, 0.07):
        return Result(final, final.rstrip("."), final, answer)
    return Result(_layout(rng, fields, request), gist, final, answer)


def result_thinking(request: Request, result: Result) -> Thinking:
    """How an answer comes from the result."""
    name = request.built.tool.name
    return Thinking(
        "I have the result.",
        f"{name} gave {result.gist}. I tell this to the user.",
        "I only use what the result says. No other call is needed.",
    )


def tool_message(request: Request, content: str) -> Message:
    """A tool's message."""
    return Message(role="tool", content=content, name=request.built.tool.name)


def performed(
    request: Request, result: Result, thinking: Thinking, effort: ReasoningEffort
) -> list[Message]:
    """A call that was made and its result."""
    return [
        thought(thinking.at(effort)),
        call_message(*request.call),
        tool_message(request, result.content),
    ]


def use_result(rng: Random) -> Example:
    """The answer after one call."""
    style = draw_style(rng)
    request = draw_request(rng, style, unseen=chance(rng, UNSEEN_SHARE))
    tools = around(rng, style, request)
    effort = draw_effort(rng)
    result = draw_result(rng, request)
    asked = user(ask(rng, request.text, lower=0))
    calling = call_thinking(rng, request, tools)
    messages = [*opening(rng), asked, *performed(request, result, calling, effort)]
    return answered(
        rng, "tool_result", messages, result_thinking(request, result), result.final,
        key=f"{request_key(request)} {result.content}", answer=result.answer, tools=tools,
        unseen=request.built.unseen, effort=effort,
    )  # fmt: skip


def next_request(rng: Random) -> Example:
    """A second request, after the first was called for and answered."""
    style = draw_style(rng)
    first = draw_request(rng, style, unseen=False)
    second = draw_request(rng, style, unseen=chance(rng, UNSEEN_SHARE))
    if clash_of(first) == clash_of(second) or first.built.tool.name == second.built.tool.name:
        return next_request(rng)
    tools = tools_of_both(rng, style, first, second)
    effort = draw_effort(rng)
    result = draw_result(rng, first)
    messages = [
        *opening(rng),
        user(ask(rng, first.text, lower=0)),
        *performed(first, result, call_thinking(rng, first, tools), effort),
        Message(role="assistant", content=result.final, channel="final"),
        user(ask(rng, second.text, lower=0)),
    ]
    return called(
        rng, "tool_call", messages, call_thinking(rng, second, tools), second.call,
        key=request_key(second), tools=tools, unseen=second.built.unseen, effort=effort,
    )  # fmt: skip


def tools_of_both(rng: Random, style: str, one: Request, two: Request) -> tuple[FunctionTool, ...]:
    """The tools of two requests among others."""
    clashes = frozenset({clash_of(one), clash_of(two)})
    others = draw_distractors(rng, style, pick(rng, (0, 0, 1, 2)), clashes, one.built)
    mine = [one.built] if one.built.tool.name == two.built.tool.name else [one.built, two.built]
    names = {b.tool.name for b in mine}
    return shuffled_tools(rng, [*mine, *(o for o in others if o.tool.name not in names)])

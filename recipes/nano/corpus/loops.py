"""Requests that need two calls, one after the other."""

import json
from collections.abc import Sequence
from random import Random

from recipes.nano.corpus.build import (
    Thinking,
    answered,
    ask,
    called,
    capital,
    chance,
    draw_effort,
    pick,
    user,
    whole,
)
from recipes.nano.corpus.domains import Domain
from recipes.nano.corpus.requests import (
    Request,
    call_thinking,
    clash_of,
    domain_request,
    draw_request,
)
from recipes.nano.corpus.results import Result, draw_result, performed, tools_of_both
from recipes.nano.corpus.schemas import (
    DOMAINS,
    Built,
    arguments_of,
    build_domain,
    draw_style,
    parameter_style,
    styled,
)
from recipes.nano.corpus.tools import opening
from recipes.nano.corpus.values import CITY, COMPANY, ID, PERSON, WORD, identifier, person_name
from recipes.nano.example import Example, is_unseen_tool
from recipes.nano.words import invented
from rose.server.chat.format import FunctionTool

_THEN = ("{} Then {}", "{} And then {}", "First: {} Second: {}", "{} After that: {}", "{} Also: {}")


def _two_places(rng: Random, style: str) -> tuple[str, Request, Request] | None:
    """One question on two things, such as the weather in two cities."""
    domain = pick(rng, _PLACE_DOMAINS)
    built = build_domain(rng, domain, style=style, unseen=False)
    one = domain_request(rng, domain, built)
    if any(slot.say and one.spoken[slot.key] for slot in domain.slots):
        return None
    slot = domain.slots[0]
    value, said = slot.kind.draw(rng)
    if said == one.spoken[slot.key] or one.text.count(one.spoken[slot.key]) != 1:
        return None
    text = one.text.replace(one.spoken[slot.key], f"{one.spoken[slot.key]} and {said}")
    two = Request(
        "", built, arguments_of(built, {slot.key: value}), {**one.spoken, slot.key: said}, domain
    )
    return text, one, two


def _place_domains() -> tuple[Domain, ...]:
    return tuple(
        d for d in DOMAINS
        if d.results and d.slots and sum(not s.say for s in d.slots) == 1
        and d.slots[0].kind in (CITY, PERSON, COMPANY, WORD, ID)
    )  # fmt: skip


_PLACE_DOMAINS = _place_domains()


def loop(rng: Random) -> Example:
    """Two calls one after the other: the first, the second or the answer."""
    style = draw_style(rng)
    if chance(rng, 0.35):
        return _look_up_first(rng, style)
    pair = _two_places(rng, style) if chance(rng, 0.45) else None
    if pair:
        text, one, two = pair
    else:
        one = draw_request(rng, style, unseen=False)
        two = draw_request(rng, style, unseen=False)
        if clash_of(one) == clash_of(two) or one.built.tool.name == two.built.tool.name:
            return _look_up_first(rng, style)
        text = pick(rng, _THEN).format(_closed(one.text), two.text)
    tools = tools_of_both(rng, style, one, two)
    return _stage(
        rng, text, one, two, tools, draw_result(rng, one, errors=0), draw_result(rng, two, errors=0)
    )


def _closed(text: str) -> str:
    return text if text[-1] in ".?!" else f"{text}."


def _stage(
    rng: Random, text: str, one: Request, two: Request, tools: Sequence[FunctionTool],
    first: Result, second: Result, *, final: str | None = None,
) -> Example:  # fmt: skip
    """One of the three steps of a chain of two calls."""
    effort = draw_effort(rng)
    messages = [*opening(rng), user(ask(rng, text, lower=0))]
    a, b = one.built.tool.name, two.built.tool.name
    plan = call_thinking(rng, one, tuple(tools))
    start = Thinking(
        f"First use {a}.", f"Two calls are needed: {a}, then {b}. {plan.medium}", plan.more
    )
    step = pick(rng, (0, 1, 1, 2, 2))
    key = f"loop {text}"
    if step == 0:
        return called(
            rng, "tool_loop", messages, start, one.call, key=key, tools=tools, effort=effort
        )
    messages += performed(one, first, start, effort)
    plan = call_thinking(rng, two, tuple(tools))
    more = Thinking(
        f"Now use {b}.",
        f"{a} gave {first.gist}. The second call is needed. {plan.medium}",
        plan.more,
    )
    if step == 1:
        return called(
            rng,
            "tool_loop",
            messages,
            more,
            two.call,
            key=f"{key} {first.content}",
            tools=tools,
            effort=effort,
        )
    messages += performed(two, second, more, effort)
    done = Thinking(
        "I have both results.",
        f"{a} gave {first.gist}. {b} gave {second.gist}. I tell this to the user.",
        "I only use what the results say. No other call is needed.",
    )
    return answered(
        rng, "tool_loop", messages, done, final or f"{first.final} {second.final}",
        key=f"{key} {first.content} {second.content}", answer=second.answer, tools=tools,
        effort=effort,
    )  # fmt: skip


_ENTITIES = (
    "user",
    "customer",
    "order",
    "product",
    "ticket",
    "contact",
    "employee",
    "device",
    "account",
    "project",
    "invoice",
    "room",
)
_GETTERS = ("find", "get", "lookup", "search", "fetch")
_ACTIONS = (
    "delete",
    "block",
    "archive",
    "update",
    "close",
    "notify",
    "restart",
    "cancel",
    "approve",
    "export",
    "lock",
    "print",
    "get_status_of",
    "check",
)


def _look_up_first(rng: Random, style: str) -> Example:
    """An id must be looked up by name before the wanted call can be made."""
    while True:
        entity, action = pick(rng, _ENTITIES), pick(rng, _ACTIONS)
        entity = invented(rng) if chance(rng, 0.25) else entity
        getter = f"{pick(rng, _GETTERS)}_{entity}{pick(rng, ('', '_id', '_by_name'))}"
        actor = f"{action}_{entity}"
        if not (is_unseen_tool(getter) or is_unseen_tool(actor)):
            break
    inner = parameter_style(style)
    by = styled(pick(rng, ("name", "query", "title", f"{entity}_name")), inner)
    number = chance(rng, 0.3)
    with_id = styled(pick(rng, ("id", f"{entity}_id", "target", "target_id")), inner)
    found = whole(rng, 1, 9999) if number else identifier(rng)
    name = person_name(rng) if chance(rng, 0.6) else capital(invented(rng))
    get_tool = _tool(
        rng, styled(getter, style), f"Find the id of a {entity} by name.", by, "string"
    )
    act_words = action.replace("_", " ")
    act_tool = _tool(
        rng,
        styled(actor, style),
        f"{capital(act_words)} a {entity} by its id.",
        with_id,
        "integer" if number else "string",
    )
    text = pick(
        rng,
        (
            "{v} the {e} {n}.",
            "Please {w} the {e} {n}.",
            "{v} {e} {n}.",
            "Can you {w} the {e} {n}?",
            "I want to {w} the {e} called {n}.",
        ),
    ).format(v=capital(act_words), w=act_words, e=entity, n=name)
    one = Request(text, Built(get_tool, (), False), {by: name}, {}, None)
    two = Request("", Built(act_tool, (), False), {with_id: found}, {}, None)
    key_name = pick(rng, ("id", f"{entity}_id"))
    content = json.dumps({key_name: found} if chance(rng, 0.5) else {"name": name, key_name: found})
    first = Result(content, f"{key_name}: {found}", "", str(found))
    second = draw_result(rng, two, errors=0)
    return _stage(
        rng, text, one, two, tools_of_both(rng, style, one, two), first, second, final=second.final
    )


def _tool(rng: Random, name: str, about: str, parameter: str, kind: str) -> FunctionTool:
    described = chance(rng, 0.75)
    return FunctionTool(
        name=name,
        description=about if described else "",
        parameters={
            "type": "object",
            "properties": {parameter: {"type": kind}},
            "required": [parameter],
        },
    )

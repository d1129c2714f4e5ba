"""Calls of declared tools, and when not to call."""
# ruff: noqa: SIM905 (word lists are kept as text)

from collections.abc import Callable
from dataclasses import replace
from random import Random

from recipes.nano.corpus import arithmetic, chat, facts, open_prompts, recall, who
from recipes.nano.corpus import messages as messages_of
from recipes.nano.corpus.build import (
    Thinking,
    answered,
    ask,
    called,
    chance,
    frame,
    pick,
    said,
    user,
)
from recipes.nano.corpus.domains import Domain
from recipes.nano.corpus.requests import (
    Request,
    call_thinking,
    clash_of,
    draw_distractors,
    draw_request,
    shuffled_tools,
)
from recipes.nano.corpus.schemas import DOMAINS, Built, arguments_of, build_domain, draw_style
from recipes.nano.corpus.synthetic import bare_request, synthetic_tool
from recipes.nano.corpus.values import NOTE
from recipes.nano.example import Example
from rose.server.chat.format import FunctionTool, Message

UNSEEN_SHARE = 0.1
_COUNTS = (0, 0, 1, 1, 2, 2, 3, 4)
_BARE_DOMAINS = tuple(d for d in DOMAINS if d.bare)
_ONE_ARGUMENT = tuple(d for d in _BARE_DOMAINS if sum(not s.say for s in d.slots) == 1)
_KNOWING = frozenset({"search", "calculator", "population", "currency", "units", "weather", "time"})


def around(rng: Random, style: str, request: Request) -> tuple[FunctionTool, ...]:
    """The request's tool among others."""
    others = draw_distractors(
        rng, style, pick(rng, _COUNTS), frozenset({clash_of(request)}), request.built
    )
    return shuffled_tools(rng, [request.built, *others])


def opening(rng: Random) -> list[Message]:
    """Instructions, and at times an earlier exchange."""
    messages = frame(rng)
    if chance(rng, 0.12):
        messages += facts.small_exchange(rng)
    elif chance(rng, 0.05):
        messages += [user(pick(rng, ("Hi", "Hello", "Hey"))), said("Hello! How can I help?")]
    return messages


def request_key(request: Request) -> str:
    """What holds a request out."""
    return f"tool {request.text}"


_ORDERS = frozenset(
    """Add Book Buy Calculate Call Cancel Check Convert Create Delete Email Find Generate Get Give
    List Look Mail Make Message Open Order Pay Play Put Read Record Remind Remove Reserve Run Save
    Schedule Search Send Set Show Start Switch Tell Text Transfer Translate Turn Write""".split()
)


def politely(rng: Random, text: str) -> str:
    """An order as a question at times: can you ... ?"""
    if text.split(" ", 1)[0] not in _ORDERS or "." in text[:-1] or chance(rng, 0.8):
        return text
    form = pick(rng, ("Can you {}?", "Could you {}?", "Can you please {}?", "I want you to {}."))
    return form.format(text[0].lower() + text[1:].rstrip("."))


def call(rng: Random) -> Example:
    """A request that one of the tools serves."""
    style = draw_style(rng)
    request = draw_request(rng, style, unseen=chance(rng, UNSEEN_SHARE))
    tools = around(rng, style, request)
    messages = [*opening(rng), user(ask(rng, politely(rng, request.text), lower=0))]
    return called(
        rng, "tool_call", messages, call_thinking(rng, request, tools), request.call,
        key=request_key(request), tools=tools, unseen=request.built.unseen,
    )  # fmt: skip


_CANNOT = (
    "Sorry, I cannot do that. I have no tool for it.", "I cannot do that with my tools.",
    "I am sorry, I cannot help with that. None of my tools fits.",
    "I cannot do that. No tool that I have can do it.",
)  # fmt: skip


def unfit(rng: Random) -> Example:
    """A request that none of the tools serves."""
    style = draw_style(rng)
    request = draw_request(rng, style, unseen=False)
    while clash_of(request) in _KNOWING:
        request = draw_request(rng, style, unseen=False)
    avoid = frozenset({clash_of(request), "search"})
    if chance(rng, 0.15):
        request, avoid = messages_of.draw_free_text(rng, style)[0], messages_of.MESSAGE_CLASHES
    others = draw_distractors(rng, style, pick(rng, (1, 1, 2, 3)), avoid)
    tools = shuffled_tools(rng, others)
    thinking = Thinking(
        "No tool fits.",
        f"The tools are {', '.join(t.name for t in tools)}. None of them fits this request.",
        "I must not call a wrong tool. So I say that I cannot do it.",
    )
    messages = [*opening(rng), user(ask(rng, politely(rng, request.text), lower=0))]
    return answered(
        rng, "no_tool", messages, thinking, pick(rng, _CANNOT), key=request_key(request),
        answer="cannot", tools=tools,
    )  # fmt: skip


_OPEN_CLASHES = frozenset(
    {"joke", "stock_price", "text", "email", "mail", "library", "note", "travel", "route", "phone"}
)
_PLAIN_MAKERS: tuple[tuple[Callable[[Random], Example], frozenset[str]], ...] = (
    (facts.fact, frozenset()), (facts.fact, frozenset()), (recall.told, frozenset()),
    (recall.passage, frozenset()), (who.who, frozenset()),
    (arithmetic.addition, frozenset({"currency", "units"})),
    (arithmetic.multiplication, frozenset({"currency", "units"})),
    (chat.talk, frozenset()), (chat.talk, frozenset()), (chat.identity, frozenset()),
    (open_prompts.unknown, _OPEN_CLASHES), (chat.abilities, frozenset()),
)  # fmt: skip


def plain(rng: Random) -> Example:
    """An ordinary question while tools are there that are not needed."""
    make, avoid = pick(rng, _PLAIN_MAKERS)
    example = make(rng)
    tools = draw_distractors(rng, draw_style(rng), pick(rng, (1, 1, 2, 3, 4)), avoid | _KNOWING)
    analysis, final = example.turn
    effort = example.conversation.reasoning_effort
    if effort != "low":
        no_need = "No tool fits." if example.task == "unknown" else "No tool is needed."
        analysis = replace(analysis, content=f"{analysis.content} {no_need}")
    return replace(
        example,
        task="no_tool",
        conversation=replace(example.conversation, tools=shuffled_tools(rng, tools)),
        turn=(analysis, final),
    )


def _incomplete(rng: Random, style: str) -> tuple[Built, str, str, Domain | None]:
    """A tool, a request that lacks its first required argument, that one's name, and its domain."""
    while True:
        unseen = chance(rng, UNSEEN_SHARE)
        if chance(rng, 0.3):
            built, verb, noun = synthetic_tool(rng, style, unseen=unseen)
            lacking = next((leaf for leaf in built.leaves if not leaf.slot.say), None)
            text, domain = bare_request(rng, verb, noun), None
        else:
            domain = pick(rng, _BARE_DOMAINS)
            built = build_domain(rng, domain, style=style, unseen=unseen, shuffle=False)
            lacking = next(leaf for leaf in built.leaves if leaf.slot is domain.slots[0])
            text = pick(rng, domain.bare)
        if lacking and "required" in (built.tool.parameters or {}):
            return built, text, lacking.path[-1], domain


_PLEASE_TELL = ("Please tell me the {}.", "Please give me the {}.", "I need the {} for that.")


def _in_words(parameter: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in parameter).replace("_", " ")


def missing(rng: Random) -> Example:
    """A request that lacks a required argument: the model asks for it."""
    style = draw_style(rng)
    built, text, parameter, domain = _incomplete(rng, style)
    clash = domain.clash if domain else ""
    others = draw_distractors(rng, style, pick(rng, (0, 0, 1, 2, 3)), frozenset({clash}), built)
    tools = shuffled_tools(rng, [built, *others])
    name = built.tool.name
    thinking = Thinking(
        f"{name} needs {parameter}.",
        f"The tool {name} fits, but it needs {parameter}. The user did not give it. I ask.",
        "I must not guess the value.",
    )
    words = _in_words(parameter)
    return answered(
        rng, "ask_argument", [*frame(rng), user(ask(rng, text))], thinking,
        pick(rng, _PLEASE_TELL).format(words), key=f"missing {text} {words}", answer=words,
        tools=tools, unseen=built.unseen,
    )  # fmt: skip


def completed(rng: Random) -> Example:
    """The user gives the argument that the model asked for: now it can call."""
    style = draw_style(rng)
    domain = pick(rng, _ONE_ARGUMENT)
    built = build_domain(rng, domain, style=style, unseen=chance(rng, UNSEEN_SHARE))
    slot = domain.slots[0]
    leaf = next(leaf for leaf in built.leaves if leaf.slot is slot)
    value, spoken = slot.kind.draw(rng)
    text = pick(rng, domain.bare)
    reply = (
        spoken
        if slot.kind is NOTE
        else pick(rng, ("{}", "{}", "{}.", "It is {}.", "Take {}.", "{}, please.")).format(spoken)
    )
    request = Request(
        text, built, arguments_of(built, {slot.key: value}), {slot.key: spoken}, domain
    )
    tools = around(rng, style, request)
    messages = [
        *frame(rng),
        user(ask(rng, text)),
        said(pick(rng, _PLEASE_TELL).format(_in_words(leaf.path[-1]))),
        user(reply),
    ]
    return called(
        rng, "tool_call", messages, call_thinking(rng, request, tools), request.call,
        key=f"missing {text} {reply}", tools=tools, unseen=built.unseen,
    )  # fmt: skip


def no_tools_at_all(rng: Random) -> Example:
    """A request for a tool while none is declared."""
    request = draw_request(rng, "snake", unseen=False)
    while request.domain is None or clash_of(request) in ("calculator",):
        request = draw_request(rng, "snake", unseen=False)
    if chance(rng, 0.15):
        request = messages_of.draw_free_text(rng, "snake")[0]
    thinking = Thinking(
        "I have no tool for this.",
        "The user wants something done. There are no tools. I cannot do it.",
        "I must not invent a result.",
    )
    final = pick(
        rng,
        (
            "Sorry, I cannot do that. I have no tool for it.",
            "Sorry, I cannot do that without a tool.",
            "I am sorry, I cannot help with that. I have no tools here.",
        ),
    )
    messages = [*frame(rng), user(ask(rng, politely(rng, request.text), lower=0))]
    return answered(rng, "unknown", messages, thinking, final, key=request_key(request))

"""What a user asks a tool for: the words, the tool and the call that is right."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from recipes.nano.corpus.build import Thinking, chance, json_text, pick
from recipes.nano.corpus.domains import Domain
from recipes.nano.corpus.schemas import (
    DOMAINS,
    UNSEEN_NAMES,
    Built,
    arguments_of,
    build_domain,
    near_tool,
)
from recipes.nano.corpus.synthetic import synthetic_request, synthetic_tool
from rose.server.chat.format import FunctionTool

UNSEEN_DOMAINS = tuple(d for d in DOMAINS if UNSEEN_NAMES[id(d)])


@dataclass(frozen=True, slots=True)
class Request:
    """A request that one tool serves.

    Attributes:
        text: what the user writes, clean.
        built: the tool.
        arguments: of the right call.
        spoken: how each slot's value was said, by the slot's key.
        domain: None: a synthetic tool.
    """

    text: str
    built: Built
    arguments: Mapping[str, object]
    spoken: Mapping[str, str]
    domain: Domain | None

    @property
    def call(self) -> tuple[str, Mapping[str, object]]:
        """The call."""
        return self.built.tool.name, self.arguments


def domain_request(rng: Random, domain: Domain, built: Built) -> Request:
    """A request to a tool of a domain."""
    form = pick(rng, domain.asks)
    kept = {leaf.slot.key for leaf in built.leaves}
    values: dict[str, object] = {}
    spoken: dict[str, str] = {}
    for slot in domain.slots:
        spoken[slot.key] = ""
        if slot.say and (slot.key not in kept or f"{{{slot.key}}}" not in form or chance(rng, 0.5)):
            continue
        value, said = slot.kind.draw(rng)
        values[slot.key] = value
        spoken[slot.key] = pick(rng, slot.say).format(said) if slot.say else said
    return Request(form.format(**spoken), built, arguments_of(built, values), spoken, domain)


def draw_request(rng: Random, style: str, *, unseen: bool) -> Request:
    """A request to a tool of any kind."""
    if chance(rng, 0.36):
        built, verb, noun = synthetic_tool(rng, style, unseen=unseen)
        text, values, spoken = synthetic_request(rng, built, verb, noun)
        return Request(text, built, arguments_of(built, values), spoken, None)
    domain = pick(rng, UNSEEN_DOMAINS if unseen else DOMAINS)
    return domain_request(rng, domain, build_domain(rng, domain, style=style, unseen=unseen))


def clash_of(request: Request) -> str:
    """The word of domains that may not stand beside this request's tool."""
    return request.domain.clash if request.domain else ""


def draw_distractors(
    rng: Random, style: str, count: int, avoid: frozenset[str], near: Built | None = None
) -> list[Built]:
    """Other tools: none of the domains to be avoided, no name twice."""
    found: list[Built] = []
    names = {near.tool.name} if near else set()
    clashes = set(avoid)
    while len(found) < count:
        x = rng.random()
        other: Built | None
        if x < 0.18 and near is not None:
            other = near_tool(rng, near, style)
        elif x < 0.45:
            other = synthetic_tool(rng, style, unseen=False)[0]
        else:
            domain = pick(rng, DOMAINS)
            if domain.clash in clashes:
                continue
            clashes.add(domain.clash)
            other = build_domain(rng, domain, style=style, unseen=False)
        if other is not None and other.tool.name not in names and not other.unseen:
            names.add(other.tool.name)
            found.append(other)
    return found


def shuffled_tools(rng: Random, built: list[Built]) -> tuple[FunctionTool, ...]:
    """Declarations in random order."""
    tools = [b.tool for b in built]
    rng.shuffle(tools)
    return tuple(tools)


def told_arguments(arguments: Mapping[str, object]) -> str:
    """The arguments in words for the analysis."""
    if not arguments:
        return "It takes no arguments."
    parts = [f"{name}: {json_text(value)}" for name, value in arguments.items()]
    return f"{', '.join(parts)}."


def call_thinking(rng: Random, request: Request, tools: tuple[FunctionTool, ...]) -> Thinking:
    """Why this call."""
    name, arguments = request.call
    others = [t.name for t in tools if t.name != name]
    rest = f"The other tools do not fit: {', '.join(others)}." if others else "It is the only tool."
    start = pick(
        rng, (f"The tool {name} fits.", f"I can use {name} for this.", f"This needs {name}.")
    )
    return Thinking(
        f"Use {name}.",
        f"{start} The arguments: {told_arguments(arguments)}"
        if arguments
        else f"{start} It takes no arguments.",
        f"{rest} I call {name}.",
    )

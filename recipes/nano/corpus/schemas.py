"""Tools as they are declared: names, schemas, and the arguments of a call in their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from recipes.nano.corpus.build import capital, chance, pick, whole
from recipes.nano.corpus.domains import Domain, Slot
from recipes.nano.corpus.domains_daily import DAILY
from recipes.nano.corpus.domains_work import WORK
from recipes.nano.example import is_unseen_tool
from rose.server.chat.format import FunctionTool

DOMAINS = (*DAILY, *WORK)
_GROUPS = (
    "options",
    "filters",
    "details",
    "params",
    "settings",
    "config",
    "data",
    "request",
    "extra",
)
_NEAR_VERBS = ("delete", "archive", "export", "share", "rename", "print", "count", "validate")


def _names(domain: Domain, unseen: bool) -> tuple[str, ...]:
    every = [f"{v}_{n}" if v else n for v in domain.verbs for n in domain.nouns]
    return tuple(n for n in every if is_unseen_tool(n) == unseen)


SEEN_NAMES = {id(d): _names(d, False) for d in DOMAINS}
UNSEEN_NAMES = {id(d): _names(d, True) for d in DOMAINS}


def draw_style(rng: Random) -> str:
    """How a conversation's tools write their names."""
    x = rng.random()
    return "snake" if x < 0.66 else "camel" if x < 0.88 else "kebab" if x < 0.94 else "pascal"


def styled(name: str, style: str) -> str:
    """A snake case name in another style."""
    if style == "snake":
        return name
    if style == "kebab":
        return name.replace("_", "-")
    first, *rest = name.split("_")
    return (capital(first) if style == "pascal" else first) + "".join(capital(p) for p in rest)


def parameter_style(style: str) -> str:
    """The style of parameters that goes with a style of tools' names."""
    return "camel" if style == "camel" else "snake"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A parameter in its place: the names from the arguments' top down to it."""

    path: tuple[str, ...]
    slot: Slot


@dataclass(frozen=True, slots=True)
class Built:
    """A declared tool and where its slots are.

    Attributes:
        tool: the declaration.
        leaves: its parameters in the schema's order.
        unseen: its name occurs in no training example.
    """

    tool: FunctionTool
    leaves: tuple[Leaf, ...]
    unseen: bool


def _described(rng: Random, slot: Slot, described: bool) -> dict[str, object]:
    schema = dict(slot.kind.schema)
    about = pick(rng, slot.about) if described else ""
    if about:
        schema["description"] = about
    return schema


def build(
    rng: Random,
    name: str,
    about: str,
    slots: Sequence[Slot],
    *,
    style: str,
    unseen: bool,
    shuffle: bool = True,
) -> Built:
    """Declare a tool with these slots, perhaps some in a nested object.

    Args:
        rng: the source of chance.
        name: in snake case.
        about: its description.
        slots: its parameters.
        style: of its name.
        unseen: whether its name is held out.
        shuffle: parameters may change places.
    """
    inner_style = parameter_style(style)
    described = chance(rng, 0.65)
    order = list(slots)
    if shuffle and chance(rng, 0.3):
        rng.shuffle(order)
    nested = len(order) >= 2 and chance(rng, 0.14)
    split = whole(rng, 0, len(order) - 1) if nested else len(order)
    group = pick(rng, _GROUPS)
    top: dict[str, object] = {}
    inner: dict[str, object] = {}
    leaves: list[Leaf] = []
    needed: tuple[list[str], list[str]] = ([], [])
    for i, slot in enumerate(order):
        parameter = styled(pick(rng, slot.names), inner_style)
        deep = i >= split
        into = inner if deep else top
        while parameter in into or parameter == group:
            parameter += "2"
        into[parameter] = _described(rng, slot, described)
        leaves.append(Leaf((group, parameter) if deep else (parameter,), slot))
        if not slot.say:
            needed[deep].append(parameter)
    if inner:
        top[group] = _object(inner, needed[1])
        if needed[1]:
            needed[0].append(group)
    parameters = _object(top, needed[0] if chance(rng, 0.93) else [])
    if not top and chance(rng, 0.5):
        return Built(FunctionTool(name=styled(name, style), description=about), (), unseen)
    tool = FunctionTool(name=styled(name, style), description=about, parameters=parameters)
    return Built(tool, tuple(leaves), unseen)


def _object(properties: Mapping[str, object], required: Sequence[str]) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return schema


def build_domain(
    rng: Random, domain: Domain, *, style: str, unseen: bool, shuffle: bool = True
) -> Built:
    """A tool of a domain; optional slots may be left out of its declaration."""
    names = (UNSEEN_NAMES if unseen else SEEN_NAMES)[id(domain)]
    if not names:
        unseen = not unseen
        names = (UNSEEN_NAMES if unseen else SEEN_NAMES)[id(domain)]
    slots = [s for s in domain.slots if not s.say or chance(rng, 0.62)]
    about = pick(rng, domain.about) if chance(rng, 0.78) else ""
    return build(rng, pick(rng, names), about, slots, style=style, unseen=unseen, shuffle=shuffle)


def near_tool(rng: Random, built: Built, style: str) -> Built | None:
    """A tool with another verb and the same noun; None if that name may not be used."""
    verb = pick(rng, _NEAR_VERBS)
    noun = built.tool.name.replace("-", "_").split("_", 1)
    if style not in ("snake", "kebab") or len(noun) < 2:
        return None
    name = f"{verb}_{noun[1]}"
    if is_unseen_tool(name):
        return None
    about = f"{capital(verb)} {noun[1].replace('_', ' ')}." if chance(rng, 0.6) else ""
    return Built(
        FunctionTool(
            name=styled(name, style),
            description=about,
            parameters=_object({"id": {"type": "string"}}, ["id"]),
        ),
        (),
        False,
    )


def arguments_of(built: Built, values: Mapping[str, object]) -> dict[str, object]:
    """The arguments in the schema's order, of the slots that have values."""
    arguments: dict[str, object] = {}
    for leaf in built.leaves:
        if leaf.slot.key not in values:
            continue
        into = arguments
        for part in leaf.path[:-1]:
            into = into.setdefault(part, {})  # type: ignore[assignment]
        into[leaf.path[-1]] = values[leaf.slot.key]
    return arguments

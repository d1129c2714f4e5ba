"""What a tool is before it gets its names: its slots, how it is asked for and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from recipes.nano.corpus.values import Kind


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter.

    Attributes:
        key: its place in the requests' templates, as {key}.
        names: parameter names, in snake case, of which one is drawn.
        kind: its values.
        about: descriptions; the last may be empty.
        say: of an optional one: phrases with {} to put into the request. Empty: always said.
    """

    key: str
    names: tuple[str, ...]
    kind: Kind
    about: tuple[str, ...]
    say: tuple[str, ...] = ()


def slot(key: str, names: str, kind: Kind, about: str = "", say: str = "") -> Slot:
    """A slot from compact text: names by spaces, the rest by `|`."""
    phrases = tuple(say.split("|")) if say else ()
    return Slot(key, tuple(names.split()), kind, tuple(about.split("|")), phrases)


@dataclass(frozen=True, slots=True)
class Domain:
    """A kind of tool.

    Attributes:
        verbs: first parts of names; empty for none.
        nouns: second parts of names, in snake case.
        about: descriptions.
        slots: parameters.
        asks: requests with {key} of the slots.
        bare: requests that lack the first slot.
        results: fields of a result: names and a source of values.
        finals: answers with {key} of slots and {0}, {1}.. of result fields.
        clash: domains with the same word here are never offered side by side.
    """

    verbs: tuple[str, ...]
    nouns: tuple[str, ...]
    about: tuple[str, ...]
    slots: tuple[Slot, ...]
    asks: tuple[str, ...]
    bare: tuple[str, ...] = ()
    results: tuple[tuple[tuple[str, ...], Callable[[Random], object]], ...] = ()
    finals: tuple[str, ...] = ()
    clash: str = ""


def domain(
    verbs: str,
    nouns: str,
    about: str,
    slots: tuple[Slot, ...],
    asks: tuple[str, ...],
    *,
    bare: str = "",
    results: tuple[tuple[str, Callable[[Random], object]], ...] = (),
    finals: tuple[str, ...] = (),
    clash: str = "",
) -> Domain:
    """A domain from compact text."""
    return Domain(
        tuple("" if v == "-" else v for v in verbs.split()),
        tuple(nouns.split()),
        tuple(about.split("|")),
        slots,
        asks,
        tuple(bare.split("|")) if bare else (),
        tuple((tuple(names.split()), draw) for names, draw in results),
        finals,
        clash or nouns.split()[0],
    )

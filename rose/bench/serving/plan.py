"""What is asked: prompts and budgets of tokens, each a function of the seed and its number.

So every process that takes part in a load makes its own requests and no other's, nothing is held in
memory before it is sent, and no two requests of a run share a prompt unless they are meant to.
"""

import functools
from dataclasses import dataclass

import numpy as np

from rose.bench.serving.lengths import Lengths
from rose.bench.serving.trace import TraceEntry

FIRST_ID = 10
"""Lower token ids are control tokens in many vocabularies."""

_WORDS = ("the", "rose", "grows", "by", "a", "wall", "and", "its", "leaves", "turn", "to", "light")
"""One token each, after a space, in the usual vocabularies."""

# What a random stream is for; keeps prefixes and requests apart.
_REQUEST, _PREFIX, _ORDER = range(3)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request.

    Attributes:
        prompt: token ids, or text.
        output_tokens: asked for.
    """

    prompt: list[int] | str
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All requests of one load.

    Attributes:
        seed: of everything random.
        cell: number of the load within its run: loads share no prompts, or the later ones would
            find them in the server's prefix cache.
        input: tokens of each prompt after its prefix; unused with a trace.
        output: tokens asked for; unused with a trace.
        vocab_size: ids are drawn from FIRST_ID up to it.
        prefix_tokens: that all requests of a group begin with, on top of their own.
        prefix_groups: how many such prefixes; requests take turns.
        trace: requests to send instead, in random order; after the last, the first again.
        as_text: prompts are words, about one a token, and not ids.
    """

    seed: int
    cell: int
    input: Lengths
    output: Lengths
    vocab_size: int
    prefix_tokens: int = 0
    prefix_groups: int = 1
    trace: tuple[TraceEntry, ...] = ()
    as_text: bool = False

    def __post_init__(self) -> None:
        if self.vocab_size <= FIRST_ID:
            raise ValueError(f"vocab_size must be over {FIRST_ID}; got {self.vocab_size}")

    @property
    def load_seed(self) -> tuple[int, int]:
        """Of the times at which the requests are due."""
        return self.seed, self.cell

    def request(self, number: int) -> Asked:
        """The request of this number, from 0."""
        rng = self._rng(_REQUEST, number)
        entry = self._entry(number)
        if entry is not None:
            own = entry.prompt or self._made(rng, entry.input_tokens)
            return Asked(self._with_prefix(number, own), entry.output_tokens)
        own = self._made(rng, self.input.draw(rng))
        return Asked(self._with_prefix(number, own), self.output.draw(rng))

    def _rng(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.cell, purpose, number))

    def _entry(self, number: int) -> TraceEntry | None:
        if not self.trace:
            return None
        return self.trace[self._order[number % len(self.trace)]]

    @functools.cached_property
    def _order(self) -> list[int]:
        order: list[int] = self._rng(_ORDER, 0).permutation(len(self.trace)).tolist()
        return order

    def _made(self, rng: np.random.Generator, tokens: int) -> list[int] | str:
        if self.as_text:
            return " ".join(_WORDS[i] for i in rng.integers(0, len(_WORDS), tokens).tolist())
        ids: list[int] = rng.integers(FIRST_ID, self.vocab_size, tokens).tolist()
        return ids

    def _with_prefix(self, number: int, own: list[int] | str) -> list[int] | str:
        if not self.prefix_tokens:
            return own
        prefix = self._prefixes[number % self.prefix_groups]
        if isinstance(own, str):
            return f"{prefix} {own}"
        assert isinstance(prefix, list)
        return prefix + own

    @functools.cached_property
    def _prefixes(self) -> list[list[int] | str]:
        return [
            self._made(self._rng(_PREFIX, group), self.prefix_tokens)
            for group in range(self.prefix_groups)
        ]

"""Lengths in tokens: fixed, or drawn from a distribution."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from rose.bench.results import BenchError

Kind = Literal["fixed", "uniform", "normal", "lognormal"]

_FORMS = "N, uniform:LOW:HIGH, normal:MEAN:DEVIATION or lognormal:MEDIAN:SIGMA"
LONGEST = 2**24
"""Tokens of a prompt or an answer."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths, at least 1 token.

    Attributes:
        kind: which.
        a: the length (fixed), the lowest (uniform), the mean (normal), the median (lognormal), in
            tokens.
        b: the highest (uniform) or the standard deviation (normal) in tokens; the standard
            deviation of the natural logarithm (lognormal).
    """

    kind: Kind
    a: float
    b: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Lengths":
        """From the command line's form: 512, uniform:1:512, normal:512:64, lognormal:512:0.5.

        Raises:
            BenchError: it has another form, or a length is out of range.
        """
        kind, *words = text.split(":") if ":" in text else ("fixed", text)
        if kind not in get_args(Kind) or len(words) != (1 if kind == "fixed" else 2):
            raise BenchError(f"lengths must be {_FORMS}; got {text!r}")
        if not all(re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", word) for word in words):
            raise BenchError(f"lengths must be {_FORMS}, with numbers; got {text!r}")
        a, b = [*map(float, words), 0.0][:2]
        whole = a.is_integer() and (b.is_integer() or kind in ("normal", "lognormal"))
        if not 1 <= a <= LONGEST or not whole or (kind == "uniform" and not a <= b <= LONGEST):
            raise BenchError(f"lengths are whole numbers from 1 to {LONGEST}; got {text!r}")
        return cls(kind, a, b)  # type: ignore[arg-type]  # it is one of Kind's

    def draw(self, rng: np.random.Generator) -> int:
        """One length in tokens."""
        if self.kind == "fixed":
            return int(self.a)
        if self.kind == "uniform":
            return int(rng.integers(int(self.a), int(self.b), endpoint=True))
        if self.kind == "normal":
            drawn = rng.normal(self.a, self.b)
        else:
            drawn = self.a * np.exp(rng.normal(0.0, self.b))
        return int(np.clip(np.rint(drawn), 1, LONGEST))

"""Decoders: from the logits of a step to the tokens that it accepts.

A decoder accepts between 1 and `width` tokens a row. The plain one samples a single token; a
speculative one verifies the tokens it proposed before and accepts those that agree.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SampleRows:
    """Which sequences sample in a step; on the host.

    Attributes:
        slots: int64 [rows], each row's slot.
        positions: int64 [rows], where each row's next token will stand.
    """

    slots: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]


class TokenSampler(Protocol):
    """Chooses a token for each row, by the sampling parameters of its slot."""

    def sample(self, logits: Tensor, rows: SampleRows) -> Tensor:
        """Map float32 [rows, vocabulary] to int64 [rows]; `logits` stays as it is."""
        ...


@dataclass(frozen=True, slots=True)
class AcceptedTokens:
    """What a step adds to its rows; on the device.

    Attributes:
        token_ids: int64 [rows, width].
        counts: int64 [rows], how many of them count; None: all `width`, so that nothing waits to
            learn it.
    """

    token_ids: Tensor
    counts: Tensor | None


class Decoder(Protocol):
    """Turns logits into accepted tokens.

    Attributes:
        width: the most tokens that a row accepts in a step.
    """

    width: int

    def decode(self, logits: Tensor, rows: SampleRows) -> AcceptedTokens:
        """Choose tokens from float32 [rows, vocabulary]."""
        ...


class PlainDecoder:
    """One token a row and step."""

    width = 1

    def __init__(self, sampler: TokenSampler) -> None:
        self._sampler = sampler

    def decode(self, logits: Tensor, rows: SampleRows) -> AcceptedTokens:
        """Sample one token from each row's logits."""
        return AcceptedTokens(self._sampler.sample(logits, rows)[:, None], None)

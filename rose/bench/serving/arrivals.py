"""When requests are sent: by the clock (open loop), or when an answer has ended (closed loop)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4096
"""Gaps drawn at a time. Part of what a seed means: another size draws other gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is sent: whichever of the two bounds comes first.

    Attributes:
        requests: how many, the warm-up not counted; None: as many as `duration` has.
        duration: seconds in which requests start, the warm-up not counted; None: no bound.
        warmup: requests before them that are sent alike, but are no part of the statistics.
    """

    requests: int | None
    duration: float | None
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.requests is None and self.duration is None:
            raise ValueError("an Extent needs requests, duration or both")

    @property
    def most(self) -> int | None:
        """The most requests, warm-up included; None: no bound."""
        return None if self.requests is None else self.requests + self.warmup


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests come by the clock, whether the server keeps up or not.

    Attributes:
        rate: requests a second, on average.
        poisson: gaps are exponential, as between independent users; else all are equal.
    """

    rate: float
    poisson: bool = True

    @property
    def name(self) -> str:
        """As results have it."""
        return f"{'poisson' if self.poisson else 'fixed'} {self.rate:g}/s"

    def due(self, extent: Extent, seed: int | tuple[int, int]) -> NDArray[np.float64]:
        """Seconds from the start at which each request is due, warm-up included, ascending.

        The first of equal gaps is due at 0.
        """
        times: list[NDArray[np.float64]] = []
        total, end = 0, np.inf
        for block in self._times(seed):
            if extent.duration is not None and total <= extent.warmup < total + len(block):
                end = block[extent.warmup - total] + extent.duration
            kept = block[block < end]
            times.append(kept)
            total += len(kept)
            if len(kept) < len(block) or (extent.most is not None and total >= extent.most):
                break
        return np.concatenate(times)[: extent.most]

    def _times(self, seed: int | tuple[int, int]) -> Iterator[NDArray[np.float64]]:
        """Without end, in blocks."""
        if not self.poisson:
            first = 0
            while True:
                yield np.arange(first, first + _BLOCK) / self.rate
                first += _BLOCK
        rng = np.random.default_rng(seed)
        last = 0.0
        while True:
            block = last + np.cumsum(rng.exponential(1 / self.rate, _BLOCK))
            yield block
            last = float(block[-1])


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Each of so many users sends the next request when the last answer has ended.

    A slow server is asked less: latencies under a closed loop say nothing of users who do not wait.
    """

    users: int

    @property
    def name(self) -> str:
        """As results have it."""
        return f"concurrency {self.users}"


Load = OpenLoop | ClosedLoop

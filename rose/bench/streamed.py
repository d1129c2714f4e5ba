"""The steady decode steps of a batch of which only one sequence tells every token.

An engine that cannot be stepped tells its steps by streaming. To stream every token of every
sequence costs its front end more than a fast step takes, so one sequence streams, and of the others
only the first token and the last are told.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from rose.bench.subject import DoesNotFitError


@dataclass(frozen=True, slots=True)
class Told:
    """What an engine told of a sequence.

    Attributes:
        when: seconds on any clock.
        index: of the sequence.
        tokens: that it has now.
    """

    when: float
    index: int
    tokens: int


def steady_steps(
    told: Iterable[Told], batch: int, *, most: int, warmup: int, steps: int
) -> tuple[list[float], tuple[int, int]]:
    """Seconds between the tokens of the last sequence, while all the others run beside it.

    Where two tokens arrived together, because whoever listens came late, each counts as half of
    the time since the one before.

    Args:
        told: of the last sequence every token, of the others the first and number `most`; in the
            order of time.
        batch: sequences.
        most: tokens that each of them gets.
        warmup: steps after all have begun, which do not count.
        steps: to return.

    Returns:
        The samples, and the least and the most tokens of a sequence before the first of them,
        right to a step or two.

    Raises:
        DoesNotFitError: they did not all run for so long.
    """
    streamed, waiting = batch - 1, set(range(batch))
    times: dict[int, float] = {}  # by tokens of the streamed sequence
    before, begun, ended, ahead = 0, 0, most, 0
    for one in told:
        if one.index == streamed:
            times.update(_spread(before, times.get(before), one))
            before = one.tokens
        elif one.tokens >= most:
            ended = min(ended, before)
            ahead = max(ahead, most - before)
        if waiting:
            waiting.discard(one.index)
            # The streamed one may have begun before the last of the others.
            begun = max(1, before)
    first = begun + warmup
    if waiting or first + steps > min(ended, before) or first not in times:
        raise DoesNotFitError(
            f"the {batch} sequences did not run side by side for {warmup + steps} steps: give the "
            "engine more memory, or ask for a smaller batch"
        )
    window = [times[first + step] for step in range(steps + 1)]
    return [b - a for a, b in pairwise(window)], (first, first + ahead)


def _spread(before: int, since: float | None, one: Told) -> dict[int, float]:
    """When each token came that `one` tells of, if those that came together came evenly."""
    if since is None:
        return {one.tokens: one.when}
    each = (one.when - since) / max(1, one.tokens - before)
    return {n: one.when - each * (one.tokens - n) for n in range(before + 1, one.tokens + 1)}

"""An engine under measurement, and the stepping that most of them share.

Rose and its peers are measured by the same code: an engine that can be stepped is a `Stepper`, and
`time_to_first_tokens` and `time_steps` drive it; one that cannot is a `Subject` all the same.
"""

import time
from dataclasses import dataclass
from typing import Protocol

from rose.bench.results import BenchError

TEMPERATURE = 1.0
"""Sampled, not greedy: greedy decoding of random weights soon repeats one token in every sequence,
which then all ask for the same few experts."""


class DoesNotFitError(BenchError):
    """A batch that the KV cache turned out not to hold."""


@dataclass(frozen=True, slots=True)
class DecodeRun:
    """Steady decoding of a batch.

    Attributes:
        samples: seconds of each measured step.
        contexts: the shortest and the longest sequence at the first of them, in tokens.
    """

    samples: list[float]
    contexts: tuple[int, int]


class Subject(Protocol):
    """What can be measured. Close it to free its memory."""

    @property
    def name(self) -> str:
        """With its version, as "rose 0.1.0"."""
        ...

    def refuse_prefill(self, tokens: int) -> str | None:
        """Why a prompt of so many tokens cannot run and what would do; None: it can."""
        ...

    def refuse_decode(self, batch: int, context: int, steps: int) -> str | None:
        """Why a batch cannot decode `steps` steps from `context` tokens on; None: it can."""
        ...

    def prefill(self, prompts: list[list[int]]) -> float:
        """Seconds from submission until each prompt has its first token.

        Raises:
            BenchError: some of it was in the prefix cache.
        """
        ...

    def decode(self, prompts: list[list[int]], warmup: int, steps: int) -> DecodeRun:
        """Steps with all prompts in the batch, after `warmup` such steps; may reuse prefixes.

        Raises:
            DoesNotFitError: they could not all run at once.
        """
        ...

    def close(self) -> None:
        """Free the engine."""
        ...


class Stepper(Protocol):
    """An engine that runs one step a call."""

    def submit(self, prompts: list[list[int]], max_tokens: int) -> None:
        """Queue prompts; nothing else is in flight. Sampled at TEMPERATURE, without stop ids."""
        ...

    def step(self) -> list[int]:
        """Run a step; the indices of the prompts that got a token."""
        ...

    def drop(self) -> None:
        """End all that is in flight."""
        ...


def time_to_first_tokens(stepper: Stepper, prompts: list[list[int]]) -> float:
    """Seconds from submission until each prompt has its first token."""
    waiting = set(range(len(prompts)))
    begin = time.perf_counter()
    stepper.submit(prompts, 1)
    while waiting:
        waiting.difference_update(stepper.step())
    return time.perf_counter() - begin


def time_steps(
    stepper: Stepper, prompts: list[list[int]], *, warmup: int, steps: int, ramp: int
) -> DecodeRun:
    """Decode all prompts together, and time each step.

    Args:
        stepper: idle.
        prompts: all of one length.
        warmup: steps with all of them before the first that is timed.
        steps: to time; a sample is the time between two results.
        ramp: the most steps by which the first may run ahead of the last.

    Raises:
        DoesNotFitError: they do not come to run together, or one drops out.
    """
    try:
        stepper.submit(prompts, ramp + warmup + steps + 1)
        counts = _start_all(stepper, len(prompts), ramp)
        for _ in range(warmup):
            _full_step(stepper, len(prompts))
        samples, last = [], time.perf_counter()
        for _ in range(steps):
            _full_step(stepper, len(prompts))
            now = time.perf_counter()
            samples.append(now - last)
            last = now
    finally:
        stepper.drop()
    before = len(prompts[0]) + warmup
    return DecodeRun(samples, (before + min(counts), before + max(counts)))


def _start_all(stepper: Stepper, batch: int, ramp: int) -> list[int]:
    """Step until every prompt has a token; how many each has."""
    counts = [0] * batch
    while not all(counts):
        for index in stepper.step():
            counts[index] += 1
        if max(counts) > ramp:
            raise DoesNotFitError(
                f"only {batch - counts.count(0)} of {batch} sequences came to run at once: the KV "
                "cache is too small; give it more memory, or ask for a smaller batch"
            )
    return counts


def _full_step(stepper: Stepper, batch: int) -> None:
    """The next result that has tokens, which must be one for each sequence."""
    found: list[int] = []
    while not found:
        found = stepper.step()
    if len(found) != batch:
        raise DoesNotFitError(
            f"a step ran {len(found)} of {batch} sequences: the others were preempted; give the KV "
            "cache more memory, or ask for a smaller batch"
        )

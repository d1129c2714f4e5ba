"""What measured cells say of a workload: prefill seconds and decode steps between the cells.

Nothing here knows of deployments or prices; `cost` does. Nothing is extrapolated: what lies outside
the measured cells is `NotMeasuredError`, which says what to measure. docs/cost-model.md explains
the interpolation and how far it was off where cells were held out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from rose.bench.results import (
    OTHER_GPU,
    BenchError,
    EngineCell,
    Phase,
    Result,
    Sharding,
    has_other_gpus,
    median,
)

LEAST_RATE, MOST_RATE = 1e-6, 1e6
"""Requests a second. More would be millions of replicas, which are counted one by one."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one shape that arrive at random, and what they are promised.

    Attributes:
        input_tokens: of each prompt.
        output_tokens: of each answer; the first comes out of the prefill.
        rate: requests a second.
        cached_fraction: of the prompt that a prefix cache already holds, 0 to below 1.
        slo_ttft_s: the latest first token, seconds; None: not promised.
        slo_tokens_per_s: of a stream in a full batch, on average; None: not promised.

    Raises:
        BenchError: a field is out of range.
    """

    input_tokens: int
    output_tokens: int
    rate: float
    cached_fraction: float = 0.0
    slo_ttft_s: float | None = None
    slo_tokens_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.input_tokens < 1:
            raise BenchError(f"input tokens must be at least 1; got {self.input_tokens}")
        if self.output_tokens < 2:
            raise BenchError(
                f"output tokens must be at least 2; got {self.output_tokens} (the first comes out "
                "of the prefill: its cost is what `rose bench prefill` prints)"
            )
        if not 0 <= self.cached_fraction < 1:
            raise BenchError(f"the cached fraction must be in [0, 1); got {self.cached_fraction}")
        if not LEAST_RATE <= self.rate <= MOST_RATE:
            raise BenchError(
                f"the rate must be {LEAST_RATE:g} to {MOST_RATE:g} requests a second; "
                f"got {self.rate:g}"
            )
        positive = {
            "time to first token": self.slo_ttft_s,
            "tokens/s/user": self.slo_tokens_per_s,
        }
        for name, value in positive.items():
            if value is not None and not 0 < value < math.inf:
                raise BenchError(f"{name} must be a positive number; got {value}")

    @property
    def cached_tokens(self) -> int:
        """Whole tokens of each prompt that need no computation."""
        return int(self.input_tokens * self.cached_fraction)

    @property
    def decode_steps(self) -> int:
        """Steps of a request after its first token."""
        return self.output_tokens - 1

    @property
    def mean_context(self) -> float:
        """Tokens of context of a decode step, averaged over a request's steps."""
        return self.input_tokens + self.output_tokens / 2


class NotMeasuredError(Exception):
    """A size outside the measured cells; the text says which sizes those cover."""


@dataclass(frozen=True)
class PrefillCurve:
    """Seconds to the first token of one prompt a data-parallel replica.

    Attributes:
        points: (tokens, seconds), ascending; at least one.
    """

    points: tuple[tuple[int, float], ...]

    def seconds(self, tokens: float) -> float:
        """Of a prompt of `tokens`, none of them cached.

        Seconds a *token* are taken as linear between two cells, which is exact for work of the
        form b n + c n^2: matrices take b n, causal attention c n^2.

        Raises:
            NotMeasuredError: no cells on both sides.
        """
        per_token = [(n, seconds / n) for n, seconds in self.points]
        return tokens * _between(per_token, tokens)

    def seconds_after(self, tokens: int, cached: int) -> tuple[float, str | None]:
        """Of a prompt whose first `cached` tokens need no computation, and a note for the reader.

        The remaining work is seconds(tokens) - seconds(cached). A short remainder also pays what
        does not shrink with it (launches, the last layer), so it never counts as less than as many
        tokens alone. Where the cells are too coarse to tell, the answer errs on the slow side.

        Raises:
            NotMeasuredError: `tokens` lies outside the cells.
        """
        whole, smallest = self.seconds(tokens), self.points[0][0]
        if not cached:
            return whole, None
        if cached < smallest:
            return whole, f"{cached} cached tokens are fewer than the smallest prefill measured"
        floor = self.seconds(max(tokens - cached, smallest))
        note = None
        if tokens - cached < smallest:
            note = (
                f"the {tokens - cached} tokens not cached count at least as the {smallest} measured"
            )
        return max(whole - self.seconds(cached), floor), note


@dataclass(frozen=True)
class DecodeSurface:
    """Seconds a step over batch and context.

    Attributes:
        steps: context -> batch -> seconds.
    """

    steps: Mapping[int, Mapping[int, float]]

    def seconds(self, batch: int, context: float) -> float:
        """A step of `batch` sequences over all data-parallel replicas, at a mean context.

        Linear in context (the bytes of the KV cache are) and in the logarithm of the batch: between
        the two limits "every token reads experts of its own" and "all experts are read anyway".

        Raises:
            NotMeasuredError: no cells on all sides.
        """
        at_batch = []
        for tokens in sorted(self.steps):
            cells = sorted((math.log(b), s) for b, s in self.steps[tokens].items())
            if cells[0][0] <= math.log(batch) <= cells[-1][0]:
                at_batch.append((tokens, _between(cells, math.log(batch))))
        if not at_batch:
            raise NotMeasuredError(f"no batch of {batch} measured")
        return _between(at_batch, context)

    def by_batch(self, context: float) -> dict[int, float]:
        """Seconds a step of every batch between the measured ones, ascending.

        Raises:
            NotMeasuredError: no batch is covered at this context.
        """
        batches = [batch for row in self.steps.values() for batch in row]
        found = {}
        for batch in range(min(batches), max(batches) + 1):
            try:
                found[batch] = self.seconds(batch, context)
            except NotMeasuredError:
                continue  # a batch that did not fit at a longer context ends there
        if not found:
            _between([(tokens, 0.0) for tokens in sorted(self.steps)], context)
            raise NotMeasuredError("its contexts share no batch")
        return found


@dataclass(frozen=True)
class Measurements:
    """All cells of one engine, model and quantization.

    Attributes:
        machines: GPU names (or CPUs), each once.
        warnings: what a reader of any number made of these cells must know.
    """

    engine: str
    model: str
    quantization: str
    prefill: dict[Sharding, PrefillCurve]
    decode: dict[Sharding, DecodeSurface]
    machines: list[str]
    warnings: list[str]


def gather(
    results: Sequence[Result],
    *,
    engine: str | None = None,
    model: str | None = None,
    quantization: str | None = None,
) -> Measurements:
    """The cells of one engine, model and quantization; a later result replaces a cell's former.

    Args:
        results: in the user's order.
        engine: as "rose 0.1.0", to choose if there are several.
        model: likewise.
        quantization: likewise.

    Raises:
        BenchError: there are none, or several to choose from.
    """
    wanted = (engine, model, quantization)
    found: dict[tuple[str, str, str], list[tuple[Result, EngineCell]]] = {}
    for result in results:
        for cell in result.cells:
            if isinstance(cell, EngineCell) and cell.samples:
                key = (result.software.engine, cell.model, cell.quantization)
                if all(want in (None, have) for want, have in zip(wanted, key, strict=True)):
                    found.setdefault(key, []).append((result, cell))
    if len(found) != 1:
        raise BenchError(_not_one(list(found), wanted))
    [(key, cells)] = found.items()
    sources = list({id(result): result for result, _ in cells}.values())
    machines = list(dict.fromkeys(result.machine.name for result in sources))
    prefill, decode = _curves([cell for _, cell in cells])
    return Measurements(*key, prefill, decode, machines, _warnings(sources, machines))


def where_to_measure(phase: Phase, workload: Workload) -> str:
    """The option that makes cells which cover the workload."""
    if phase == "prefill":
        return f"--input {workload.input_tokens}"
    return f"--context {workload.input_tokens},{workload.input_tokens + workload.output_tokens}"


def _curves(
    cells: Sequence[EngineCell],
) -> tuple[dict[Sharding, PrefillCurve], dict[Sharding, DecodeSurface]]:
    prefill: dict[Sharding, dict[int, float]] = {}
    decode: dict[Sharding, dict[int, dict[int, float]]] = {}
    for cell in cells:
        seconds = median(cell.samples)
        if cell.phase == "decode":
            row = decode.setdefault(cell.sharding, {}).setdefault(cell.tokens, {})
            row[cell.batch] = seconds
        elif cell.batch == cell.sharding.dp:  # larger batches only make the first token later
            prefill.setdefault(cell.sharding, {})[cell.tokens] = seconds
    curves = {key: PrefillCurve(tuple(sorted(row.items()))) for key, row in prefill.items()}
    return curves, {key: DecodeSurface(rows) for key, rows in decode.items()}


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """Linear between the two of the ascending `points` around `x`.

    Raises:
        NotMeasuredError: they do not surround it.
    """
    for left, y in points:
        if left == x:
            return y
    for (left, y_left), (right, y_right) in pairwise(points):
        if left < x < right:
            share = (x - left) / (right - left)
            return (1 - share) * y_left + share * y_right
    covered = " to ".join(f"{n:.0f}" for n in sorted({points[0][0], points[-1][0]}))
    raise NotMeasuredError(f"{x:.0f} tokens lie outside the measured {covered}")


def _not_one(found: list[tuple[str, str, str]], wanted: tuple[str | None, ...]) -> str:
    if not found:
        names = [name for name in wanted if name is not None]
        what = f" of {', '.join(names)}" if names else ""
        return f"no cells of prefill or decode{what}; `rose bench prefill` and `decode` make them"
    listed = "; ".join(f"--engine '{e}' --model {m} --quantization {q}" for e, m, q in found)
    return f"the results hold several things to price; choose one: {listed}"


def _warnings(sources: Sequence[Result], machines: list[str]) -> list[str]:
    warnings = []
    if len(machines) > 1:
        warnings.append(f"cells of different machines are mixed: {'; '.join(machines)}")
    if has_other_gpus(sources):
        warnings.append(f"some cells are of {OTHER_GPU}")
    if len({result.software.commit for result in sources}) > 1:
        warnings.append("cells of different commits are mixed")
    if any(result.partial for result in sources):
        warnings.append("a result is partial: its measurement was interrupted")
    notes = dict.fromkeys(note for result in sources for note in result.notes)
    return warnings + list(notes)

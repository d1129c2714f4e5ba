"""The cheapest deployment that serves a workload, from measured cells alone.

What each sharding does to the workload, then the deployments that `deployment` finds of them:
*disaggregated* (prefill replicas and decode replicas, each with a sharding of its own) and
*colocated* (every replica does both). Nothing is measured or guessed here.
"""

from collections.abc import Iterable, Iterator

import msgspec

from rose.bench.deployment import DecodeOption, Deployment, Limits, PrefillOption, cheapest
from rose.bench.results import MOST_USD, BenchError, Phase, Sharding, usd_per_million_tokens
from rose.bench.rooflines import known_shape
from rose.bench.workload_model import (
    Measurements,
    NotMeasuredError,
    Workload,
    where_to_measure,
)
from rose.models.builtin import SERVED_NAMES


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and the numbers that led to it.

    Attributes:
        deployments: the cheapest of each pair of shardings and kind, cheapest first; empty: none
            meets the promises.
        warnings: of the measurements and of what was rounded to the slow side.
    """

    engine: str
    model: str
    quantization: str
    machines: list[str]
    workload: Workload
    limits: Limits
    usd_per_gpu_hour: float
    prefill: list[PrefillOption]
    decode: list[DecodeOption]
    deployments: list[Deployment]
    warnings: list[str]

    @property
    def best(self) -> Deployment | None:
        """The cheapest that meets what is promised."""
        return self.deployments[0] if self.deployments else None


def plan(
    cells: Measurements, workload: Workload, *, usd_per_gpu_hour: float, limits: Limits
) -> Plan:
    """Find the cheapest deployment.

    Raises:
        BenchError: the cells do not cover the workload in any sharding, or the price is none.
    """
    if not 0 <= usd_per_gpu_hour <= MOST_USD:
        raise BenchError(f"a GPU-hour must cost $0 to ${MOST_USD:g}; got {usd_per_gpu_hour:g}")
    prefill = [
        _prefill_option(cells, s, workload, usd_per_gpu_hour) for s in _ordered(cells.prefill)
    ]
    decode = [
        option
        for sharding in _ordered(cells.decode)
        for option in _decode_options(cells, sharding, workload, usd_per_gpu_hour)
    ]
    _check_covered(cells, workload, prefill, decode)
    notes = [f"{o.sharding.name}: {o.note}" for o in prefill if o.note and o.rejected is None]
    return Plan(
        engine=cells.engine,
        model=cells.model,
        quantization=cells.quantization,
        machines=cells.machines,
        workload=workload,
        limits=limits,
        usd_per_gpu_hour=usd_per_gpu_hour,
        prefill=prefill,
        decode=decode,
        deployments=cheapest(prefill, decode, workload, limits, usd_per_gpu_hour),
        warnings=cells.warnings + notes,
    )


def _ordered(shardings: Iterable[Sharding]) -> list[Sharding]:
    return sorted(shardings, key=lambda sharding: (sharding.gpus, sharding.name))


def _prefill_option(
    cells: Measurements, sharding: Sharding, workload: Workload, usd: float
) -> PrefillOption:
    try:
        seconds, note = cells.prefill[sharding].seconds_after(
            workload.input_tokens, workload.cached_tokens
        )
    except NotMeasuredError as error:
        return PrefillOption(sharding=sharding, rejected=f"not measured: {error}")
    late = workload.slo_ttft_s is not None and seconds > workload.slo_ttft_s
    tokens = workload.input_tokens * sharding.dp
    return PrefillOption(
        sharding=sharding,
        seconds=seconds,
        usd_per_million=usd_per_million_tokens(
            seconds, tokens, gpus=sharding.gpus, usd_per_gpu_hour=usd
        ),
        note=note,
        rejected=f"alone takes longer than {workload.slo_ttft_s:g} s" if late else None,
    )


def _decode_options(
    cells: Measurements, sharding: Sharding, workload: Workload, usd: float
) -> Iterator[DecodeOption]:
    """Every batch between the measured ones, ascending, or one rejection."""
    surface = cells.decode[sharding]
    try:
        steps = surface.by_batch(workload.mean_context)
    except NotMeasuredError as error:
        yield DecodeOption(sharding=sharding, rejected=f"not measured: {error}")
        return
    measured = {batch for row in surface.steps.values() for batch in row}
    slowest = workload.slo_tokens_per_s or 0.0
    for batch in sorted(measured | steps.keys()):
        step = steps.get(batch)
        if step is None:
            reason = "not measured: no such batch at contexts on both sides"
            yield DecodeOption(sharding=sharding, batch=batch, measured=True, rejected=reason)
            continue
        yield DecodeOption(
            sharding=sharding,
            batch=batch,
            step_s=step,
            measured=batch in measured,
            usd_per_million=usd_per_million_tokens(
                step, batch, gpus=sharding.gpus, usd_per_gpu_hour=usd
            ),
            rejected=f"slower than {slowest:g} tokens/s/user" if step * slowest > 1 else None,
        )


def _check_covered(
    cells: Measurements,
    workload: Workload,
    prefill: list[PrefillOption],
    decode: list[DecodeOption],
) -> None:
    missing = []
    if all(option.seconds is None for option in prefill):
        missing.append(_gap("prefill", cells, workload, prefill))
    if all(option.step_s is None for option in decode):
        missing.append(_gap("decode", cells, workload, decode))
    if missing:
        missing += _too_long(cells.model, workload)
        raise BenchError(f"the results do not cover this workload: {'; '.join(missing)}")


def _gap(
    phase: Phase,
    cells: Measurements,
    workload: Workload,
    options: Iterable[PrefillOption | DecodeOption],
) -> str:
    why = ", ".join(f"{o.sharding.name} {o.rejected}" for o in options) or "no cells"
    if _too_long(cells.model, workload):
        return f"{phase} ({why})"
    names = {served: short for short, served in SERVED_NAMES.items()}
    command = f"rose bench {phase} {names.get(cells.model, cells.model)}"
    sizes = where_to_measure(phase, workload)
    return f"{phase} ({why}): measure `{command} {sizes} --out FILE` and give that file too"


def _too_long(model: str, workload: Workload) -> list[str]:
    """A line where the model is known to hold no such sequence, so that nothing can measure it."""
    shape, tokens = known_shape(model), workload.input_tokens + workload.output_tokens
    if shape is None or tokens <= shape.max_position_embeddings:
        return []
    longest = shape.max_position_embeddings
    return [f"{model} holds sequences of up to {longest} tokens, and these have {tokens}"]

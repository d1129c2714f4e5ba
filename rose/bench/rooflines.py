"""Measured cells against what the machine allows: shares of ceilings, places under rooflines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rose.bench.ceiling import (
    Rates,
    StoredBytes,
    attention_flop,
    decode_bytes,
    decode_seconds,
    head_flop,
    matrix_flop,
    prefill_seconds,
    rates_from_result,
    rates_known,
)
from rose.bench.results import BenchError, Result, RooflineCell
from rose.bench.series import Point
from rose.config import ModelConfig
from rose.models.builtin import SERVED_NAMES, builtin_checkpoint, builtin_shape


@dataclass(frozen=True, slots=True)
class Place:
    """Of one cell under the roofline.

    Attributes:
        intensity: FLOP a byte that must be read.
        flop_per_s: reached by each GPU.
    """

    intensity: float
    flop_per_s: float


def rates_for(results: Sequence[Result]) -> Rates | None:
    """Of the machine of the first result: measured if a result has them, else an H200's, or None.

    None where the machine is unknown, or the results are of several machines.
    """
    if len({result.machine.name for result in results}) != 1:
        return None
    for result in results:
        if any(isinstance(cell, RooflineCell) for cell in result.cells):
            try:
                return rates_from_result(result, "rose bench roofline")
            except BenchError:
                continue  # it was interrupted before the rates that count
    return rates_known(results[0].machine)


@cache
def known_shape(model: str) -> ModelConfig | None:
    """The shape of a model that comes with Rose, by the name that results have; None: another."""
    folder = builtin_shape(model)
    for short, served in SERVED_NAMES.items():
        if model in (short, served):
            folder = builtin_checkpoint(short)
    return ModelConfig.load(folder) if folder is not None else None


def ceiling(point: Point, rates: Rates | None) -> float | None:
    """The least seconds that the cell could take; None: unknown model, machine or quantization."""
    model = known_shape(point.model)
    if model is None or rates is None or point.quantization is None:
        return None
    if StoredBytes.of(point.quantization) is None:
        return None
    gpus = point.sharding.gpus
    if point.phase == "prefill":
        return prefill_seconds(model, point.tokens, point.batch, rates, gpus=gpus)
    return decode_seconds(model, point.quantization, point.tokens, point.batch, rates, gpus=gpus)


def place(point: Point) -> Place | None:
    """Where the cell is under the roofline; None: unknown model or quantization.

    The bytes are the least that must be read: weights once a step (for prefill once a prompt) and
    the cache of every sequence.
    """
    model = known_shape(point.model)
    if model is None or point.quantization is None:
        return None
    if StoredBytes.of(point.quantization) is None:
        return None
    head = head_flop(model)
    if point.phase == "prefill":
        flop = matrix_flop(model) * point.tokens + attention_flop(model, point.tokens) + head
        # Every expert of every layer has a token among thousands; the prompt's own cache is small.
        read = decode_bytes(model, point.quantization, 0, point.tokens)
    else:
        attention = attention_flop(model, point.tokens + 1) - attention_flop(model, point.tokens)
        flop = matrix_flop(model) + attention + head
        read = decode_bytes(model, point.quantization, point.tokens, point.batch) / point.batch
    done = point.batch * flop / point.seconds / point.sharding.gpus
    return Place(intensity=flop / read, flop_per_s=done)

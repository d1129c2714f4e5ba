"""Norms, rotation, routing, activation and FP8 rows: what is bound by memory or by launches."""

from collections.abc import Callable, Iterator
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.kernel_cases.case import Case
from rose.kernels import norm, rope_kv, routing, swiglu
from rose.kernels.activation_quant import quantize_fp8_rows
from rose.kernels.fused import router
from rose.kernels.fused import routing as fused_routing
from rose.kernels.paged_kv import LayerKV

HIDDEN = INTERMEDIATE = 2880
HEADS, KV_HEADS, HEAD_DIM = 64, 8, 64
QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM
CHOICES = 4
BF16 = 2
FP8_ROW = 2880 * (1 + 4 / 128)
"""Bytes of 2880 values in FP8 and of their scales."""


def cases() -> Iterator[Case]:
    """One decode step of few and of many sequences, and a prompt."""
    for tokens in (1, 64, 256, 8192):
        yield from _norms(tokens)
        yield from _attention(tokens)
        yield from _experts(tokens)
        for experts in (32, 128):
            yield _routing(tokens, experts)
    for tokens in (1, 2, 4, 8, 16, 32, 64, 128):
        yield from _router(tokens, 128)


def _norms(tokens: int) -> Iterator[Case]:
    row = BF16 * tokens * HIDDEN
    x, residual, weight = _lazy(tokens, HIDDEN), _lazy(tokens, HIDDEN), _lazy(HIDDEN)
    at = f"rows={tokens}"
    yield Case(f"rms_norm {at}", lambda: norm.rms_norm(x(), weight(), 1e-5), 2 * row, 0)
    yield Case(
        f"add_rms_norm {at}",
        lambda: norm.add_rms_norm(residual(), x(), weight(), 1e-5),
        4 * row,
        0,
    )
    yield Case(
        f"add_rms_norm_quantize {at}",
        lambda: norm.add_rms_norm_quantize(residual(), x(), weight(), 1e-5),
        4 * row + tokens * FP8_ROW,
        0,
    )
    yield Case(f"quantize_rows {at}", lambda: quantize_fp8_rows(x()), row + tokens * FP8_ROW, 0)


def _attention(tokens: int) -> Iterator[Case]:
    qkv, cos = _lazy(tokens, QKV), _lazy(tokens, HEAD_DIM // 2, dtype=torch.float32)
    blocks = tokens // 128 + 1

    @cache
    def cache_and_slots() -> tuple[LayerKV, Tensor]:
        shape = (blocks, 128, KV_HEADS, HEAD_DIM)
        key, value = (torch.empty(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        return LayerKV(key, value), torch.randperm(blocks * 128, device="cuda")[:tokens]

    def run() -> object:
        kv, slots = cache_and_slots()
        return rope_kv.rope_write_kv(qkv(), cos(), cos(), slots, kv, HEADS)

    moved = tokens * (2 * BF16 * QKV + 4 * HEAD_DIM + 8)
    yield Case(f"rope_write_kv tokens={tokens}", run, moved, 0)


def _experts(tokens: int) -> Iterator[Case]:
    rows, row = tokens * CHOICES, BF16 * tokens * HIDDEN
    gate_up = _lazy(rows, 2 * INTERMEDIATE)
    yield Case(
        f"swiglu rows={rows}",
        lambda: swiglu.swiglu(gate_up(), 7.0),
        3 * BF16 * rows * INTERMEDIATE,
        0,
    )
    computed, residual, logits = _lazy(rows, HIDDEN), _lazy(tokens, HIDDEN), _lazy(tokens, 32)
    routed = cache(lambda: routing.route(logits(), CHOICES))
    yield Case(
        f"combine tokens={tokens}",
        lambda: routing.combine(computed(), routed(), residual()),
        (CHOICES + 2) * row,
        0,
    )
    weight = _lazy(HIDDEN)
    yield Case(
        f"combine_norm tokens={tokens}",
        lambda: routing.combine_norm(computed(), routed(), residual(), weight(), 1e-5),
        (CHOICES + 3) * row,
        0,
    )


def _routing(tokens: int, experts: int) -> Case:
    logits = _lazy(tokens, experts)
    # Weights, two indices a pair, and the counts.
    moved = tokens * (BF16 * experts + CHOICES * (BF16 + 8)) + 8 * experts
    name = f"route tokens={tokens} experts={experts}"
    return Case(name, lambda: routing.route(logits(), CHOICES), moved, 0)


def _router(tokens: int, experts: int) -> Iterator[Case]:
    """The product and the routing by one launch or several; then other sizes of one program."""
    x, weight, bias = _lazy(tokens, HIDDEN), _lazy(experts, HIDDEN), _lazy(experts)
    arrivals = cache(lambda: torch.zeros(1, dtype=torch.int32, device="cuda"))
    moved, flops = BF16 * HIDDEN * (tokens + experts), 2.0 * tokens * experts * HIDDEN
    if tokens <= 32:
        yield Case(
            f"router in one tokens={tokens} experts={experts}",
            lambda: router.route_few(x(), weight(), bias(), CHOICES, arrivals()),
            moved,
            flops,
        )
    yield Case(
        f"router in two tokens={tokens} experts={experts}",
        lambda: routing.route(F.linear(x(), weight(), bias()), CHOICES),
        moved,
        flops,
    )
    logits = _lazy(tokens, experts)
    for one_program in (16, 64) if 16 < tokens <= 64 else ():
        yield Case(
            f"route tokens={tokens} experts={experts} one_program={one_program}",
            partial(lambda size: fused_routing.route(logits(), CHOICES, size), one_program),
            BF16 * tokens * experts,
            0,
        )


def _lazy(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Callable[[], Tensor]:
    """Normal values, made on the first call."""
    return cache(lambda: torch.randn(shape, device="cuda").to(dtype))

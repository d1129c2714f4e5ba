"""The small kernels at the shapes of gpt-oss, for the compiler."""

import torch

from rose.kernels.activation_quant import quantize_fp8_rows
from rose.kernels.dispatch import Implementation, force
from rose.kernels.norm import add_rms_norm, add_rms_norm_quantize, rms_norm
from rose.kernels.paged_kv import LayerKV
from rose.kernels.rope_kv import rope_write_kv
from rose.kernels.routing import combine, combine_norm, route, route_linear
from rose.kernels.swiglu import swiglu

HIDDEN = INTERMEDIATE = 2880
HEADS, KV_HEADS, HEAD_DIM = 64, 8, 64
EXPERTS = (32, 128)
CHOICES = 4
TOKENS = (1, 64, 256, 8192)
FEW_TOKENS = (1, 8, 16)


def _empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)


def _norms(tokens: int) -> None:
    x, weight = _empty(tokens, HIDDEN), _empty(HIDDEN)
    rms_norm(x, weight, 1e-5)
    add_rms_norm(x, x, weight, 1e-5)
    add_rms_norm_quantize(x, x, weight, 1e-5)
    quantize_fp8_rows(x)


def _attention(tokens: int) -> None:
    qkv = _empty(tokens, (HEADS + 2 * KV_HEADS) * HEAD_DIM)
    cos = torch.empty(tokens, HEAD_DIM // 2)
    cache = LayerKV(*(_empty(2, 128, KV_HEADS, HEAD_DIM) for _ in range(2)))
    rope_write_kv(qkv, cos, cos, torch.empty(tokens, dtype=torch.int64), cache, HEADS)


def _experts(tokens: int) -> None:
    for experts in EXPERTS:
        routing = route(_empty(tokens, experts), CHOICES)
    rows = _empty(tokens * CHOICES, HIDDEN)
    combine(rows, routing)
    residual = _empty(tokens, HIDDEN)
    combine(rows, routing, residual)
    combine_norm(rows, routing, residual, _empty(HIDDEN), 1e-5)
    swiglu(_empty(tokens * CHOICES, 2 * INTERMEDIATE), 7.0)


def _router(tokens: int) -> None:
    arrivals = torch.zeros(1, dtype=torch.int32)
    for experts in EXPERTS:
        weight = _empty(experts, HIDDEN)
        route_linear(_empty(tokens, HIDDEN), weight, _empty(experts), CHOICES, arrivals)


def launches() -> None:
    """Call each wrapper as an engine would."""
    with force(Implementation.TRITON):
        for tokens in TOKENS:
            _norms(tokens)
            _attention(tokens)
            _experts(tokens)
        for tokens in FEW_TOKENS:
            _router(tokens)

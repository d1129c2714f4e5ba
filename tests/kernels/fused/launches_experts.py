"""The experts' products at the shapes of gpt-oss, for the compiler."""

import torch

from rose.kernels.dispatch import Implementation, force
from rose.kernels.experts import experts_bf16, experts_fp8, experts_mxfp4
from rose.kernels.fused.routing import MOST_LISTED
from rose.kernels.matrices import Fp8Matrices, Mxfp4Matrices
from rose.kernels.mxfp4_tiles import tiled_scales_shape
from rose.kernels.quantize import FP8_BLOCK, ceil_div
from rose.kernels.routing import Routing

HIDDEN = INTERMEDIATE = 2880
K = 4
LIMIT = 7.0
SIZES = ((1, 32), (64, 32), (64, 128), (128, 32), (256, 32), (8192, 32), (16384, 128))
"""Tokens and experts: every row of the tables of tilings, and a decode of 120B."""


def _empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _routing(tokens: int, experts: int) -> Routing:
    return Routing(
        _empty(tokens, K),
        _empty(tokens, K, dtype=torch.int32),
        _empty(tokens * K, dtype=torch.int32),
        _empty(experts, dtype=torch.int32),
        _empty(experts + 1, dtype=torch.int32),
        _empty(tokens * K, dtype=torch.int32) if tokens * K <= MOST_LISTED else None,
    )


def _mxfp4(experts: int, parts: int, rows: int, width: int) -> Mxfp4Matrices:
    groups = width // 32
    blocks = _empty(experts, parts, rows, groups, 16, dtype=torch.uint8)
    scales = _empty(experts, parts, *tiled_scales_shape(rows, groups), dtype=torch.uint8)
    return Mxfp4Matrices(blocks, scales, tiled=True)


def _fp8(experts: int, parts: int, rows: int, width: int) -> Fp8Matrices:
    values = _empty(experts, parts, rows, width, dtype=torch.float8_e4m3fn)
    grid = (ceil_div(rows, FP8_BLOCK), ceil_div(width, FP8_BLOCK))
    return Fp8Matrices(values, _empty(experts, parts, *grid, dtype=torch.float32))


def _layer(tokens: int, experts: int) -> None:
    routing, x = _routing(tokens, experts), _empty(tokens, HIDDEN)
    biases = _empty(experts, 2 * INTERMEDIATE), _empty(experts, HIDDEN)
    first, second = (experts, 2, INTERMEDIATE, HIDDEN), (experts, 1, HIDDEN, INTERMEDIATE)
    experts_bf16(x, routing, _empty(*first), _empty(*second), *biases, LIMIT)
    experts_fp8(x, routing, _fp8(*first), _fp8(*second), *biases, LIMIT)
    experts_mxfp4(x, routing, _mxfp4(*first), _mxfp4(*second), *biases, LIMIT)


def launches_mxfp4(tokens: int, experts: int) -> None:
    """Both products with MXFP4 alone."""
    routing, x = _routing(tokens, experts), _empty(tokens, HIDDEN)
    gate_up = _mxfp4(experts, 2, INTERMEDIATE, HIDDEN)
    down = _mxfp4(experts, 1, HIDDEN, INTERMEDIATE)
    biases = _empty(experts, 2 * INTERMEDIATE), _empty(experts, HIDDEN)
    with force(Implementation.TRITON):
        experts_mxfp4(x, routing, gate_up, down, *biases, LIMIT)


def launches() -> None:
    """Call each wrapper as an engine would."""
    with force(Implementation.TRITON):
        for tokens, experts in SIZES:
            _layer(tokens, experts)

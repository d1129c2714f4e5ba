"""Products of FP8 tiles with a scale for each 128 inner values: what FP8 kernels share.

The scheme of DeepGEMM: operands have a scale for each 128 inner values (weights for 128 output
columns together), so the inner dimension goes in steps of 128, each into fresh tensor-core
accumulators whose sums are scaled and added in float32 registers. Weights come by TMA, which fills
what lies beyond their edges with zeros.
"""
# mypy: disable-error-code="untyped-decorator"

import triton
import triton.language as tl

from rose.kernels.fused.quantize import RUN
from rose.kernels.quantize import FP8_BLOCK

HALF = tl.constexpr(FP8_BLOCK // 2)
"""Columns of one product."""


@triton.jit
def add_product(
    total: tl.tensor,
    x: tl.tensor,
    weight: tl.tensor,
    scale: tl.tensor,
    rows_lead: tl.constexpr,
) -> tl.tensor:
    """Add a scaled product.

    The tokens' rows lead where they fill wgmma's 64: a thread then needs the scales of a few only.

    Args:
        total: float32 [block_m, 64] if `rows_lead`, else [64, block_m].
        x: e4m3 [block_m, 128].
        weight: e4m3 [64, 128].
        scale: float32 [block_m], of x times that of the weight.
        rows_lead: which operand is on the left.
    """
    if rows_lead:
        total += tl.dot(x, weight.T) * scale[:, None]
    else:
        total += tl.dot(weight, x.T) * scale[None, :]
    return total


@triton.jit
def whole_run(low: tl.tensor, high: tl.tensor, rows_lead: tl.constexpr) -> tl.tensor:
    """Two accumulators side by side, float32 [block_m, 128]."""
    if not rows_lead:
        low, high = tl.trans(low), tl.trans(high)
    return tl.reshape(tl.trans(tl.join(low, high), (0, 2, 1)), (low.shape[0], RUN))

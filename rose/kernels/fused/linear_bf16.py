"""A dense product in bfloat16 for few rows: decode's projections. See `skinny_tiles`.

The weight's bytes bound it. gpt-oss's QKV is 29.5 MB, 7.0 us at 4.2 TB/s, the output projection
23.6 MB, 5.6 us; with 1.5 us from the launch to a full queue and from the last byte to the end,
8.5 and 7.2 us were predicted for one row; an H200 took 9.9 and 9.6 (cuBLAS: 10.7 and 12.7). A
program reads all of its tokens' rows, from L2: 8 tokens are half as much as a weight of 16 columns,
and L2 gives no more than half as much again as the memory. So beyond FEW_ROWS cuBLAS serves, whose
programs share what they read.
"""
# mypy: disable-error-code="untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent
from rose.kernels.fused.expert_tiles import multiply
from rose.kernels.fused.skinny_tiles import (
    MOST_COLUMNS,
    SkinnyTiling,
    column_bias,
    finish,
)
from rose.kernels.quantize import ceil_div

FEW_ROWS = 16
"""For more rows cuBLAS serves."""

TILINGS = {
    8: SkinnyTiling(block_m=8, block_n=16, parts=4, step=64, depth=3),
    16: SkinnyTiling(block_m=16, block_n=16, parts=4, step=64, depth=3),
    32: SkinnyTiling(block_m=32, block_n=32, parts=4, step=64, depth=6),
    64: SkinnyTiling(block_m=64, block_n=32, parts=4, step=64, depth=6),
}
"""By the most rows that each is for. What stands beyond FEW_ROWS is for benches."""


@triton.jit
def part_sums(
    x: tl.tensor,
    weight: tl.tensor,
    column: tl.tensor,
    source: tl.tensor,
    held: tl.tensor,
    columns: tl.constexpr,
    width: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    parts: tl.constexpr,
    step: tl.constexpr,
    stages: tl.constexpr,
) -> tl.tensor:
    """The loop along the inner dimension: float32 [parts, block_n, block_m], to be summed.

    `column` [block_n] are the weight's rows, `source` int64 [block_m] those of x, which has only
    those that are `held`.
    """
    part = tl.arange(0, parts)
    inner = part[:, None, None] * step + tl.arange(0, step)[None, None, :]
    inside = column < columns
    weight_at = weight + column.to(tl.int64)[None, :, None] * width + inner
    x_at = x + source[None, :, None] * width + inner
    total = tl.zeros((parts, block_n, block_m), tl.float32)
    for first in tl.range(0, width, parts * step, num_stages=stages):
        within = inner < width - first
        tile = tl.load(weight_at + first, mask=within & inside[None, :, None], other=0.0)
        x_tile = tl.load(x_at + first, mask=within & held[None, :, None], other=0.0)
        total = multiply(tile, tl.trans(x_tile, (0, 2, 1)), total)
    return total


@triton.jit(do_not_specialize=["rows"])
def _linear_bf16_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    columns: tl.constexpr,
    width: tl.constexpr,
    biased: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    parts: tl.constexpr,
    step: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """`block_n` columns of `block_m` rows."""
    column = tl.program_id(0) * block_n + tl.arange(0, block_n)
    start = tl.program_id(1).to(tl.int64) * block_m
    row = tl.arange(0, block_m)
    held = start + row < rows
    dependent.start()
    wide_bias = column_bias(bias, column, columns, biased)
    total = part_sums(
        x, weight, column, start + row, held, columns, width, block_m, block_n, parts, step, stages
    )
    finish(total, wide_bias, out, start, row, held, column, columns)


def serves(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel is for operands of these shapes: few rows, of whole vectors."""
    columns, width = weight.shape
    return 0 < x.shape[0] <= FEW_ROWS and columns <= MOST_COLUMNS and width % 16 == 0


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product as the table of tilings has it.

    Args:
        x: bfloat16 [rows, in], at least one row.
        weight: bfloat16 [out, in], contiguous.
        bias: bfloat16 [out].

    Returns:
        bfloat16 [rows, out].
    """
    return multiply_with(choose_tiling(x.shape[0]), x, weight, bias)


def choose_tiling(rows: int) -> SkinnyTiling:
    """The table's tiling for so many rows."""
    return TILINGS[min((most for most in TILINGS if rows <= most), default=max(TILINGS))]


def multiply_with(tiling: SkinnyTiling, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """See `linear`."""
    rows, width = x.shape
    columns = weight.shape[0]
    out = torch.empty((rows, columns), dtype=torch.bfloat16, device=x.device)
    _linear_bf16_kernel[(ceil_div(columns, tiling.block_n), ceil_div(rows, tiling.block_m))](
        x.contiguous(),
        weight,
        # Any pointer: without a bias nothing is read through it.
        weight if bias is None else bias,
        out,
        rows,
        columns,
        width,
        bias is not None,
        tiling.block_m,
        tiling.block_n,
        tiling.parts,
        tiling.step,
        tiling.stages(columns, width, rows, x.itemsize),
        num_warps=tiling.parts,
        **dependent.LAUNCH,
    )
    return out

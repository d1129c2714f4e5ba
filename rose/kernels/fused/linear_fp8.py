"""A dense product with an FP8 weight: x is quantised in a kernel before it.

Decode is bound by the weight's bytes: gpt-oss's QKV is 14.7 MB, 3.5 us at 4.2 TB/s. Tiles of 64
columns by TMA take 10.4 us for one row (on an H200): 80 programs have too few bytes on their way.
So a kernel of its own serves few rows, see `skinny_tiles`: expect 5.5 us, and 4.8 for the output
projection. Prefill of 8192 tokens is 242 GFLOP for QKV; 0.29 ms, 840 TFLOP/s, on an H200.
"""
# mypy: disable-error-code="untyped-decorator"

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from rose.kernels.fused import dependent
from rose.kernels.fused.expert_tiles import store_tile
from rose.kernels.fused.fp8_tiles import HALF, add_product, whole_run
from rose.kernels.fused.interpret import round_to
from rose.kernels.fused.quantize import RUN, quantize_fp8_rows
from rose.kernels.fused.skinny_tiles import (
    MOST_COLUMNS,
    SkinnyTiling,
    column_bias,
    finish,
)
from rose.kernels.quantize import FP8_BLOCK, ceil_div


@triton.jit(do_not_specialize=["rows"])
def _linear_fp8_kernel(
    x: tl.tensor,
    x_scales: tl.tensor,
    weight: tl.tensor_descriptor,
    weight_scales: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    columns: tl.constexpr,
    width: tl.constexpr,
    biased: tl.constexpr,
    halves: tl.constexpr,
    block_m: tl.constexpr,
    group: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """A tile of `block_m` rows by 64 or 128 columns; tiles of rows vary first within a group."""
    block_n: tl.constexpr = HALF * halves
    column_tiles: tl.constexpr = (columns + block_n - 1) // block_n
    runs: tl.constexpr = (width + RUN - 1) // RUN
    program = tl.program_id(0)
    member = program % (group * column_tiles)
    start = (program // (group * column_tiles) * group + member % group).to(tl.int64) * block_m
    if start >= rows:
        return
    first_column = member // group * block_n
    row = tl.arange(0, block_m)
    held = start + row < rows
    column = first_column + tl.arange(0, block_n)
    inner = tl.arange(0, RUN)

    # Places beyond the last row read the last row, so that loads need no mask.
    source = tl.minimum(start + row, rows - 1)
    x_at = x + source[:, None] * width + inner[None, :]
    x_scale_at = x_scales + source * runs
    scale_at = weight_scales + first_column // RUN * runs

    rows_lead: tl.constexpr = block_m >= 64
    lead: tl.constexpr = block_m if rows_lead else HALF
    other: tl.constexpr = HALF if rows_lead else block_m
    low = tl.zeros((lead, other), tl.float32)
    high = low
    for run in tl.range(0, runs, num_stages=stages):
        at = run * RUN
        x_tile = tl.load(x_at + at, mask=inner[None, :] < width - at, other=0.0)
        scale = tl.load(x_scale_at + run) * tl.load(scale_at + run)
        low = add_product(low, x_tile, weight.load([first_column, at]), scale, rows_lead)
        if halves == 2:
            tile = weight.load([first_column + HALF, at])
            high = add_product(high, x_tile, tile, scale, rows_lead)

    if halves == 2:
        total = whole_run(low, high, rows_lead)
    elif rows_lead:
        total = low
    else:
        total = tl.trans(low)
    if biased:
        wide = tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
        total += wide[None, :]
    store_tile(out, round_to(total, tl.bfloat16), start, row, held, column, columns)


@triton.jit(do_not_specialize=["rows"])
def _linear_fp8_few_kernel(
    x: tl.tensor,
    x_scales: tl.tensor,
    weight: tl.tensor,
    weight_scales: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    columns: tl.constexpr,
    width: tl.constexpr,
    biased: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    parts: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """`block_n` columns of `block_m` rows; a part of a step is a run, which has a scale."""
    runs: tl.constexpr = (width + RUN - 1) // RUN
    first_column = tl.program_id(0) * block_n
    start = tl.program_id(1).to(tl.int64) * block_m
    column = first_column + tl.arange(0, block_n)
    inside = column < columns
    row = tl.arange(0, block_m)
    held = start + row < rows
    part = tl.arange(0, parts)
    inner = part[:, None, None] * RUN + tl.arange(0, RUN)[None, None, :]
    weight_at = weight + column.to(tl.int64)[None, :, None] * width + inner
    scale_at = weight_scales + first_column // RUN * runs + part
    x_at = x + (start + row)[None, :, None] * width + inner
    x_scale_at = x_scales + (start + row)[None, :] * runs + part[:, None]

    dependent.start()
    wide_bias = column_bias(bias, column, columns, biased)
    total = tl.zeros((parts, block_n, block_m), tl.float32)
    for run in tl.range(0, runs, parts, num_stages=stages):
        within = inner < width - run * RUN
        tile = tl.load(weight_at + run * RUN, mask=within & inside[None, :, None], other=0.0)
        x_tile = tl.load(x_at + run * RUN, mask=within & held[None, :, None], other=0.0)
        real = part < runs - run
        scale = tl.load(scale_at + run, mask=real, other=0.0)[:, None]
        scale *= tl.load(x_scale_at + run, mask=real[:, None] & held[None, :], other=0.0)
        total += tl.dot(tile, tl.trans(x_tile, (0, 2, 1))) * scale[:, None, :]
    finish(total, wide_bias, out, start, row, held, column, columns)


FEW_TILINGS = {
    8: SkinnyTiling(block_m=8, block_n=16, parts=4, step=FP8_BLOCK, depth=3),
    16: SkinnyTiling(block_m=16, block_n=16, parts=4, step=FP8_BLOCK, depth=3),
}
"""By the most rows that each is for; for more rows or columns, tiles of 64 columns serve."""


@dataclass(frozen=True, slots=True)
class _Tiling:
    """How a launch is cut: rows a tile, halves of 128 columns a tile, and see `Tiling`."""

    block_m: int
    halves: int
    group: int
    warps: int
    stages: int


_BROAD = _Tiling(block_m=16, halves=1, group=1, warps=4, stages=6)
"""For a head's columns, of which there are enough to fill the chip."""
_SOME = _Tiling(block_m=64, halves=1, group=1, warps=4, stages=5)
_MANY = _Tiling(block_m=128, halves=2, group=8, warps=8, stages=3)


def _tiling(rows: int) -> _Tiling:
    if rows <= 16:
        return _BROAD
    return _SOME if rows <= 512 else _MANY


def linear_fp8(x: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """See `gemm.linear_fp8`; x in bfloat16, its width a multiple of 16."""
    if not x.shape[0]:
        return x.new_empty((0, values.shape[0]))
    return multiply(*quantize_fp8_rows(x), values, scales, bias)


def multiply(
    x: Tensor, x_scales: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None
) -> Tensor:
    """The product with x quantised already.

    Args:
        x: float8_e4m3fn [rows, in], rows at least 1, in a multiple of 16.
        x_scales: float32 [rows, ceil(in / 128)].
        values: float8_e4m3fn [out, in].
        scales: float32 [ceil(out / 128), ceil(in / 128)].
        bias: bfloat16 [out].

    Returns:
        bfloat16 [rows, out].
    """
    for most, few in FEW_TILINGS.items():
        if x.shape[0] <= most and values.shape[0] <= MOST_COLUMNS:
            return multiply_few(few, x, x_scales, values, scales, bias)
    return multiply_many(x, x_scales, values, scales, bias)


def multiply_many(
    x: Tensor, x_scales: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None
) -> Tensor:
    """See `multiply`; for any number of rows."""
    rows, width = x.shape
    columns = values.shape[0]
    out = torch.empty((rows, columns), dtype=torch.bfloat16, device=x.device)
    tiling = _tiling(rows)
    row_tiles = ceil_div(ceil_div(rows, tiling.block_m), tiling.group) * tiling.group
    column_tiles = ceil_div(columns, HALF.value * tiling.halves)
    _linear_fp8_kernel[(row_tiles * column_tiles,)](
        x,
        x_scales,
        TensorDescriptor.from_tensor(values, [HALF.value, FP8_BLOCK]),
        scales,
        # Any pointer: without a bias nothing is read through it.
        scales if bias is None else bias,
        out,
        rows,
        columns,
        width,
        bias is not None,
        tiling.halves,
        tiling.block_m,
        tiling.group,
        tiling.stages,
        num_warps=tiling.warps,
    )
    return out


def multiply_few(
    tiling: SkinnyTiling,
    x: Tensor,
    x_scales: Tensor,
    values: Tensor,
    scales: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """See `multiply`; `tiling.step` is 128."""
    rows, width = x.shape
    columns = values.shape[0]
    out = torch.empty((rows, columns), dtype=torch.bfloat16, device=x.device)
    grid = (ceil_div(columns, tiling.block_n), ceil_div(rows, tiling.block_m))
    _linear_fp8_few_kernel[grid](
        x,
        x_scales,
        values,
        scales,
        # Any pointer: without a bias nothing is read through it.
        scales if bias is None else bias,
        out,
        rows,
        columns,
        width,
        bias is not None,
        tiling.block_m,
        tiling.block_n,
        tiling.parts,
        tiling.stages(columns, width, rows, x.itemsize),
        num_warps=tiling.parts,
        **dependent.LAUNCH,
    )
    return out

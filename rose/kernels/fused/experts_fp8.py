"""The experts' two products with FP8 weights: gate and up with their activation, and down.

Steps of 128 inner values with scales of their own, see `fp8_tiles`. The first product quantises the
activation's result itself: its tile is one run of 128 columns.

Decode is bound by the weights' bytes: one token of gpt-oss reads 66 MB for gate and up, 16 us at
4.2 TB/s, over 92 programs; expect 60 to 70% of that rate, 80% when every expert is busy. Prefill of
8192 tokens is 1.09 TFLOP for gate and up; Triton's products of this kind reach about half of the
chip's 1.1 PFLOP/s, so expect 2 ms, and half of that for down.
"""
# mypy: disable-error-code="untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from rose.kernels.fused import dependent
from rose.kernels.fused.expert_tiles import (
    Tiling,
    TilingTable,
    activate,
    find_tile,
    source_rows,
    store_tile,
)
from rose.kernels.fused.fp8_tiles import HALF, add_product, whole_run
from rose.kernels.fused.interpret import round_to
from rose.kernels.fused.quantize import RUN, quantize_runs
from rose.kernels.matrices import Fp8Matrices
from rose.kernels.quantize import FP8_BLOCK, ceil_div
from rose.kernels.routing import Routing


@triton.jit
def _tile(
    operands: tl.tuple,
    where: tl.tuple,
    columns: tl.constexpr,
    width: tl.constexpr,
    gated: tl.constexpr,
    block_m: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """Compute one tile.

    Args:
        operands: the kernel's arguments but those that tell where the rows are.
        where: the tile, as `find_tile` gives it; it has at most `block_m` rows.
        columns: of each part of the weight, and of the result.
        width: of x.
        gated: whether the weight has two parts, whose activation is the result.
        block_m: rows of the product.
        stages: of the software pipeline.
    """
    x, x_scales, weight, weight_scales, bias, token_of_row, out, out_scales, limit = operands
    expert, start, rows, first_column = where
    parts: tl.constexpr = 2 if gated else 1
    runs: tl.constexpr = (width + RUN - 1) // RUN
    column_runs: tl.constexpr = (columns + RUN - 1) // RUN
    row = tl.arange(0, block_m)
    held = row < rows
    column = first_column + tl.arange(0, RUN)
    inside = column < columns
    inner = tl.arange(0, RUN)

    source = source_rows(token_of_row, start, row, rows, gated)
    x_at = x + source[:, None] * width + inner[None, :]
    x_scale_at = x_scales + source * runs
    weight_row = (expert * parts * columns).to(tl.int32) + first_column
    scale_at = weight_scales + (expert * parts * column_runs + first_column // RUN) * runs
    bias_at = bias + expert * parts * columns

    # Four accumulators of 64 columns: a fresh product of 128 beside them would spill.
    rows_lead: tl.constexpr = block_m >= 64
    lead: tl.constexpr = block_m if rows_lead else HALF
    other: tl.constexpr = HALF if rows_lead else block_m
    low = tl.zeros((lead, other), tl.float32)
    high, second_low, second_high = low, low, low
    for run in tl.range(0, runs, num_stages=stages):
        at = run * RUN
        # Weights first: x has to wait for the numbers of its rows.
        tile = weight.load([weight_row, at])
        x_tile = tl.load(x_at + at, mask=inner[None, :] < width - at, other=0.0)
        x_scale = tl.load(x_scale_at + run)
        scale = x_scale * tl.load(scale_at + run)
        low = add_product(low, x_tile, tile, scale, rows_lead)
        tile = weight.load([weight_row + HALF, at])
        high = add_product(high, x_tile, tile, scale, rows_lead)
        if gated:
            scale = x_scale * tl.load(scale_at + column_runs * runs + run)
            up = weight_row + columns
            second_low = add_product(second_low, x_tile, weight.load([up, at]), scale, rows_lead)
            tile = weight.load([up + HALF, at])
            second_high = add_product(second_high, x_tile, tile, scale, rows_lead)

    total = whole_run(low, high, rows_lead)
    total += tl.load(bias_at + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if gated:
        second = whole_run(second_low, second_high, rows_lead)
        second_bias = tl.load(bias_at + columns + column, mask=inside, other=0.0)
        second += second_bias.to(tl.float32)[None, :]
        hidden = activate(total, second, limit).to(tl.float32)
        # Columns beyond the last one are another matrix's and must not set the scale.
        codes, scales = quantize_runs(tl.where(inside[None, :], hidden, 0.0))
        store_tile(out, codes, start, row, held, column, columns)
        tl.store(out_scales + (start + row) * column_runs + first_column // RUN, scales, mask=held)
    else:
        store_tile(out, round_to(total, tl.bfloat16), start, row, held, column, columns)


@triton.jit
def _experts_fp8_kernel(
    x: tl.tensor,
    x_scales: tl.tensor,
    weight: tl.tensor_descriptor,
    weight_scales: tl.tensor,
    bias: tl.tensor,
    token_of_row: tl.tensor,
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    out: tl.tensor,
    out_scales: tl.tensor,
    limit: tl.tensor,
    experts: tl.constexpr,
    experts_padded: tl.constexpr,
    columns: tl.constexpr,
    width: tl.constexpr,
    gated: tl.constexpr,
    block_m: tl.constexpr,
    group: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """One tile; with `gated` of two parts, whose activation is the result, quantised."""
    dependent.start()
    expert, start, rows, first_column = find_tile(
        tokens_per_expert, first_row, experts, experts_padded, columns, block_m, RUN, group
    )
    if expert >= experts:
        return
    operands = (x, x_scales, weight, weight_scales, bias, token_of_row, out, out_scales, limit)
    where = (expert, start, rows, first_column)
    # An expert's last tile is half empty on average: a product of half the width will then do.
    half: tl.constexpr = block_m // 2
    if block_m >= 128 and rows <= half:
        _tile(operands, where, columns, width, gated, half, stages)
    else:
        _tile(operands, where, columns, width, gated, block_m, stages)


GATE_UP_TILINGS = TilingTable(
    steps=(
        # The same bytes in flight on an SM, by one program where they are few, else by two.
        (0.25, Tiling(block_m=16, block_n=128, group=1, warps=4, stages=6)),
        (8, Tiling(block_m=16, block_n=128, group=1, warps=4, stages=3)),
        (24, Tiling(block_m=32, block_n=128, group=1, warps=4, stages=3)),
        (96, Tiling(block_m=64, block_n=128, group=2, warps=8, stages=4)),
    ),
    # Two programs an SM: one multiplies while the other scales and adds.
    beyond=Tiling(block_m=64, block_n=128, group=8, warps=4, stages=2),
)
DOWN_TILINGS = TilingTable(
    steps=(
        (0.25, Tiling(block_m=16, block_n=128, group=1, warps=4, stages=6)),
        (8, Tiling(block_m=16, block_n=128, group=1, warps=4, stages=4)),
        (24, Tiling(block_m=32, block_n=128, group=1, warps=4, stages=4)),
        (96, Tiling(block_m=64, block_n=128, group=2, warps=8, stages=4)),
    ),
    # Two programs an SM: one multiplies while the other writes.
    beyond=Tiling(block_m=128, block_n=128, group=8, warps=8, stages=3),
)
"""Tiles are a run of 128 columns wide: what shares a scale, of weights and of the result."""


def gate_up(
    x: Tensor,
    x_scales: Tensor,
    routing: Routing,
    weight: Fp8Matrices,
    bias: Tensor,
    limit: float,
) -> tuple[Tensor, Tensor]:
    """Gather each expert's tokens, multiply by its gate and up, apply the activation, quantise.

    Args:
        x: float8_e4m3fn [tokens, in].
        x_scales: float32 [tokens, ceil(in / 128)].
        routing: which expert computes which token.
        weight: [experts, 2] matrices [out, in]; gate, then up.
        bias: bfloat16 [experts, 2 * out].
        limit: of the activation.

    Returns:
        float8_e4m3fn [tokens * k, out], in the routing's order of rows, and its float32 scales
        [tokens * k, ceil(out / 128)].
    """
    rows, columns = routing.token_of_row.shape[0], weight.values.shape[-2]
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    runs = ceil_div(columns, FP8_BLOCK)
    out_scales = torch.empty((rows, runs), dtype=torch.float32, device=x.device)
    _launch(x, x_scales, routing, weight, bias, out, out_scales, limit, gated=True)
    return out, out_scales


def down(
    hidden: Tensor, hidden_scales: Tensor, routing: Routing, weight: Fp8Matrices, bias: Tensor
) -> Tensor:
    """Multiply each expert's rows by its down.

    Args:
        hidden: float8_e4m3fn [tokens * k, in], in the routing's order of rows.
        hidden_scales: float32 [tokens * k, ceil(in / 128)].
        routing: which expert computes which row.
        weight: [experts, 1] matrices [out, in].
        bias: bfloat16 [experts, out].

    Returns:
        bfloat16 [tokens * k, out].
    """
    shape = (hidden.shape[0], weight.values.shape[-2])
    out = torch.empty(shape, dtype=bias.dtype, device=hidden.device)
    _launch(hidden, hidden_scales, routing, weight, bias, out, out, 0.0, gated=False)
    return out


def _launch(
    x: Tensor,
    x_scales: Tensor,
    routing: Routing,
    weight: Fp8Matrices,
    bias: Tensor,
    out: Tensor,
    out_scales: Tensor,
    limit: float,
    *,
    gated: bool,
) -> None:
    """Fill `out`, and `out_scales` if gated."""
    rows = routing.token_of_row.shape[0]
    if not rows:
        return
    experts, _, columns, width = weight.values.shape
    tiling = (GATE_UP_TILINGS if gated else DOWN_TILINGS).choose(rows, experts)
    _experts_fp8_kernel[(tiling.programs(rows, experts, columns),)](
        x,
        x_scales,
        TensorDescriptor.from_tensor(weight.values.view(-1, width), [HALF.value, FP8_BLOCK]),
        weight.scales,
        bias,
        routing.token_of_row,
        routing.tokens_per_expert,
        routing.first_row,
        out,
        out_scales,
        limit,
        experts,
        triton.next_power_of_2(experts),
        columns,
        width,
        gated,
        tiling.block_m,
        tiling.group,
        tiling.stages,
        num_warps=tiling.warps,
        **dependent.LAUNCH,
    )

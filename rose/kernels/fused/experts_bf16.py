"""The experts' two products with bfloat16 weights: gate and up with their activation, and down.

Decode is bound by the weights' bytes, four times those of MXFP4: one token of gpt-oss reads 133 MB
for gate and up, 32 us at 4.2 TB/s; with 90 or more programs streaming expect 80% of that rate.
Prefill of 8192 tokens is 1.09 TFLOP for gate and up; expect 500 to 550 of the chip's 700 TFLOP/s.
"""
# mypy: disable-error-code="untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent
from rose.kernels.fused.expert_tiles import (
    MASKED_ROWS,
    Tiling,
    TilingTable,
    activate,
    bias_tile,
    find_tile,
    multiply,
    source_rows,
    store_tile,
)
from rose.kernels.fused.interpret import round_to
from rose.kernels.routing import Routing

_STEP = tl.constexpr(64)
"""Inner values a step: 128 bytes, the widest swizzle of shared memory."""


@triton.jit
def _tile(
    operands: tl.tuple,
    where: tl.tuple,
    columns: tl.constexpr,
    width: tl.constexpr,
    gated: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
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
        block_n: its columns, of each part.
        stages: of the software pipeline.
    """
    x, weight, bias, token_of_row, out, limit = operands
    expert, start, rows, first_column = where
    parts: tl.constexpr = 2 if gated else 1
    row = tl.arange(0, block_m)
    held = row < rows
    column = first_column + tl.arange(0, block_n)
    inside = column < columns
    inner = tl.arange(0, _STEP)

    source = source_rows(token_of_row, start, row, rows, gated)
    x_at = x + source[:, None] * width + inner[None, :]
    weight_at = weight + expert * parts * columns * width
    weight_at += column[:, None] * width + inner[None, :]
    bias_at = bias + expert * parts * columns

    total = bias_tile(bias_at, column, columns, block_m)
    if gated:
        second = bias_tile(bias_at + columns, column, columns, block_m)
    for at in tl.range(0, width, _STEP, num_stages=stages):
        left = inner[None, :] < width - at
        # Weights first: x has to wait for the numbers of its rows.
        tile = tl.load(weight_at + at, mask=inside[:, None] & left, other=0.0)
        in_x = left
        if block_m <= MASKED_ROWS:
            in_x &= held[:, None]
        x_tile = tl.load(x_at + at, mask=in_x, other=0.0).T
        total = multiply(tile, x_tile, total)
        if gated:
            tile = tl.load(weight_at + columns * width + at, mask=inside[:, None] & left, other=0.0)
            second = multiply(tile, x_tile, second)

    if gated:
        hidden = activate(total, second, limit)
        store_tile(out, tl.trans(hidden), start, row, held, column, columns)
    else:
        result = tl.trans(round_to(total, tl.bfloat16))
        store_tile(out, result, start, row, held, column, columns)


@triton.jit
def _experts_bf16_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    token_of_row: tl.tensor,
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    out: tl.tensor,
    limit: tl.tensor,
    experts: tl.constexpr,
    experts_padded: tl.constexpr,
    columns: tl.constexpr,
    width: tl.constexpr,
    gated: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    group: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """One tile; with `gated` of two parts, whose activation is the result."""
    dependent.start()
    expert, start, rows, first_column = find_tile(
        tokens_per_expert, first_row, experts, experts_padded, columns, block_m, block_n, group
    )
    if expert >= experts:
        return
    operands = (x, weight, bias, token_of_row, out, limit)
    where = (expert, start, rows, first_column)
    # An expert's last tile is half empty on average: a product of half the width will then do.
    half: tl.constexpr = block_m // 2
    if block_m >= 128 and rows <= half:
        _tile(operands, where, columns, width, gated, half, block_n, stages)
    else:
        _tile(operands, where, columns, width, gated, block_m, block_n, stages)


GATE_UP_TILINGS = TilingTable(
    steps=(
        (8, Tiling(block_m=16, block_n=64, group=1, warps=4, stages=4)),
        (24, Tiling(block_m=32, block_n=64, group=1, warps=4, stages=4)),
        (96, Tiling(block_m=64, block_n=128, group=2, warps=8, stages=4)),
    ),
    beyond=Tiling(block_m=128, block_n=128, group=8, warps=8, stages=4),
)
DOWN_TILINGS = TilingTable(
    steps=(
        (8, Tiling(block_m=16, block_n=64, group=1, warps=4, stages=4)),
        (24, Tiling(block_m=32, block_n=64, group=1, warps=4, stages=4)),
        (96, Tiling(block_m=64, block_n=128, group=2, warps=8, stages=4)),
    ),
    # As wide as both parts of the other product: the same reads of x for twice the work.
    beyond=Tiling(block_m=128, block_n=256, group=8, warps=8, stages=4),
)


def gate_up(x: Tensor, routing: Routing, weight: Tensor, bias: Tensor, limit: float) -> Tensor:
    """Gather each expert's tokens, multiply by its gate and up, and apply the activation.

    Args:
        x: bfloat16 [tokens, in].
        routing: which expert computes which token.
        weight: bfloat16 [experts, 2, out, in]; gate, then up.
        bias: bfloat16 [experts, 2 * out].
        limit: of the activation.

    Returns:
        bfloat16 [tokens * k, out], in the routing's order of rows.
    """
    return _launch(x, routing, weight, bias, limit, gated=True)


def down(hidden: Tensor, routing: Routing, weight: Tensor, bias: Tensor) -> Tensor:
    """Multiply each expert's rows by its down.

    Args:
        hidden: bfloat16 [tokens * k, in], in the routing's order of rows.
        routing: which expert computes which row.
        weight: bfloat16 [experts, 1, out, in].
        bias: bfloat16 [experts, out].

    Returns:
        bfloat16 [tokens * k, out].
    """
    return _launch(hidden, routing, weight, bias, 0.0, gated=False)


def _launch(
    x: Tensor, routing: Routing, weight: Tensor, bias: Tensor, limit: float, *, gated: bool
) -> Tensor:
    rows = routing.token_of_row.shape[0]
    experts, _, columns, width = weight.shape
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    if not rows:
        return out
    tiling = (GATE_UP_TILINGS if gated else DOWN_TILINGS).choose(rows, experts)
    _experts_bf16_kernel[(tiling.programs(rows, experts, columns),)](
        x.contiguous(),
        weight,
        bias,
        routing.token_of_row,
        routing.tokens_per_expert,
        routing.first_row,
        out,
        limit,
        experts,
        triton.next_power_of_2(experts),
        columns,
        width,
        gated,
        tiling.block_m,
        tiling.block_n,
        tiling.group,
        tiling.stages,
        num_warps=tiling.warps,
        **dependent.LAUNCH,
    )
    return out

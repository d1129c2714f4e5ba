"""The experts' two products with packed MXFP4 weights: gate and up with their activation, and down.

Weights stay packed until they are in registers: `mxfp4_tiles` lays them out so that a word holds
what one thread feeds to the tensor core, and a shift, a mask and half a product make a bfloat16 of
a code, exactly. Activations stay bfloat16. Weights are fetched by cp.async: the wait loops of TMA
would part the unrolled step into blocks, and ptxas then waits for every wgmma (seen in its code).

Where rows are few, `experts_mxfp4_stream` computes the same; where they are many, and its widths
fit, `rose.kernels.cuda.experts_mxfp4` does. Gate and up of 8192 tokens, 1.09 TFLOP, take 2.3 to
2.6 ms here.
"""
# mypy: disable-error-code="untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent, experts_mxfp4_stream
from rose.kernels.fused.expert_tiles import (
    LISTED,
    MASKED_ROWS,
    Tiling,
    TilingTable,
    activate,
    bias_tile,
    find_tile,
    multiply,
    settle,
    source_rows,
    store_tile,
)
from rose.kernels.fused.interpret import round_to
from rose.kernels.fused.mxfp4_unpack import GROW, SHRINK, unpack_words, wide_scale
from rose.kernels.matrices import Mxfp4Matrices
from rose.kernels.routing import Routing

_RUN = tl.constexpr(128)
"""Inner values a step: those that share a word of scales."""


@triton.jit
def _unpack(words: tl.tensor, scales: tl.tensor, block_n: tl.constexpr) -> tl.tensor:
    """Tiled words int32 [block_n, 16] and scales int32 [block_n] to bfloat16 [block_n, 128].

    Nothing here crosses threads: Triton loads the words in the layout that the product wants.
    """
    even = tl.join(scales & 0xFF, (scales >> 16) & 0xFF)
    odd = tl.join((scales >> 8) & 0xFF, (scales >> 24) & 0xFF)
    scale = wide_scale(tl.reshape(tl.join(even, odd), (block_n, 4)))
    scale = tl.reshape(tl.broadcast_to(scale[:, :, None], (block_n, 4, 4)), (block_n, 16))
    values = unpack_words(words, scale)
    # [n, group, t, j, h, l] to [n, group, j, h, t, l], see `mxfp4_tiles`.
    values = tl.trans(tl.reshape(values, (block_n, 4, 4, 2, 2, 2)), (0, 1, 3, 4, 2, 5))
    return tl.reshape(values, (block_n, _RUN))


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
    x, words, scales, bias, token_of_row, out, limit = operands
    expert, start, rows, first_column = where
    parts: tl.constexpr = 2 if gated else 1
    runs: tl.constexpr = (width + _RUN - 1) // _RUN
    row = tl.arange(0, block_m)
    held = row < rows
    column = first_column + tl.arange(0, block_n)
    inside = column < columns
    inner = tl.arange(0, _RUN)
    word = tl.arange(0, _RUN // 8)

    source = source_rows(token_of_row, start, row, rows, gated)
    x_at = x + source[:, None] * width + inner[None, :]
    word_at = words + expert * parts * columns * (width // 8)
    word_at += column[:, None] * (width // 8) + word[None, :]
    scale_at = scales + expert * parts * runs * columns + column
    bias_at = bias + expert * parts * columns

    total = bias_tile(bias_at, column, columns, block_m) * SHRINK
    if gated:
        second = bias_tile(bias_at + columns, column, columns, block_m) * SHRINK
    for run in tl.range(0, runs, num_stages=stages):
        # Weights first: x has to wait for the numbers of its rows.
        in_words = inside[:, None] & (word[None, :] < width // 8 - run * (_RUN // 8))
        at = word_at + run * (_RUN // 8)
        weight = tl.load(at, mask=in_words, other=0)
        scale = tl.load(scale_at + run * columns, mask=inside, other=0)
        in_x = inner[None, :] < width - run * _RUN
        if block_m <= MASKED_ROWS:
            in_x &= held[:, None]
        x_tile = tl.load(x_at + run * _RUN, mask=in_x, other=0.0).T
        total = multiply(_unpack(weight, scale, block_n), x_tile, total)
        if gated:
            weight = tl.load(at + columns * (width // 8), mask=in_words, other=0)
            scale = tl.load(scale_at + (runs + run) * columns, mask=inside, other=0)
            second = settle(multiply(_unpack(weight, scale, block_n), x_tile, second))
        total = settle(total)

    total *= GROW
    if gated:
        hidden = activate(total, second * GROW, limit)
        store_tile(out, tl.trans(hidden), start, row, held, column, columns)
    else:
        result = tl.trans(round_to(total, tl.bfloat16))
        store_tile(out, result, start, row, held, column, columns)


@triton.jit
def _experts_mxfp4_kernel(
    x: tl.tensor,
    words: tl.tensor,
    scales: tl.tensor,
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
    operands = (x, words, scales, bias, token_of_row, out, limit)
    where = (expert, start, rows, first_column)
    # An expert's last tile is half empty on average: a product of half the width will then do.
    half: tl.constexpr = block_m // 2
    if block_m >= 128 and rows <= half:
        _tile(operands, where, columns, width, gated, half, block_n, stages)
    else:
        _tile(operands, where, columns, width, gated, block_m, block_n, stages)


GATE_UP_TILINGS = TilingTable(
    steps=(
        # Few programs: narrow ones, whose warps split the inner dimension, give every SM some.
        (0.3, Tiling(block_m=8, block_n=8, group=1, warps=2, stages=4, split=2)),
        (8, Tiling(block_m=8, block_n=32, group=1, warps=2, stages=2, split=1)),
        (24, Tiling(block_m=32, block_n=128, group=1, warps=8, stages=4)),
        (96, Tiling(block_m=64, block_n=128, group=2, warps=8, stages=3)),
    ),
    beyond=Tiling(block_m=128, block_n=128, group=8, warps=8, stages=4),
)
DOWN_TILINGS = TilingTable(
    steps=(
        # Few programs: narrow ones, whose warps split the inner dimension, give every SM some.
        (0.1, Tiling(block_m=8, block_n=32, group=1, warps=4, stages=2, split=4)),
        (0.3, Tiling(block_m=8, block_n=32, group=1, warps=2, stages=2, split=1)),
        (8, Tiling(block_m=8, block_n=64, group=1, warps=2, stages=2, split=1)),
        (24, Tiling(block_m=32, block_n=128, group=1, warps=8, stages=4)),
        (96, Tiling(block_m=64, block_n=128, group=2, warps=8, stages=3)),
    ),
    # As wide as both parts of the other product: the same reads of x for twice the work.
    beyond=Tiling(block_m=128, block_n=256, group=8, warps=8, stages=4),
)


def gate_up(
    x: Tensor, routing: Routing, weight: Mxfp4Matrices, bias: Tensor, limit: float
) -> Tensor:
    """Gather each expert's tokens, multiply by its gate and up, and apply the activation.

    Args:
        x: bfloat16 [tokens, in].
        routing: which expert computes which token.
        weight: [experts, 2] matrices [out, in], tiled; gate, then up.
        bias: bfloat16 [experts, 2 * out].
        limit: of the activation.

    Returns:
        bfloat16 [tokens * k, out], in the routing's order of rows.
    """
    return _launch(x, routing, weight, bias, limit, gated=True)


def down(hidden: Tensor, routing: Routing, weight: Mxfp4Matrices, bias: Tensor) -> Tensor:
    """Multiply each expert's rows by its down.

    Args:
        hidden: bfloat16 [tokens * k, in], in the routing's order of rows.
        routing: which expert computes which row; the kernel ahead of this one, which computes
            `hidden`, has not written it: it is read before that one has ended.
        weight: [experts, 1] matrices [out, in], tiled.
        bias: bfloat16 [experts, out].

    Returns:
        bfloat16 [tokens * k, out].
    """
    return _launch(hidden, routing, weight, bias, 0.0, gated=False)


def _launch(
    x: Tensor,
    routing: Routing,
    weight: Mxfp4Matrices,
    bias: Tensor,
    limit: float,
    *,
    gated: bool,
) -> Tensor:
    rows = routing.token_of_row.shape[0]
    experts, _, columns, groups, _ = weight.blocks.shape
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    if not rows:
        return out
    tiling = (GATE_UP_TILINGS if gated else DOWN_TILINGS).choose(rows, experts)
    operands = (
        x.contiguous(),
        weight.blocks.view(torch.int32),
        weight.scales.view(torch.int32),
        bias,
        routing.token_of_row,
        routing.tokens_per_expert,
        routing.first_row,
    )
    results = (out, limit)
    grid = (tiling.programs(rows, experts, columns),)
    padded = triton.next_power_of_2(experts)
    cut = (tiling.block_m, tiling.block_n, tiling.group)
    if tiling.split:
        listed = tiling.block_m == LISTED.value and tiling.group == 1
        early = experts_mxfp4_stream.EARLY_DOWN and not gated
        experts_mxfp4_stream.experts_mxfp4_stream_kernel[grid](
            *operands, routing.tiles if listed else None, *results,
            experts, padded, columns, groups, gated,
            *cut, tiling.split, tiling.warps, tiling.stages, early,
            num_warps=tiling.warps, **dependent.LAUNCH,
        )  # fmt: skip
    else:
        _experts_mxfp4_kernel[grid](
            *operands, *results, experts, padded, columns, groups * 32, gated,
            *cut, tiling.stages, num_warps=tiling.warps, **dependent.LAUNCH,
        )  # fmt: skip
    return out

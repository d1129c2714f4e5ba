"""The experts' products for few rows an expert: MXFP4 weights stream from memory to registers.

Nothing but the sums of a split passes through shared memory, and no warp waits for another. Each
thread fetches what it multiplies: of a weight's row one group of 32, which is 16 bytes, and of a
token the 32 values that it meets. A product of 16 x 16 by 16 x 8 (mma.sync) wants a row's 16 values
from four threads; as sums do not mind the order, each thread gives four of its own group. So a
thread has one scale for four words. `mxfp4_tiles`' form serves as it is: a word has every fourth
pair of a group, and the pairs of x that it meets are one register of each of four.

A product's 16 rows are two octets: for gate and up one of each, whose activation then stays within
a thread. Warps share a program's columns, or split the inner dimension, whose runs of 128 they
take in turn.

Bound by the weights' bytes, as `experts_mxfp4` is: 34 weights a cycle and SM at 4.2 TB/s. The code
has 2.2 to 2.6 instructions a weight, of 3.8 that fit, and 12 to 16 warps with 64 to 128 bytes a
thread on their way have 24 to 64 KiB an SM in flight. For 128 tokens over 128 experts an H200
reached 80% of the bandwidth, where 80 to 95% were predicted. For one token a program of gate and up
waits 1.2 us until it sees its first bytes (its tile, then the weights), and one of down less, as it
asks while gate and up still run: predicted were 12 and 7 us, measured alone 16 and 9.5.
"""
# mypy: disable-error-code="untyped-decorator,assignment,misc"
# ruff: noqa: RUF005 - Triton does not unpack within a tuple

import triton
import triton.language as tl

from rose.kernels.fused import dependent
from rose.kernels.fused.expert_tiles import (
    activate,
    find_listed_tile,
    find_tile,
    multiply,
    source_rows,
)
from rose.kernels.fused.interpret import INTERPRETED, round_to
from rose.kernels.fused.mxfp4_unpack import GROW, unpack_words, wide_scale

_INTERPRETED = tl.constexpr(INTERPRETED)
_RUN = tl.constexpr(128)
"""Inner values a step of a warp, of each row and token."""

EARLY_DOWN = True
"""Whether down asks for its first weights while gate and up are still computed."""

# What a warp fetches is [4 threads, 8 lanes, warps, ...]: Triton's layout of a load has its lanes
# along the first of the dimensions that are not contiguous, just where an operand of a product has
# them. So all that follows a load, up to the product, renames registers.


@triton.jit
def _stack(parts: tl.tuple) -> tl.tensor:
    """1, 2 or 4 tensors along a new last dimension."""
    if len(parts) == 1:
        stack = tl.reshape(parts[0], parts[0].shape + (1,))
    elif len(parts) == 2:
        stack = tl.join(parts[0], parts[1])
    else:
        stack = tl.join(tl.join(parts[0], parts[2]), tl.join(parts[1], parts[3]))
        stack = tl.reshape(stack, parts[0].shape + (4,))
    return stack


@triton.jit
def _fetch_octets(
    first: tl.tensor,
    part: tl.constexpr,
    pitch: tl.constexpr,
    room: tl.tensor,
    mask: tl.tensor,
    masked: tl.constexpr,
    tiles: tl.constexpr,
    gated: tl.constexpr,
    ragged: tl.constexpr,
) -> tl.tensor:
    """The octets of a warp's rows of the weight: [..., 2, tiles].

    Args:
        first: where the first octet's are.
        part: from gate to up.
        pitch: from one row to the next.
        room: rows behind those of the first octet; all beyond read the last one.
        mask: of the groups that exist; what others hold is undefined.
        masked: whether some do not.
        tiles: pairs of octets.
        gated: whether a pair is of gate and up, else it is of neighbours.
        ragged: whether there may be too little room.
    """
    pairs = ()
    for tile in tl.static_range(tiles):
        pair = ()
        for half in tl.static_range(2):
            rows = 8 * tile if gated else 8 * (2 * tile + half)
            at = first + part * half if gated else first
            if ragged:
                at += tl.minimum(room, rows) * pitch
            else:
                at += rows * pitch
            pair = pair + (tl.load(at, mask=mask) if masked else tl.load(at),)
        pairs = pairs + (_stack(pair),)
    return _stack(pairs)


@triton.jit
def _fetch_x(
    at: tl.tuple, offset: tl.tensor, mask: tl.tensor, masked: tl.constexpr, warps: tl.constexpr
) -> tl.tensor:
    """A run of every token, [warps, 128, tokens], in the order in which threads hold weights."""
    octets = ()
    for octet in tl.static_range(len(at)):
        chunks = ()
        for chunk in tl.static_range(4):
            if masked:
                loaded = tl.load(at[octet] + offset + 8 * chunk, mask=mask, other=0.0)
            else:
                loaded = tl.load(at[octet] + offset + 8 * chunk)
            chunks = chunks + (loaded,)
        octets = octets + (_stack(chunks),)
    # [thread, lane, warp, 2 x 2 words, 2 of a pair, 2 x 2 pairs of a word, octet]
    x = tl.reshape(_stack(octets), (4, 8, warps, 2, 2, 2, 2, 2, len(at)))
    return tl.reshape(tl.trans(x, (2, 3, 6, 4, 0, 7, 5, 8, 1)), (warps, _RUN, 8 * len(at)))


@triton.jit
def _multiply_run(words: tl.tensor, scales: tl.tensor, x: tl.tensor, total: tl.tensor) -> tl.tensor:
    """Accumulate words [4, 8, warps, 4, 2, tiles] times x [warps, 128, tokens]."""
    warps: tl.constexpr = words.shape[2]
    tiles: tl.constexpr = words.shape[5]
    scale = tl.reshape(wide_scale(_own_byte(scales)), (4, 8, warps, 1, 2, tiles))
    values = unpack_words(words, tl.broadcast_to(scale, words.shape))
    # [thread, lane, warp, 2 x 2 words, half, tile, 2 x 2 pairs of a word, 2 of a pair]
    values = tl.reshape(values, (4, 8, warps, 2, 2, 2, tiles, 2, 2, 2))
    values = tl.trans(values, (2, 6, 5, 1, 3, 7, 4, 0, 8, 9))
    return multiply(tl.reshape(values, (warps, 16 * tiles, _RUN)), x, total)


@triton.jit
def experts_mxfp4_stream_kernel(
    x: tl.tensor,
    words: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    token_of_row: tl.tensor,
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    listed_tiles: tl.tensor | None,
    out: tl.tensor,
    limit: tl.tensor,
    experts: tl.constexpr,
    experts_padded: tl.constexpr,
    columns: tl.constexpr,
    groups: tl.constexpr,
    gated: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    group: tl.constexpr,
    split: tl.constexpr,
    warps: tl.constexpr,
    depth: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """One tile; with `gated` of two parts, whose activation is the result.

    A row of the weight has `groups` of 32. `split` of the warps share the inner dimension, the
    others the columns. Weights are fetched `depth` steps before their use; with `early`, those of
    the first steps while the kernel ahead still computes x.
    """
    if not early:
        dependent.start()
    if listed_tiles is None:
        expert, start, rows, first_column = find_tile(
            tokens_per_expert, first_row, experts, experts_padded, columns, block_m, block_n, group
        )
    else:
        expert, start, rows, first_column = find_listed_tile(
            listed_tiles, experts, columns, block_n
        )
    if expert >= experts:
        # If early, without a wait: other programs have tiles, and do wait.
        return
    parts: tl.constexpr = 2 if gated else 1
    runs: tl.constexpr = (groups + 3) // 4
    abreast: tl.constexpr = warps // split
    tiles: tl.constexpr = block_n * parts // 16 // abreast
    tl.static_assert(16 * tiles * abreast == block_n * parts)
    octets: tl.constexpr = block_m // 8
    row_words: tl.constexpr = groups * 4
    ragged: tl.constexpr = columns % block_n != 0
    thread = tl.arange(0, 4)[:, None, None]
    lane = tl.arange(0, 8)
    warp = tl.arange(0, warps)[None, None, :]
    part = warp // abreast

    column = first_column + warp % abreast * (block_n // abreast) + lane[None, :, None]
    if ragged:
        column = tl.minimum(column, columns - 1)
    room = columns - 1 - column
    of_row = part * 4 + thread
    word_at = words + expert * (parts * columns * row_words)
    word_at += (column * row_words + of_row * 4)[:, :, :, None] + tl.arange(0, 4)
    # Four threads share a word of scales. They must not seem to be better placed than they are:
    # Triton would have lanes along the rows.
    scale_at = scales + expert * (parts * runs * columns)
    scale_at = tl.max_contiguous(scale_at + (column + part * columns + thread * 0), (1, 1, 1))
    steps: tl.constexpr = (runs + split - 1) // split
    whole: tl.constexpr = groups // (4 * split)
    turns: tl.constexpr = whole // depth - 1 if whole >= depth else 0
    fetched = ()
    for first in tl.static_range(depth):
        fetched = fetched + (
            _fetch(
                word_at, scale_at, of_row, first, room, first >= whole,
                columns, groups, split, tiles, gated, ragged,
            ),
        )  # fmt: skip
    # Asked for after the weights, which nothing has to wait for; used at the end.
    tile_column = (
        first_column
        + tl.arange(0, abreast)[:, None, None] * (block_n // abreast)
        + tl.arange(0, tiles)[None, :, None] * (8 if gated else 16)
        + lane[None, None, :]
    )
    beside: tl.constexpr = columns if gated else 8
    in_low = tile_column < columns
    in_high = in_low if gated else tile_column + 8 < columns
    bias_at = bias + expert * (parts * columns) + tile_column
    bias_low = tl.load(bias_at, mask=in_low, other=0.0)
    bias_high = tl.load(bias_at + beside, mask=in_high, other=0.0)
    if early:
        dependent.start()
    x_at = ()
    for octet in tl.static_range(octets):
        token = source_rows(token_of_row, start, 8 * octet + lane, rows, gated)
        at = x + (token * (groups * 32))[None, :, None, None]
        x_at = x_at + (at + (of_row * 32)[:, :, :, None] + tl.arange(0, 8),)
    total = tl.zeros([warps, 16 * tiles, block_m], tl.float32)
    exists = tl.broadcast_to(of_row[:, :, :, None] < groups, (4, 8, warps, 8))
    for turn in tl.range(0, turns, num_stages=1):
        for slot in tl.static_range(depth):
            now = turn * depth + slot
            x_tile = _fetch_x(x_at, now * (split * _RUN), exists, False, warps)
            following = _fetch(
                word_at, scale_at, of_row, now + depth, room, False,
                columns, groups, split, tiles, gated, ragged,
            )  # fmt: skip
            total = _multiply_run(fetched[0][0], fetched[0][1], x_tile, total)
            fetched = fetched[1:] + (following,)
    for step in tl.static_range(turns * depth, steps):
        inside = tl.broadcast_to(of_row + step * (split * 4) < groups, (4, 8, warps))
        exists = tl.broadcast_to(inside[:, :, :, None], (4, 8, warps, 8))
        x_tile = _fetch_x(x_at, step * (split * _RUN), exists, step >= whole, warps)
        words_tile, scale = fetched[0]
        if step + depth < steps:
            fetched = fetched[1:] + (
                _fetch(
                    word_at, scale_at, of_row, step + depth, room, step + depth >= whole,
                    columns, groups, split, tiles, gated, ragged,
                ),
            )  # fmt: skip
        else:
            fetched = fetched[1:]
        if step >= whole:
            # Whatever the words are, they are finite numbers under this scale, and x is zero.
            scale = tl.where(inside[:, :, :, None, None], scale, 0)
        total = _multiply_run(words_tile, scale, x_tile, total)

    total = tl.reshape(total * GROW, (split, abreast, tiles, 2, 8, block_m))
    total = tl.trans(tl.sum(total, 0), (0, 1, 3, 4, 2))
    low, high = tl.split(total)
    low += bias_low.to(tl.float32)[:, :, :, None]
    high += bias_high.to(tl.float32)[:, :, :, None]
    row = tl.arange(0, block_m)
    held = (row < rows)[None, None, None, :]
    at = out + (start + row)[None, None, None, :] * columns + tile_column[:, :, :, None]
    stored = held & in_low[:, :, :, None]
    if gated:
        tl.store(at, activate(low, high, limit), mask=stored)
    else:
        tl.store(at, round_to(low, tl.bfloat16), mask=stored)
        tl.store(at + 8, round_to(high, tl.bfloat16), mask=held & in_high[:, :, :, None])


@triton.jit
def _own_byte(scales: tl.tensor) -> tl.tensor:
    """Of words [4, ...] the byte whose number is the first index."""
    number = tl.reshape(tl.arange(0, 4), (4, 1, 1, 1, 1))
    if _INTERPRETED:
        return (scales >> (number * 8)) & 0xFF
    return tl.inline_asm_elementwise(
        "prmt.b32 $0, $1, 0, $2;", "=r,r,r", [scales, number + 0x4440],
        dtype=tl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _fetch(
    word_at: tl.tensor,
    scale_at: tl.tensor,
    of_row: tl.tensor,
    step: tl.tensor,
    room: tl.tensor,
    masked: tl.constexpr,
    columns: tl.constexpr,
    groups: tl.constexpr,
    split: tl.constexpr,
    tiles: tl.constexpr,
    gated: tl.constexpr,
    ragged: tl.constexpr,
) -> tl.tuple:
    """Words [4, 8, warps, 4, 2, tiles] and scales [4, 8, warps, 2, tiles] of one step."""
    row_words: tl.constexpr = groups * 4
    runs: tl.constexpr = (groups + 3) // 4
    warps: tl.constexpr = word_at.shape[2]
    inside = of_row + step * (split * 4) < groups
    words = _fetch_octets(
        word_at + step * (split * 16), columns * row_words, row_words, room[:, :, :, None],
        tl.broadcast_to(inside[:, :, :, None], (4, 8, warps, 4)), masked,
        tiles, gated, ragged,
    )  # fmt: skip
    scales = _fetch_octets(
        scale_at + step * (split * columns), runs * columns, 1, room,
        tl.broadcast_to(inside, (4, 8, warps)), masked,
        tiles, gated, ragged,
    )  # fmt: skip
    return words, scales

"""What the experts' kernels share: which tile a program computes, the activation, the launch.

A tile is `block_n` output columns of one expert by at most `block_m` of its rows. The grid follows
from shapes alone: each expert may leave one tile ragged, so `rows // block_m + experts` slots hold
whatever the router does, and a program that finds no tile in its slot leaves at once. Nothing is
read back to the host, so the launch can be captured in a CUDA graph.

Where rows are few, the routing lists the tiles of `LISTED` rows: a word each, in the order of the
slots, then zeros. A program then knows its tile after one load; to find it among the counts of all
experts takes two, and sums that cross warps.

Where tokens are few, weights are the left operand: output columns take the 64 or more rows that
wgmma wants, and tokens its N dimension, of which 16 will do. Accumulators are [block_n, block_m].
Tiles of 128 rows have a second form for half as many: of gpt-oss-120b's 256 rows an expert in a
prefill of 8192 tokens, whole tiles alone would compute 64 more in vain.
"""
# mypy: disable-error-code="untyped-decorator"

from dataclasses import dataclass

import triton
import triton.language as tl

from rose.kernels.fused.interpret import INTERPRETED, round_to
from rose.kernels.fused.swiglu import clamped_swiglu
from rose.kernels.quantize import ceil_div

_INTERPRETED = tl.constexpr(INTERPRETED)

LISTED = tl.constexpr(8)
"""Rows of a tile in a routing's list."""

LISTED_EXPERTS = 256
"""So many at most can be told apart in the list."""

MASKED_ROWS = tl.constexpr(32)
"""Tiles of at most so many rows mask the loads of those that they lack. In larger ones few are
missing, and to read the last one again is cheaper than a mask a row."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a launch is cut.

    Attributes:
        block_m: rows a tile, at least 16; of the streaming kernel 8, 16 or 32.
        block_n: output columns a tile, of each part.
        group: slots of rows whose tiles run side by side, so that they share weights in L2.
        warps: of a program.
        stages: of the software pipeline along the inner dimension.
        split: of a streaming kernel (`experts_mxfp4_stream`), into how many parts its warps split
            the inner dimension; 0: not a streaming kernel.
    """

    block_m: int
    block_n: int
    group: int
    warps: int
    stages: int
    split: int = 0

    def programs(self, rows: int, experts: int, columns: int) -> int:
        """Programs that cover `rows` rows over `experts` experts however they fall."""
        slots = min(rows, rows // self.block_m + experts)
        groups = ceil_div(slots, self.group)
        return groups * self.group * ceil_div(columns, self.block_n)


@dataclass(frozen=True, slots=True)
class TilingTable:
    """Tilings by how many rows an expert has on average.

    Attributes:
        steps: (rows an expert up to which it holds, tiling), ascending.
        beyond: for more rows.
    """

    steps: tuple[tuple[float, Tiling], ...]
    beyond: Tiling

    def choose(self, rows: int, experts: int) -> Tiling:
        """The tiling for `rows` rows in all."""
        for most, tiling in self.steps:
            if rows <= most * experts:
                return tiling
        return self.beyond


@triton.jit
def find_tile(
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    experts: tl.constexpr,
    experts_padded: tl.constexpr,
    columns: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    group: tl.constexpr,
) -> tl.tensor:
    """Find this program's tile.

    Slots of rows ascend with the expert. In a group of them programs go over the slots first, then
    over the columns.

    Returns:
        The expert, int64, `experts` or more if there is no tile for this program; the tile's first
        row, int64; how many rows it has; its first column.
    """
    column_tiles: tl.constexpr = (columns + block_n - 1) // block_n
    program = tl.program_id(0)
    member = program % (group * column_tiles)
    slot = program // (group * column_tiles) * group + member % group

    index = tl.arange(0, experts_padded)
    inside = index < experts
    # From L2: they may be read before `dependent.start`, when L1 may hold an older routing's.
    counts = tl.load(tokens_per_expert + index, mask=inside, other=0, cache_modifier=".cg")
    firsts = tl.load(first_row + index, mask=inside, other=0, cache_modifier=".cg")
    tiles = (counts + block_m - 1) // block_m
    ends = tl.cumsum(tiles, 0)
    expert = tl.sum((ends <= slot).to(tl.int32), 0)
    # What one expert's lane knows, a sum brings to every thread.
    mine = index == expert
    offset = (slot - ends + tiles) * block_m
    start = tl.sum(tl.where(mine, firsts + offset, 0), 0)
    rows = tl.sum(tl.where(mine, tl.minimum(counts - offset, block_m), 0), 0)
    return expert.to(tl.int64), start.to(tl.int64), rows, member // group * block_n


@triton.jit
def listed(expert: tl.tensor, start: tl.tensor, rows: tl.tensor) -> tl.tensor:
    """Words of tiles, int32, of at most LISTED_EXPERTS; `rows` may be more than a tile's."""
    return tl.minimum(rows, LISTED) | (expert << 4) | (start << 12)


@triton.jit
def find_listed_tile(
    tiles: tl.tensor, experts: tl.constexpr, columns: tl.constexpr, block_n: tl.constexpr
) -> tl.tensor:
    """`find_tile` by the routing's list, for tiles of `LISTED` rows in groups of one."""
    column_tiles: tl.constexpr = (columns + block_n - 1) // block_n
    slot = tl.program_id(0) // column_tiles
    # From L2: it may be read before `dependent.start`, when L1 may hold an older routing's.
    word = tl.load(tiles + slot, cache_modifier=".cg")
    rows = word & 15
    expert = tl.where(rows == 0, experts, (word >> 4) & 0xFF)
    first_column = tl.program_id(0) % column_tiles * block_n
    return expert.to(tl.int64), (word >> 12).to(tl.int64), rows, first_column


@triton.jit
def source_rows(
    token_of_row: tl.tensor,
    start: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    gathered: tl.constexpr,
) -> tl.tensor:
    """Which rows of the input a tile reads, int64: its tokens' if gathered, else its own.

    Places beyond the tile's rows read its last row, so that loads need no mask.
    """
    source = start + tl.minimum(row, rows - 1)
    if gathered:
        source = tl.load(token_of_row + source).to(tl.int64)
    return source


@triton.jit
def bias_tile(
    bias: tl.tensor, column: tl.tensor, columns: tl.constexpr, block_m: tl.constexpr
) -> tl.tensor:
    """The accumulators' start: float32 [block_n, block_m] from the bias of one expert's part."""
    wide = tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    return tl.broadcast_to(wide[:, None], (column.shape[0], block_m))


@triton.jit
def multiply(weight: tl.tensor, x: tl.tensor, total: tl.tensor) -> tl.tensor:
    """Accumulate weight @ x; the interpreter cannot multiply bfloat16 operands."""
    if _INTERPRETED:
        return tl.dot(weight.to(tl.float32), x.to(tl.float32), total)
    return tl.dot(weight, x, total)


@triton.jit
def settle(total: tl.tensor) -> tl.tensor:
    """Wait for the products that sum up in `total`, where it is called in a loop.

    Triton 3.6 lets a product whose left operand is in registers run on into the loop's next round,
    and neither it nor ptxas keeps that round from writing these registers: a sum then has terms of
    wrong weights, now and then. A copy, which costs nothing, is a use that they wait for.
    """
    if _INTERPRETED:
        return total
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=f,f", [total], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def activate(gate: tl.tensor, up: tl.tensor, limit: tl.tensor) -> tl.tensor:
    """The activation of float32 sums, with the reference's two roundings to bfloat16.

    Returns:
        bfloat16, of the operands' shape.
    """
    gate = round_to(gate, tl.bfloat16).to(tl.float32)
    up = round_to(up, tl.bfloat16).to(tl.float32)
    return round_to(clamped_swiglu(gate, up, limit), tl.bfloat16)


@triton.jit
def store_tile(
    out: tl.tensor,
    tile: tl.tensor,
    start: tl.tensor,
    row: tl.tensor,
    held: tl.tensor,
    column: tl.tensor,
    columns: tl.constexpr,
) -> None:
    """Write tile [block_m, block_n] to rows of out [rows, columns]."""
    at = out + (start + row)[:, None] * columns + column[None, :]
    tl.store(at, tile, mask=held[:, None] & (column < columns)[None, :])

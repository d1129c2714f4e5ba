"""What both attention kernels do alike: read a tile of keys from pages, and set up a softmax."""

from dataclasses import dataclass

import triton
import triton.language as tl


@dataclass(frozen=True, slots=True)
class TileConfig:
    """How a kernel is compiled.

    Attributes:
        keys: of one step of the softmax; a power of two.
        warps: of a program.
        stages: tiles of keys and values in flight or at work.
    """

    keys: int
    warps: int
    stages: int


LOG2_E = tl.constexpr(1.4426950408889634)

FLOOR = tl.constexpr(-1e30)
"""Least running maximum: finite, so that a row that sees no key yet has exp2(-inf - FLOOR) = 0."""


@triton.jit
def blocks_of_tile(
    table,
    start,
    low,
    high,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    ALIGNED: tl.constexpr = True,
):
    """Blocks of the keys from `start` on: one, or int32 [TILE] if they differ.

    ALIGNED: `start` is a multiple of TILE.

    Only entries of keys low <= key < high are read. A loop asks for its next tile's blocks while it
    works on this one's: were both read in one turn, Triton's pipeliner would spend its stages on
    the table, and wait for each tile of keys as soon as it had asked for it.
    """
    if ALIGNED and BLOCK_SIZE >= TILE:
        blocks = tl.load(table + start // BLOCK_SIZE, mask=start < high, other=0)
    else:
        key = start + tl.arange(0, TILE)
        exists = (key >= low) & (key < high)
        blocks = tl.load(table + key // BLOCK_SIZE, mask=exists, other=0)
    return blocks


@triton.jit
def slots_of_tile(blocks, start, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Slots (block * BLOCK_SIZE + offset, int64 [TILE]) of the keys from `start` on."""
    key = start + tl.arange(0, TILE)
    return blocks.to(tl.int64) * BLOCK_SIZE + key % BLOCK_SIZE


@triton.jit
def for_dot(x, UPCAST: tl.constexpr):
    """An operand of a product: as it is, or float32 in the interpreter."""
    if UPCAST:
        return x.to(tl.float32)
    return x

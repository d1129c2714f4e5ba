"""Products of few rows with a wide weight: what the dense kernels for decode share.

Such a product is bound by the weight's bytes, and what counts is to have many of them on their way
from the first moment to the last. So a program serves 16 or 32 columns with the whole inner
dimension: hundreds of programs that are all resident at once, several on an SM, each with a short
queue of cp.async (three steps were best on an H200). There are no waves that could be ragged, and
no partial sums between programs.

The weight is the left operand, for the tensor core's 16 rows, and tokens its 8 or more columns
(mma.sync: wgmma wants 64 rows). The warps of a program take a part of each step of the inner
dimension each, as a batch of products; the parts are summed in a fixed order at the end. With equal
parts and steps, the sums of a row do not depend on the tiling, nor on the rows beside it.

To ask L2 for the weight before the kernel before has ended (`dependent`) was tried: a whole weight
slows what still runs, a few lines gain nothing.
"""
# mypy: disable-error-code="untyped-decorator"

from dataclasses import dataclass

import triton
import triton.language as tl

from rose.kernels.fused.expert_tiles import store_tile
from rose.kernels.fused.interpret import INTERPRETED, round_to
from rose.kernels.quantize import ceil_div

_INTERPRETED = tl.constexpr(INTERPRETED)

SMS = 132
"""Of an H200."""

SHARED = 224 * 1024
"""Bytes of shared memory an SM that its programs may take; each takes 1 KiB besides."""

MOST_COLUMNS = 16_384
"""More, as a head has, fill the chip without these kernels."""


@dataclass(frozen=True, slots=True)
class SkinnyTiling:
    """How a launch is cut.

    Attributes:
        block_m: tokens a program: 8 or more, a power of two.
        block_n: columns a program, a multiple of 16, a power of two of at most 128.
        parts: of a step of the inner dimension; each has a warp.
        step: inner values of a part.
        depth: steps in shared memory, at most; as many as fit if all programs are to be resident.
    """

    block_m: int
    block_n: int
    parts: int
    step: int
    depth: int

    def stages(self, columns: int, width: int, rows: int, item_bytes: int) -> int:
        """Triton's number of stages: one more than there are buffers.

        Args:
            columns: of the weight.
            width: of the inner dimension.
            rows: tokens.
            item_bytes: of a value of either operand.
        """
        run = self.parts * self.step
        programs = ceil_div(columns, self.block_n) * ceil_div(rows, self.block_m)
        # The sums of the parts pass through shared memory, too, after the loop.
        share = SHARED // min(ceil_div(programs, SMS), 4) - 1024
        buffers = share // (run * (self.block_n + self.block_m) * item_bytes)
        return max(2, min(buffers, self.depth, ceil_div(width, run))) + 1


@triton.jit
def column_bias(
    bias: tl.tensor, column: tl.tensor, columns: tl.constexpr, biased: tl.constexpr
) -> tl.tensor:
    """The bias of these columns in float32, or zeros: read early, as it comes from afar."""
    wide = tl.zeros((column.shape[0],), tl.float32)
    if biased:
        wide = tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    return wide


@triton.jit
def finish(
    total: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    start: tl.tensor,
    row: tl.tensor,
    held: tl.tensor,
    column: tl.tensor,
    columns: tl.constexpr,
) -> None:
    """Sum the parts of float32 [parts, block_n, block_m], add the bias, round once, write."""
    result = tl.sum(total, 0) + bias[:, None]
    result = tl.trans(round_to(result, tl.bfloat16))
    store_tile(out, result, start, row, held, column, columns)

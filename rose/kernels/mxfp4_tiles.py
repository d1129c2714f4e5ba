"""The form in which fused kernels read MXFP4, and the way there and back.

A thread of a tensor core instruction (m16n8k16) holds, of each 16 values along the inner dimension,
those at 2t, 2t + 1, 2t + 8 and 2t + 9, where t is its place among four. The published order would
have it fetch single bytes. In the tiled form a 32-bit word has the 8 values that thread t needs of
a group of 32: word t of the group. So a row keeps its bytes in each group of 16, in another order.

In a word, the two halves are two neighbours along the inner dimension, as a bfloat16 register wants
them. The four codes s|eem of a half lie so that a shift and a mask leave s in bfloat16's sign and
eem across the border of exponent and mantissa, which is the value times 2^-126, subnormals too:

    bit   15 14 13 12 11 10  9  8 7 6  5 4 3  2 1 0
          s0 s3 m3 s1 e3 e3 s2  eem 0  eem 1  eem 2

Scales lie by runs of 128 values: [runs, rows, 4], so that a tile of rows reads whole lines.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from rose.kernels.quantize import ceil_div

SCALES_PER_WORD = 4
MAX_TILED_SCALE = 192
"""The largest scale byte, 2^65: inside the kernel its product must not overflow bfloat16."""


def tiled_scales_shape(rows: int, groups: int) -> tuple[int, int, int]:
    """The shape of the tiled scales of one matrix of `groups` groups a row."""
    return ceil_div(groups, SCALES_PER_WORD), rows, SCALES_PER_WORD


def tile_blocks(blocks: Tensor) -> Tensor:
    """Published blocks uint8 [..., 16] to tiled ones of the same shape."""
    # Byte 4 p + t of a group has the two neighbours that are pair p of thread t.
    octets = blocks.reshape(*blocks.shape[:-1], 4, 4).to(torch.int16)
    halves = torch.stack((_pack_half(octets & 15), _pack_half(octets >> 4)), dim=-1)
    return halves.view(torch.uint8).flatten(-2)


def _pack_half(codes: Tensor) -> Tensor:
    """Codes int16 [..., pair, t] to halves of words, int16 [..., t]."""
    first, second, third, fourth = codes.unbind(-2)
    half = (first >> 3) << 15 | (first & 7) << 6
    half |= (second >> 3) << 12 | (second & 7) << 3
    half |= (third >> 3) << 9 | (third & 7)
    half |= (fourth >> 3) << 14 | (fourth & 1) << 13 | (fourth & 6) << 9
    return half


def untile_blocks(tiled: Tensor) -> Tensor:
    """Tiled blocks uint8 [..., 16] to published ones."""
    words = tiled.reshape(*tiled.shape[:-1], 4, 4)
    half = words.view(torch.int16)  # [..., t, half]
    codes = (
        half >> 12 & 8 | half >> 6 & 7,
        half >> 9 & 8 | half >> 3 & 7,
        half >> 6 & 8 | half & 7,
        half >> 11 & 8 | half >> 13 & 1 | half >> 9 & 6,
    )
    octets = [code[..., 0] | code[..., 1] << 4 for code in codes]
    return torch.stack(octets, dim=-2).flatten(-2).to(torch.uint8)


def tile_scales(scales: Tensor) -> Tensor:
    """Published scales uint8 [..., rows, groups] to [..., ceil(groups / 4), rows, 4].

    Those above MAX_TILED_SCALE become it. A check would have a GPU wait for the CPU at every piece
    of a checkpoint that is read, for weights that no model has.
    """
    missing = -scales.shape[-1] % SCALES_PER_WORD
    padded = F.pad(scales.clamp(max=MAX_TILED_SCALE), (0, missing))
    words = padded.reshape(*padded.shape[:-1], -1, SCALES_PER_WORD)
    return words.transpose(-2, -3).contiguous()


def untile_scales(tiled: Tensor, groups: int) -> Tensor:
    """Tiled scales to published ones, uint8 [..., rows, groups]."""
    return tiled.transpose(-2, -3).flatten(-2)[..., :groups].contiguous()

"""Tiled MXFP4 words to bfloat16, for the kernels of the experts' products; see `mxfp4_tiles`.

Weights come out 2^64 times too small, so that one product with 2^126 times the scale both places
the exponent and stays within bfloat16, for scales from 2^-62 to 2^65. Sums grow again at the end.
"""
# mypy: disable-error-code="untyped-decorator"

import triton
import triton.language as tl

from rose.kernels.fused.interpret import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)

SHRINK = tl.constexpr(2.0**-64)
GROW = tl.constexpr(2.0**64)
_SCALE_UNIT = tl.constexpr(0x00800080)
"""The least exponent bit of both halves of a word."""
_SCALE_OFFSET = tl.constexpr((126 - 64) * 0x00800080)

_CODE = tl.constexpr(0x81C081C0 - 2**32)
_HIGH = tl.constexpr(0xFFFF0000 - 2**32)
_SIGN = tl.constexpr(0x80008000 - 2**32)


@triton.jit
def _times(pair: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """Product of two bfloat16 in each word with two others; int32 in and out."""
    if _INTERPRETED:
        # By their bits: the interpreter takes bfloat16's subnormals for zero.
        low = _wide(pair << 16) * _wide(scale << 16)
        high = _wide(pair & _HIGH) * _wide(scale & _HIGH)
        # Exact, so cutting the lower halves off rounds nothing.
        low = low.to(tl.int32, bitcast=True) >> 16
        return (low & 0xFFFF) | (high.to(tl.int32, bitcast=True) & _HIGH)
    return tl.inline_asm_elementwise(
        "mul.bf16x2 $0, $1, $2;", "=r,r,r", [pair, scale], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _wide(bits: tl.tensor) -> tl.tensor:
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _half(word: tl.tensor) -> tl.tensor:
    return word.to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def wide_scale(scale: tl.tensor) -> tl.tensor:
    """Scale bytes, as int32, to what `unpack_words` multiplies by: two bfloat16 in an int32."""
    return scale * _SCALE_UNIT + _SCALE_OFFSET


@triton.jit
def unpack_words(words: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """Words int32 [...] of one scale each, from `wide_scale`, to bfloat16 [..., 2, 2, 2].

    The last dimensions are the word's pairs, two by two, and the pair's halves. Nothing here
    crosses threads.
    """
    pair0 = _times(words & _CODE, scale)
    pair1 = _times((words << 3) & _CODE, scale)
    pair2 = _times((words << 6) & _CODE, scale)
    last = ((words << 1) & _SIGN) | ((words >> 3) & 0x01800180) | ((words >> 7) & 0x00400040)
    pair3 = _times(last, scale)
    pairs = tl.join(tl.join(pair0, pair2), tl.join(pair1, pair3))
    return tl.join(_half(pairs), _half(pairs >> 16))

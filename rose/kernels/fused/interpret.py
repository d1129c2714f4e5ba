"""What Triton's interpreter needs done in another way, in one place.

The interpreter (Triton 3.6) drops the low bits where it should round to bfloat16, and rounds
e4m3 wrongly where the mantissa carries. Kernels that round through these functions give the same
bytes in the interpreter as on a GPU, where each of them is one conversion instruction.
"""

import triton
import triton.language as tl

INTERPRETED: bool = triton.knobs.runtime.interpret
"""Whether kernels run in the interpreter; Triton decides when it first sees a kernel."""

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def round_to(x: tl.tensor, dtype: tl.constexpr) -> tl.tensor:
    """Round float32 to `dtype` (bfloat16 or float32), to nearest, ties to even."""
    if _INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        # The sum above may carry a NaN into the sign.
        rounded = tl.where(x == x, rounded, 0x7FC0)
        return rounded.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    return x.to(dtype)


@triton.jit
def round_to_e4m3(x: tl.tensor) -> tl.tensor:
    """Round float32 of magnitude at most 448, or NaN, to e4m3, to nearest, ties to even."""
    if _INTERPRETED:
        magnitude = tl.abs(x)
        bits = magnitude.to(tl.uint32, bitcast=True)
        # Three bits of the mantissa stay, and the exponent's bias goes from 127 to 7.
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
        # float32 counts in steps of 2^-9 above 2^14, as e4m3 does below 2^-6.
        shifted = (magnitude + 16384.0).to(tl.uint32, bitcast=True)
        code = tl.where(magnitude < 0.015625, shifted - 0x46800000, normal)
        code = tl.where(x == x, code, 0x7F)
        sign = (x.to(tl.uint32, bitcast=True) >> 31) << 7
        return (code | sign).to(tl.uint8).to(tl.float8e4nv, bitcast=True)
    return x.to(tl.float8e4nv)

"""Activations to FP8 e4m3 with one scale for each run of 128 along a row.

Bound by memory: 2 bytes read and 1 + 4/128 written a value. Predicted for rows of 2880: 8192 rows
move 71 MB, 17 us at 4.2 TB/s, so about 22 us; one row is a launch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent
from rose.kernels.fused.interpret import INTERPRETED, round_to_e4m3
from rose.kernels.quantize import ACTIVATION_AMAX_FLOOR, E4M3_MAX, FP8_BLOCK, ceil_div

RUN = tl.constexpr(FP8_BLOCK)
"""Values that share a scale."""

_INTERPRETED = tl.constexpr(INTERPRETED)
_FLOOR = tl.constexpr(ACTIVATION_AMAX_FLOOR)
_MAX = tl.constexpr(E4M3_MAX)


@triton.jit
def _divide(x: tl.tensor, divisor: tl.tensor) -> tl.tensor:
    """The IEEE quotient of x [runs, 128] and divisor [runs, 1], both a bfloat16 number's size.

    The GPU's own takes some twenty instructions a value. One step of Newton's method from the
    product with the reciprocal takes three and gives the same bits: a test tries all pairs of
    mantissas. The signs are such that a negative zero stays one.
    """
    if _INTERPRETED:
        return x / divisor  # its fma rounds twice
    reciprocal = tl.div_rn(1.0, divisor)
    quotient = x * reciprocal
    # Triton computes -x as 0 - x, which is not -0 for x = 0.
    excess = tl.fma(quotient, divisor, x * -1.0)
    return tl.fma(excess, reciprocal * -1.0, quotient)


@triton.jit
def quantize_runs(x: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Quantise x [runs, 128] as `quantize_fp8_activations` does.

    Args:
        x: float32 that holds bfloat16 values: for these the result is the same, bit for bit.

    Returns:
        e4m3 [runs, 128] and float32 scales [runs].
    """
    # `/` is off by up to two units in the last place on a GPU, enough to round to another code.
    scale = tl.div_rn(tl.maximum(tl.max(tl.abs(x), axis=1), _FLOOR), _MAX)
    return round_to_e4m3(_divide(x, scale[:, None])), scale


@triton.jit
def _quantize_rows_kernel(
    x: tl.tensor, values: tl.tensor, scales: tl.tensor, width: tl.constexpr, runs: tl.constexpr
) -> None:
    """One row a program; `runs` is a power of two that covers `width`."""
    dependent.start()
    row = tl.program_id(0).to(tl.int64)
    run = tl.arange(0, runs)
    column = run[:, None] * RUN + tl.arange(0, RUN)[None, :]
    x_row = tl.load(x + row * width + column, mask=column < width, other=0.0)
    codes, scale = quantize_runs(x_row.to(tl.float32))
    tl.store(values + row * width + column, codes, mask=column < width)
    count: tl.constexpr = tl.cdiv(width, RUN)
    tl.store(scales + row * count + run, scale, mask=run < count)


def padded_runs(width: int) -> int:
    """The power of two of runs that covers a row: a tile's first dimension."""
    return 1 << (ceil_div(width, FP8_BLOCK) - 1).bit_length()


def warps_for(runs: int) -> int:
    """Two 16-byte loads a thread for rows of 2880 in bfloat16; from 1 to 16 warps."""
    return min(max(runs // 4, 1), 16)


def empty_fp8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Room for x [rows, width] in FP8: e4m3 [rows, width] and scales [rows, ceil(width / 128)]."""
    rows, width = x.shape
    values = torch.empty((rows, width), dtype=torch.float8_e4m3fn, device=x.device)
    count = ceil_div(width, FP8_BLOCK)
    scales = torch.empty((rows, count), dtype=torch.float32, device=x.device)
    return values, scales


def quantize_fp8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """See `activation_quant.quantize_fp8_rows`; x in bfloat16."""
    width = x.shape[1]
    values, scales = empty_fp8_rows(x)
    runs = padded_runs(width)
    _quantize_rows_kernel[(x.shape[0],)](
        x.contiguous(), values, scales, width, runs, num_warps=warps_for(runs), **dependent.LAUNCH
    )
    return values, scales

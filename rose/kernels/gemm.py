"""Dense products: x W^T + bias, in the three storage formats.

In each, the bias enters the float32 accumulators and the result is rounded to x's dtype once.
"""

import torch.nn.functional as F
from torch import Tensor

from rose.kernels import reference
from rose.kernels.dispatch import use_triton
from rose.kernels.quantize import dequantize_mxfp4


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply x [rows, in] by weight [out, in], both of one dtype; few rows have a kernel."""
    if use_triton("linear_bf16", x):
        from rose.kernels.fused import linear_bf16 as fused

        if fused.serves(x, weight):
            return fused.linear(x, weight, bias)
    return F.linear(x, weight, bias)


def linear_fp8(x: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """A weight in FP8 128 x 128 blocks; x is quantised on the fly, in runs of 128.

    Args:
        x: [rows, in].
        values: float8_e4m3fn [out, in].
        scales: float32 [ceil(out / 128), ceil(in / 128)].
        bias: [out].

    Returns:
        x's dtype [rows, out].
    """
    # TMA reads rows that are a multiple of 16 bytes.
    if x.shape[1] % 16 == 0 and use_triton("linear_fp8", x):
        from rose.kernels.fused import linear_fp8 as fused

        return fused.linear_fp8(x, values, scales, bias)
    return reference.linear_fp8(x, values, scales, bias)


def linear_mxfp4(x: Tensor, blocks: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """A weight in MXFP4, x as it is; never fused: only experts are published in this format.

    Args:
        x: [rows, in].
        blocks: uint8 [out, in / 32, 16].
        scales: uint8 [out, in / 32].
        bias: [out].

    Returns:
        x's dtype [rows, out].
    """
    return F.linear(x, dequantize_mxfp4(blocks, scales, x.dtype), bias)

"""Activations to FP8, on the way into a product."""

from torch import Tensor

from rose.kernels.dispatch import use_triton
from rose.kernels.quantize import quantize_fp8_activations


def quantize_fp8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise each run of 128 along a row with scale amax / 448.

    Every implementation gives the bytes of `quantize.quantize_fp8_activations`.

    Args:
        x: [rows, columns].

    Returns:
        float8_e4m3fn [rows, columns] and float32 [rows, ceil(columns / 128)], multipliers.
    """
    if use_triton("quantize", x):
        from rose.kernels.fused import quantize as fused

        return fused.quantize_fp8_rows(x)
    return quantize_fp8_activations(x)

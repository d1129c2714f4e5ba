"""Root-mean-square normalisation, and what is fused with it."""

from torch import Tensor

from rose.kernels import reference
from rose.kernels.dispatch import use_triton
from rose.kernels.quantize import quantize_fp8_activations


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Normalise each row x [rows, width] and scale it by weight [width]; x's dtype."""
    if use_triton("norm", x):
        from rose.kernels.fused import norm as fused

        return fused.rms_norm(x, weight, epsilon)
    return reference.rms_norm(x, weight, epsilon)


def add_rms_norm(
    residual: Tensor, x: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Add to the residual stream and normalise the sum.

    Args:
        residual: [rows, width].
        x: likewise, in the same dtype.
        weight: [width].
        epsilon: added to the mean of squares.

    Returns:
        residual + x, rounded to x's dtype, and `rms_norm` of that rounded sum.
    """
    if use_triton("norm", x):
        from rose.kernels.fused import norm as fused

        return fused.add_rms_norm(residual, x, weight, epsilon)
    return reference.add_rms_norm(residual, x, weight, epsilon)


def add_rms_norm_quantize(
    residual: Tensor, x: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`add_rms_norm`, and what it normalised in FP8 as well.

    Returns:
        The sum and the normalised rows as `add_rms_norm` gives them; then the latter through
        `activation_quant.quantize_fp8_rows`: float8_e4m3fn [rows, width] and float32 scales
        [rows, ceil(width / 128)].
    """
    if use_triton("norm", x):
        from rose.kernels.fused import norm as fused

        return fused.add_rms_norm_quantize(residual, x, weight, epsilon)
    total, normed = reference.add_rms_norm(residual, x, weight, epsilon)
    return total, normed, *quantize_fp8_activations(normed)

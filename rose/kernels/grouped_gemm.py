"""Products of each expert with its own rows, in the three storage formats.

They define what `experts` computes, whose fused kernels do more in one go. In each, the bias enters
the float32 accumulators and the result is rounded to x's dtype once.
"""

from torch import Tensor

from rose.kernels import reference


def grouped_linear(x: Tensor, weight: Tensor, bias: Tensor, tokens_per_expert: Tensor) -> Tensor:
    """Experts stored in x's dtype.

    Args:
        x: [rows, in], sorted by expert.
        weight: x's dtype [experts, parts, out, in].
        bias: [experts, parts * out].
        tokens_per_expert: int32 [experts], adding up to rows.

    Returns:
        x's dtype [rows, parts * out].
    """
    return reference.grouped_linear(x, weight, bias, tokens_per_expert)


def grouped_linear_fp8(
    x: Tensor, values: Tensor, scales: Tensor, bias: Tensor, tokens_per_expert: Tensor
) -> Tensor:
    """Experts in FP8 128 x 128 blocks; x is quantised on the fly, in runs of 128.

    Args:
        x: [rows, in], sorted by expert.
        values: float8_e4m3fn [experts, parts, out, in].
        scales: float32 [experts, parts, ceil(out / 128), ceil(in / 128)].
        bias: [experts, parts * out].
        tokens_per_expert: int32 [experts], adding up to rows.

    Returns:
        x's dtype [rows, parts * out].
    """
    return reference.grouped_linear_fp8(x, values, scales, bias, tokens_per_expert)


def grouped_linear_mxfp4(
    x: Tensor, blocks: Tensor, scales: Tensor, bias: Tensor, tokens_per_expert: Tensor
) -> Tensor:
    """Experts in MXFP4, activations as they are.

    Args:
        x: [rows, in], sorted by expert.
        blocks: uint8 [experts, parts, out, in / 32, 16].
        scales: uint8 [experts, parts, out, in / 32].
        bias: [experts, parts * out].
        tokens_per_expert: int32 [experts], adding up to rows.

    Returns:
        x's dtype [rows, parts * out].
    """
    return reference.grouped_linear_mxfp4(x, blocks, scales, bias, tokens_per_expert)

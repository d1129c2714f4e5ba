"""The experts of one layer: each row through gate and up, the activation, and down.

One function a storage format. Rows come out in the routing's order, for `routing.combine`.
"""

from collections.abc import Callable

from torch import Tensor

from rose.kernels.dispatch import Implementation, Shape, choose, use_triton
from rose.kernels.grouped_gemm import grouped_linear, grouped_linear_fp8, grouped_linear_mxfp4
from rose.kernels.matrices import Fp8Matrices, Mxfp4Matrices
from rose.kernels.quantize import MXFP4_GROUP
from rose.kernels.routing import Routing
from rose.kernels.swiglu import swiglu

OP = "experts"
"""The op's name in the table of implementations."""

TMA_BYTES = 16
"""FP8 weights whose rows are no multiple of it cannot be read by TMA; the reference serves them."""


def experts_bf16(
    x: Tensor,
    routing: Routing,
    gate_up: Tensor,
    down: Tensor,
    gate_up_bias: Tensor,
    down_bias: Tensor,
    limit: float,
) -> Tensor:
    """Experts stored in x's dtype.

    Args:
        x: [tokens, hidden].
        routing: which expert computes which token, k experts a token.
        gate_up: x's dtype [experts, 2, intermediate, hidden]; gate, then up.
        down: x's dtype [experts, 1, hidden, intermediate].
        gate_up_bias: x's dtype [experts, 2 * intermediate].
        down_bias: x's dtype [experts, hidden].
        limit: of the activation, see `swiglu.swiglu`.

    Returns:
        x's dtype [tokens * k, hidden], before the weighted sum.
    """
    if use_triton(OP, x):
        from rose.kernels.fused import experts_bf16 as fused

        hidden = fused.gate_up(x, routing, gate_up, gate_up_bias, limit)
        return fused.down(hidden, routing, down, down_bias)
    counts = routing.tokens_per_expert
    return _in_steps(
        x,
        routing,
        lambda rows: grouped_linear(rows, gate_up, gate_up_bias, counts),
        lambda rows: grouped_linear(rows, down, down_bias, counts),
        limit,
    )


def experts_fp8(
    x: Tensor,
    routing: Routing,
    gate_up: Fp8Matrices,
    down: Fp8Matrices,
    gate_up_bias: Tensor,
    down_bias: Tensor,
    limit: float,
) -> Tensor:
    """Experts in FP8; x and the activation's result are quantised on the fly, in runs of 128.

    Args:
        x: [tokens, hidden].
        routing: which expert computes which token, k experts a token.
        gate_up: [experts, 2] matrices [intermediate, hidden]; gate, then up.
        down: [experts, 1] matrices [hidden, intermediate].
        gate_up_bias: x's dtype [experts, 2 * intermediate].
        down_bias: x's dtype [experts, hidden].
        limit: of the activation, see `swiglu.swiglu`.

    Returns:
        x's dtype [tokens * k, hidden], before the weighted sum.
    """
    widths = (x.shape[1], down.values.shape[-1])
    if use_triton(OP, x) and all(width % TMA_BYTES == 0 for width in widths):
        from rose.kernels.fused import experts_fp8 as fused
        from rose.kernels.fused.quantize import quantize_fp8_rows

        hidden = fused.gate_up(*quantize_fp8_rows(x), routing, gate_up, gate_up_bias, limit)
        return fused.down(*hidden, routing, down, down_bias)
    counts = routing.tokens_per_expert
    return _in_steps(
        x,
        routing,
        lambda rows: grouped_linear_fp8(rows, gate_up.values, gate_up.scales, gate_up_bias, counts),
        lambda rows: grouped_linear_fp8(rows, down.values, down.scales, down_bias, counts),
        limit,
    )


def experts_mxfp4(
    x: Tensor,
    routing: Routing,
    gate_up: Mxfp4Matrices,
    down: Mxfp4Matrices,
    gate_up_bias: Tensor,
    down_bias: Tensor,
    limit: float,
) -> Tensor:
    """Experts in MXFP4, activations as they are.

    Args:
        x: [tokens, hidden].
        routing: which expert computes which token, k experts a token.
        gate_up: [experts, 2] matrices [intermediate, hidden]; gate, then up. Fused kernels want
            them tiled, the reference as published; the other form is converted on every call.
        down: [experts, 1] matrices [hidden, intermediate].
        gate_up_bias: x's dtype [experts, 2 * intermediate].
        down_bias: x's dtype [experts, hidden].
        limit: of the activation, see `swiglu.swiglu`.

    Returns:
        x's dtype [tokens * k, hidden], before the weighted sum.
    """
    rows, experts = routing.token_of_row.shape[0], gate_up.blocks.shape[0]
    widths = (x.shape[1], down.blocks.shape[-2] * MXFP4_GROUP)
    chosen = choose(OP, x, Shape(rows=rows, experts=experts, widths=widths))
    if chosen is Implementation.CUDA:
        from rose.kernels.cuda import experts_mxfp4 as cuda

        hidden = cuda.gate_up(x, routing, gate_up.as_tiled(), gate_up_bias, limit)
        return cuda.down(hidden, routing, down.as_tiled(), down_bias)
    if chosen is Implementation.TRITON:
        from rose.kernels.fused import experts_mxfp4 as fused

        hidden = fused.gate_up(x, routing, gate_up.as_tiled(), gate_up_bias, limit)
        return fused.down(hidden, routing, down.as_tiled(), down_bias)
    counts = routing.tokens_per_expert
    gate_up, down = gate_up.as_published(), down.as_published()
    return _in_steps(
        x,
        routing,
        lambda rows: grouped_linear_mxfp4(
            rows, gate_up.blocks, gate_up.scales, gate_up_bias, counts
        ),
        lambda rows: grouped_linear_mxfp4(rows, down.blocks, down.scales, down_bias, counts),
        limit,
    )


def _in_steps(
    x: Tensor,
    routing: Routing,
    gate_up: Callable[[Tensor], Tensor],
    down: Callable[[Tensor], Tensor],
    limit: float,
) -> Tensor:
    """The definition: gather, multiply, activate, multiply."""
    rows = x.index_select(0, routing.token_of_row)
    return down(swiglu(gate_up(rows), limit))

"""The experts' activation."""

from torch import Tensor

from rose.kernels import reference
from rose.kernels.dispatch import use_triton


def swiglu(gate_up: Tensor, limit: float) -> Tensor:
    """gpt-oss's clamped SwiGLU.

    Args:
        gate_up: [rows, 2 * width], gate then up.
        limit: clamps the gate from above and the linear part on both sides.

    Returns:
        gate_up's dtype [rows, width].
    """
    if use_triton("swiglu", gate_up):
        from rose.kernels.fused import swiglu as fused

        return fused.swiglu(gate_up, limit)
    return reference.swiglu(gate_up, limit)

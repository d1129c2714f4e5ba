"""The experts' activation."""

from torch import Tensor

from rose.kernels import reference


def swiglu(gate_up: Tensor, limit: float) -> Tensor:
    """gpt-oss's clamped SwiGLU.

    Args:
        gate_up: [rows, 2 * width], gate then up.
        limit: clamps the gate from above and the linear part on both sides.

    Returns:
        gate_up's dtype [rows, width].
    """
    return reference.swiglu(gate_up, limit)

"""Root-mean-square normalisation."""

from torch import Tensor

from rose.kernels import reference


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Normalise each row x [rows, width] and scale it by weight [width]; x's dtype."""
    return reference.rms_norm(x, weight, epsilon)

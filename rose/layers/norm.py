"""Normalisation layer."""

import torch
from torch import Tensor, nn

from rose.kernels.norm import add_rms_norm, rms_norm


class RMSNorm(nn.Module):
    """Root-mean-square normalisation with a weight a channel.

    Attributes:
        weight: dtype [width].
    """

    def __init__(
        self, width: int, epsilon: float, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.epsilon = epsilon
        storage = torch.empty(width, dtype=dtype, device=device)
        self.weight = nn.Parameter(storage, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each row of x [rows, width]."""
        return rms_norm(x, self.weight, self.epsilon)

    def add(self, residual: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Add x to the residual stream, both [rows, width]; the sum, and the sum normalised."""
        return add_rms_norm(residual, x, self.weight, self.epsilon)

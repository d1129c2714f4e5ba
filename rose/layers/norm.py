"""Normalisation layer."""

import torch
from torch import Tensor, nn

from rose.kernels.norm import rms_norm


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

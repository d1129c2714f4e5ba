"""Rotary position embedding with YaRN: the angles, computed once a step for all layers."""

import torch
from torch import Tensor, nn

from rose.kernels.rotary import rope_cos_sin, yarn_concentration, yarn_inverse_frequencies


class Rotary(nn.Module):
    """Cosines and sines of each token's rotation.

    Attributes:
        inverse_frequencies: float32 [head_dim / 2]; a function of the arguments, so it is not
            part of the state that a checkpoint fills.
    """

    inverse_frequencies: Tensor

    def __init__(
        self,
        head_dim: int,
        *,
        theta: float,
        factor: float,
        beta_fast: float,
        beta_slow: float,
        original_max_position: int,
        truncate: bool,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.concentration = yarn_concentration(factor)
        frequencies = yarn_inverse_frequencies(
            head_dim,
            theta=theta,
            factor=factor,
            beta_fast=beta_fast,
            beta_slow=beta_slow,
            original_max_position=original_max_position,
            truncate=truncate,
        )
        self.register_buffer("inverse_frequencies", frequencies.to(device), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Map int64 [tokens] to float32 cos and sin [tokens, head_dim / 2]."""
        return rope_cos_sin(positions, self.inverse_frequencies, self.concentration)

"""Dense layers."""

import torch
from torch import Tensor, nn

from rose.quant.scheme import QuantScheme


class Linear(nn.Module):
    """x W^T + bias with a weight stored by a quantization scheme.

    Attributes:
        weight: QuantWeight of batch (), [out_features, in_features].
        bias: dtype [out_features], or None.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool,
        scheme: QuantScheme,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.weight = scheme.create_weights(
            (), out_features, in_features, dtype=dtype, device=device
        )
        self.bias: nn.Parameter | None = None
        if bias:
            storage = torch.empty(out_features, dtype=dtype, device=device)
            self.bias = nn.Parameter(storage, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [rows, in_features] to [rows, out_features] in x's dtype."""
        return self.weight.linear(x, self.bias)


class Head(nn.Module):
    """From hidden states to logits over the vocabulary.

    Attributes:
        weight: QuantWeight of batch (), [vocab_size, hidden_size].
    """

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        scheme: QuantScheme,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.weight = scheme.create_weights((), vocab_size, hidden_size, dtype=dtype, device=device)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden [rows, hidden_size] to float32 logits [rows, vocab_size]."""
        return self.weight.linear(hidden, None).float()

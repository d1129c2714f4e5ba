"""Token embedding."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Embedding(nn.Module):
    """A row for each token id.

    Attributes:
        weight: dtype [vocab_size, hidden_size].
    """

    def __init__(
        self, vocab_size: int, hidden_size: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        storage = torch.empty(vocab_size, hidden_size, dtype=dtype, device=device)
        self.weight = nn.Parameter(storage, requires_grad=False)

    def forward(self, token_ids: Tensor) -> Tensor:
        """Map int64 [tokens] to [tokens, hidden_size]."""
        return F.embedding(token_ids, self.weight)

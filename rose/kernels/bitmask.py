"""Packed token masks applied to logits."""

import torch
from torch import Tensor

BITS = 32
"""Tokens a word of a packed mask."""


def words_for(vocab_size: int) -> int:
    """Words of a packed mask over a vocabulary."""
    return -(-vocab_size // BITS)


def keep_allowed(logits: Tensor, packed: Tensor) -> Tensor:
    """Logits with -inf at each token whose bit is not set.

    Args:
        logits: float32 [rows, vocabulary], left as they are.
        packed: int32 [rows, words]; token t is bit t % 32, the lowest first, of word t // 32.

    Returns:
        float32 [rows, vocabulary].
    """
    shifts = torch.arange(BITS, dtype=torch.int32, device=packed.device)
    bits = (packed.unsqueeze(-1) >> shifts).bitwise_and_(1)
    allowed = bits.flatten(1)[:, : logits.shape[1]]
    return logits.masked_fill(allowed == 0, -torch.inf)

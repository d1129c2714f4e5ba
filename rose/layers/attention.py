"""Grouped-query attention with sinks."""

import torch
from torch import Tensor, nn

from rose.kernels.attention import paged_attention
from rose.kernels.paged_kv import AttentionBatch, LayerKV
from rose.layers.linear import Linear
from rose.quant.scheme import QuantScheme


class Attention(nn.Module):
    """Projections around paged attention.

    Attributes:
        group: the KV group whose blocks hold this layer's cache; it carries the window, too.
        qkv: rows are the query heads, then key heads, then value heads.
        sinks: dtype [num_heads]; published in bfloat16, which FlashAttention-3 takes as it is.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        group: int,
        bias: bool,
        scheme: QuantScheme,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.group = group
        self.scale = head_dim**-0.5
        width = num_heads * head_dim
        rows = width + 2 * num_kv_heads * head_dim
        self.qkv = Linear(hidden_size, rows, bias=bias, scheme=scheme, dtype=dtype, device=device)
        self.output = Linear(
            width, hidden_size, bias=bias, scheme=scheme, dtype=dtype, device=device
        )
        storage = torch.empty(num_heads, dtype=dtype, device=device)
        self.sinks = nn.Parameter(storage, requires_grad=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, batch: AttentionBatch, kv: LayerKV
    ) -> Tensor:
        """Attend to what the cache holds and to the tokens at hand, which join the cache.

        Args:
            x: [tokens, hidden_size].
            cos: float32 [tokens, head_dim / 2], of each token's position.
            sin: likewise.
            batch: whose tokens these are.
            kv: this layer's cache.

        Returns:
            [tokens, hidden_size].
        """
        slots = batch.groups[self.group].slot_mapping
        weight, bias = self.qkv.weight, self.qkv.bias
        query = weight.linear_qkv(x, bias, cos, sin, slots, kv, self.num_heads)
        attended = paged_attention(query, kv, batch, self.group, self.sinks, self.scale)
        out: Tensor = self.output(attended.flatten(1))
        return out

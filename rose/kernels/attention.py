"""Attention with sinks over a paged KV cache: which implementation serves a batch."""

import torch

from rose.kernels import reference_attention
from rose.kernels.paged_kv import AttentionBatch, LayerKV


def paged_attention(
    query: torch.Tensor,
    kv: LayerKV,
    batch: AttentionBatch,
    group: int,
    sinks: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Causal attention of each query to the keys of its sequence, this step's included.

    Args:
        query: [tokens, heads, head_dim], rotated.
        kv: the layer's cache, this step's keys and values written already.
        batch: which rows belong to which sequence.
        group: index into `batch.groups`.
        sinks: float32 [heads]; an extra logit in the softmax's denominator, not scaled.
        scale: of the scores.

    Returns:
        query's dtype [tokens, heads, head_dim].
    """
    return reference_attention.paged_attention(query, kv, batch, group, sinks, scale)

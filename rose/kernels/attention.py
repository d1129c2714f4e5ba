"""Attention with sinks over a paged KV cache: which implementation serves a batch."""

import torch

from rose.kernels import reference_attention
from rose.kernels.dispatch import Implementation, Shape, choose
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
        batch: which rows belong to which sequence; without a plan the Triton kernels leave it to
            the reference.
        group: index into `batch.groups`.
        sinks: float32 or bfloat16 [heads]; an extra logit in the softmax's denominator, not scaled.
        scale: of the scores; positive.

    Returns:
        query's dtype [tokens, heads, head_dim].
    """
    _, block_size, _, head_dim = kv.key.shape
    chosen = choose("attention", query, Shape(head_dim=head_dim, block_size=block_size))
    if chosen is Implementation.FA3:
        from rose.kernels import fa3

        return fa3.paged_attention(query, kv, batch, group, sinks, scale)
    if chosen is Implementation.TRITON and batch.plan is not None:
        from rose.kernels.fused.attention import paged_attention as fused

        return fused(query, kv, batch, group, sinks, scale)
    return reference_attention.paged_attention(query, kv, batch, group, sinks, scale)

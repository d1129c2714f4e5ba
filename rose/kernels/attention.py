"""Attention with sinks over a paged KV cache: which implementation serves a batch."""

import torch

from rose.kernels import reference_attention
from rose.kernels.dispatch import Implementation, Shape, choose
from rose.kernels.paged_kv import AttentionBatch, LaunchPlan, LayerKV

DECODE_APART = True
"""Whether decode rows beside chunks that FA3 serves are served as without them, by our kernel."""


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
    plan = batch.plan
    rows = _chosen(query, kv, batch, group, chunks=False)
    # Where a batch has chunks, who serves them serves all, but for what is parted below.
    chosen = rows
    if plan is None or len(plan.tiles):
        chosen = _chosen(query, kv, batch, group, chunks=True)
    if chosen is Implementation.FA3:
        from rose.kernels import fa3

        if plan is None or rows is chosen or not (DECODE_APART and len(plan.decode_sequences)):
            return fa3.paged_attention(query, kv, batch, group, sinks, scale)
        from rose.kernels.fused import attention_decode

        sequences = _sequences_with_chunks(batch.query_lens, plan)
        out = fa3.paged_attention(query, kv, batch, group, sinks, scale, sequences)
        attention_decode.attend(query, kv, batch, group, sinks, scale, out)
        return out
    if chosen is Implementation.TRITON and plan is not None:
        from rose.kernels.fused.attention import paged_attention as fused

        return fused(query, kv, batch, group, sinks, scale)
    return reference_attention.paged_attention(query, kv, batch, group, sinks, scale)


def _chosen(
    query: torch.Tensor, kv: LayerKV, batch: AttentionBatch, group: int, *, chunks: bool
) -> Implementation:
    """Who serves the rows of prompt chunks, or decode rows."""
    _, block_size, _, head_dim = kv.key.shape
    windowed = batch.groups[group].window is not None
    shape = Shape(head_dim=head_dim, block_size=block_size, windowed=windowed, chunks=chunks)
    return choose("attention", query, shape)


def _sequences_with_chunks(query_lens: list[int], plan: LaunchPlan) -> range:
    """The fewest consecutive sequences that are all those with chunks; there is one."""
    chunks = [at for at, length in enumerate(query_lens) if length != plan.width]
    return range(chunks[0], chunks[-1] + 1)

"""Attention with sinks in Triton: decode rows by one kernel, tiles of prompt chunks by another."""

import torch

from rose.kernels.dispatch import Shape
from rose.kernels.fused import attention_chunk, attention_decode
from rose.kernels.paged_kv import AttentionBatch, LayerKV


def paged_attention(
    query: torch.Tensor,
    kv: LayerKV,
    batch: AttentionBatch,
    group: int,
    sinks: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """See `attention.paged_attention`; within ATTENTION_TOLERANCE of the reference.

    Args:
        query: bfloat16 [tokens, heads, head_dim], contiguous.
        kv: bfloat16, contiguous.
        batch: its plan says which kernel serves which rows; together they serve all.
        group: index into `batch.groups`.
        sinks: [heads].
        scale: of the scores; positive.

    Returns:
        bfloat16 [tokens, heads, head_dim].

    Raises:
        ValueError: for tensors or a plan that the kernels cannot take.
    """
    _, block_size, _, head_dim = kv.key.shape
    if batch.plan is None:
        raise ValueError("fused attention needs a launch plan, but AttentionBatch.plan is None")
    if Shape(head_dim=head_dim, block_size=block_size).ragged:
        raise ValueError(
            f"head_dim={head_dim} and block_size={block_size}: fused attention takes powers of two "
            "of at least 16"
        )
    if not (query.is_contiguous() and kv.key.is_contiguous() and kv.value.is_contiguous()):
        raise ValueError("fused attention takes contiguous queries, keys and values")
    out = torch.empty_like(query)
    attention_chunk.attend(query, kv, batch, group, sinks, scale, out)
    attention_decode.attend(query, kv, batch, group, sinks, scale, out)
    return out

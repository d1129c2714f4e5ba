"""Rotary position embedding, and writing new keys and values to the paged cache."""

from torch import Tensor

from rose.kernels import reference
from rose.kernels.dispatch import use_triton
from rose.kernels.paged_kv import LayerKV


def rope_write_kv(
    qkv: Tensor, cos: Tensor, sin: Tensor, slot_mapping: Tensor, kv: LayerKV, num_heads: int
) -> Tensor:
    """Rotate queries and keys; write keys and values to the cache.

    Args:
        qkv: [tokens, (num_heads + 2 * kv_heads) * head_dim], queries, then keys, then values.
        cos: float32 [tokens, head_dim / 2].
        sin: likewise.
        slot_mapping: int64 [tokens]; block * block_size + offset, valid for every token.
        kv: the cache, written in place; its blocks lie one after the other in memory.
        num_heads: query heads.

    Returns:
        The rotated queries, qkv's dtype [tokens, num_heads, head_dim].
    """
    if use_triton("rope", qkv):
        from rose.kernels.fused import rope_kv as fused

        return fused.rope_write_kv(qkv, cos, sin, slot_mapping, kv, num_heads)
    return reference.rope_write_kv(qkv, cos, sin, slot_mapping, kv.key, kv.value, num_heads)

"""The projection to queries, keys and values, with all that happens to them before attention."""

from torch import Tensor

from rose.kernels.dispatch import use_triton
from rose.kernels.gemm import linear
from rose.kernels.paged_kv import LayerKV
from rose.kernels.rope_kv import rope_write_kv


def linear_qkv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    slot_mapping: Tensor,
    kv: LayerKV,
    num_heads: int,
) -> Tensor:
    """Project, rotate queries and keys, write keys and values to the cache; few rows have a kernel.

    Args:
        x: [tokens, in].
        weight: [(num_heads + 2 * kv_heads) * head_dim, in], x's dtype.
        bias: likewise, without in.
        cos: see `rope_kv.rope_write_kv`, as for the rest.
        sin: likewise.
        slot_mapping: int64 [tokens].
        kv: the cache, written in place.
        num_heads: query heads.

    Returns:
        The rotated queries, x's dtype [tokens, num_heads, head_dim].
    """
    if use_triton("linear_bf16", x):
        from rose.kernels.fused import qkv_bf16 as fused

        if fused.serves(x, weight, kv):
            return fused.linear_qkv(x, weight, bias, cos, sin, slot_mapping, kv, num_heads)
    return rope_write_kv(linear(x, weight, bias), cos, sin, slot_mapping, kv, num_heads)

"""Rotary embedding of queries and keys, and the write of keys and values to the paged cache.

Bound by memory: each value of qkv is read once and written once, to the queries or to the cache.
Predicted for 64 / 8 heads of 64: 8192 tokens move 170 MB, 40 us at 4.2 TB/s, so about 50 us; one
token is a launch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent
from rose.kernels.fused.interpret import round_to
from rose.kernels.paged_kv import LayerKV


@triton.jit
def _rotate_heads(
    source: tl.tensor,
    target: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    heads: tl.constexpr,
    padded_heads: tl.constexpr,
    half: tl.constexpr,
    padded_half: tl.constexpr,
) -> None:
    """Rotate heads that lie one after the other, [heads, 2 * half], from source to target."""
    head = tl.arange(0, padded_heads)[:, None]
    pair = tl.arange(0, padded_half)[None, :]
    inside = (head < heads) & (pair < half)
    at = head * (2 * half) + pair
    first = tl.load(source + at, mask=inside).to(tl.float32)
    second = tl.load(source + at + half, mask=inside).to(tl.float32)
    dtype: tl.constexpr = target.dtype.element_ty
    tl.store(target + at, round_to(first * cos - second * sin, dtype), mask=inside)
    tl.store(target + at + half, round_to(second * cos + first * sin, dtype), mask=inside)


# The mapping is a slice of one upload, aligned by chance: not worth a compilation each.
@triton.jit(do_not_specialize_on_alignment=["slot_mapping"])
def _rope_write_kv_kernel(
    qkv: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    slot_mapping: tl.tensor,
    query: tl.tensor,
    key: tl.tensor,
    value: tl.tensor,
    heads: tl.constexpr,
    padded_heads: tl.constexpr,
    kv_heads: tl.constexpr,
    padded_kv_heads: tl.constexpr,
    half: tl.constexpr,
    padded_half: tl.constexpr,
) -> None:
    """One token a program; padded numbers are powers of two."""
    query_width: tl.constexpr = heads * 2 * half
    kv_width: tl.constexpr = kv_heads * 2 * half
    dependent.start()
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)
    source = qkv + token * (query_width + 2 * kv_width)

    pair = tl.arange(0, padded_half)[None, :]
    cosine = tl.load(cos + token * half + pair, mask=pair < half)
    sine = tl.load(sin + token * half + pair, mask=pair < half)
    q_out = query + token * query_width
    _rotate_heads(source, q_out, cosine, sine, heads, padded_heads, half, padded_half)
    k_out = key + slot * kv_width
    k_in = source + query_width
    _rotate_heads(k_in, k_out, cosine, sine, kv_heads, padded_kv_heads, half, padded_half)

    column = tl.arange(0, padded_kv_heads * 2 * padded_half)
    copied = tl.load(source + query_width + kv_width + column, mask=column < kv_width)
    tl.store(value + slot * kv_width + column, copied, mask=column < kv_width)


def rope_write_kv(
    qkv: Tensor, cos: Tensor, sin: Tensor, slot_mapping: Tensor, kv: LayerKV, num_heads: int
) -> Tensor:
    """See `rope_kv.rope_write_kv`."""
    tokens = qkv.shape[0]
    kv_heads, head_dim = kv.key.shape[-2:]
    query = torch.empty((tokens, num_heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    _rope_write_kv_kernel[(tokens,)](
        qkv.contiguous(),
        cos.contiguous(),
        sin.contiguous(),
        slot_mapping.contiguous(),
        query,
        # These must not be copies: view raises where blocks do not lie one after the other.
        kv.key.view(-1),
        kv.value.view(-1),
        num_heads,
        triton.next_power_of_2(num_heads),
        kv_heads,
        triton.next_power_of_2(kv_heads),
        head_dim // 2,
        triton.next_power_of_2(head_dim // 2),
        num_warps=4,
        # A fused multiply-add would skip a rounding that the reference makes.
        enable_fp_fusion=False,
        **dependent.LAUNCH,
    )
    return query

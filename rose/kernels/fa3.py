"""FlashAttention-3 with sinks, for Hopper: an adapter to the package tokenspeed-fa3.

One call serves any mix of prompt chunks and decode rows. It reads whole pages of 128 keys and
multiplies what lies behind a sequence's end by a weight of 0, so a cache must hold finite numbers
everywhere: zero it once when it is made.

Measured on an H200 (64 heads of 64, 8 KV heads): causal prefill at 8k and 128k 490 and 501
TFLOP/s, a quarter faster than our own kernel. That one is the faster for a window of 128 (2.0
against 2.5 ms at 128k), and by a third or more for decode rows (523 against 834 us at 128 of 8192
keys): `dispatch.TABLE` parts them so.
"""

import torch

from rose.kernels.paged_kv import AttentionBatch, LayerKV

_SPLITS_BY_SHAPE = 0
"""FA3 bounds the splits by the table's width and the heads, and chooses below that on the device:
no length is read on the host, so a CUDA graph serves all of them."""

_ONE_SPLIT = 1
"""A window is a few tiles: splitting it would only add the kernel that merges."""


def paged_attention(
    query: torch.Tensor,
    kv: LayerKV,
    batch: AttentionBatch,
    group: int,
    sinks: torch.Tensor,
    scale: float,
    sequences: range | None = None,
) -> torch.Tensor:
    """See `attention.paged_attention`; within ATTENTION_TOLERANCE of the reference.

    Args:
        query: bfloat16 [tokens, heads, 64].
        kv: bfloat16, blocks of a multiple of 128 slots, finite everywhere.
        batch: its plan is not used.
        group: index into `batch.groups`.
        sinks: [heads]; anything but bfloat16 is converted at each call.
        scale: of the scores.
        sequences: to serve, one or more; None: all.

    Returns:
        bfloat16 [tokens, heads, 64]; rows of other sequences are not written.
    """
    from flash_attn_interface import flash_attn_with_kvcache

    where = batch.groups[group]
    windowed = where.window is not None
    served = sequences or range(len(batch.query_lens))
    part = slice(served.start, served.stop)
    out: torch.Tensor = flash_attn_with_kvcache(
        query,
        kv.key,
        kv.value,
        cache_seqlens=batch.kv_len[part],
        page_table=where.block_tables[part],
        cu_seqlens_q=batch.query_start[served.start : served.stop + 1],
        max_seqlen_q=max(batch.query_lens[part]),
        softmax_scale=scale,
        causal=True,
        window_size=(where.window - 1, 0) if where.window is not None else (-1, -1),
        num_splits=_ONE_SPLIT if windowed else _SPLITS_BY_SHAPE,
        sinks=sinks.to(torch.bfloat16),
    )
    return out

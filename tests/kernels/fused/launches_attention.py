"""Launches of attention at gpt-oss's shapes: decode buckets, speculation, prefill and a mix."""

import torch

from rose.kernels.fused.attention import paged_attention
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LaunchPlan, LayerKV

HEADS, KV_HEADS, DIM, WINDOW = 64, 8, 64, 128
SINKS = torch.empty(HEADS)


def int32(*shape):
    return torch.empty(shape, dtype=torch.int32)


def launch(*, decode=0, width=1, prefill=0, context=8192, block_size=128):
    """One full and one sliding layer of a batch of decode rows and one prompt chunk."""
    sequences = decode + (prefill > 0)
    tokens = decode * width + prefill
    query = torch.empty(tokens, HEADS, DIM, dtype=torch.bfloat16)
    cache = torch.empty(64, block_size, KV_HEADS, DIM, dtype=torch.bfloat16)
    tables = int32(sequences, -(-context // block_size))
    slots = torch.empty(tokens, dtype=torch.int64)
    batch = AttentionBatch(
        query_start=int32(sequences + 1),
        kv_len=int32(sequences),
        query_lens=[width] * decode + [prefill] * (prefill > 0),
        kv_lens=[context] * sequences,
        groups=(KVGroupBatch(slots, tables, None), KVGroupBatch(slots, tables, WINDOW)),
        plan=LaunchPlan(int32(decode), width, int32(-(-prefill // 16), 2)),
    )
    for group in range(2):
        paged_attention(query, LayerKV(cache, cache), batch, group, SINKS, DIM**-0.5)


def launches():
    for decode in (1, 8, 32, 128, 256):
        launch(decode=decode, context=131072)
    launch(decode=256, context=1024)
    launch(decode=64, width=4)
    launch(prefill=8192)
    launch(prefill=100, context=32768)
    launch(decode=64, prefill=16384, context=32768)
    launch(decode=1, prefill=8192, block_size=16)

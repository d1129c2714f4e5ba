"""Attention with sinks at the shapes of gpt-oss: 64 heads of 64, 8 KV heads, pages of 128 keys.

The cases named "triton" and "fa3" are whole batches by one of them, those named "engine" are what
an engine calls; FA3's are there if it is installed, and "engine" where it takes both.
Those with keys=, warps=, stages=, parts=, split_keys= or least_columns= try other
launches of the Triton kernels: a faster one belongs into the constants of its module.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from bench.kernel_cases.case import Case
from rose.kernels import fa3
from rose.kernels.attention import paged_attention
from rose.kernels.fused import attention, attention_chunk, attention_decode
from rose.kernels.fused.paged_tile import TileConfig
from rose.kernels.launch_plan import split
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LaunchPlan, LayerKV

HEADS, KV_HEADS, DIM, PAGE, WINDOW = 64, 8, 64, 128, 128
SCALE = DIM**-0.5
KEY_BYTES = 2 * KV_HEADS * DIM * 2
ROW_BYTES = 2 * HEADS * DIM * 2  # a query and its output
PAIR_FLOPS = 4 * HEADS * DIM  # of a query and a key that it sees

Lens = list[tuple[int, int]]
Inputs = tuple[Tensor, LayerKV, AttentionBatch, int, Tensor, float]

CHUNK_CONFIGS = [
    TileConfig(64, 8, 2),
    TileConfig(64, 8, 4),
    TileConfig(64, 4, 2),
    TileConfig(64, 4, 3),
    TileConfig(128, 8, 2),
    TileConfig(128, 8, 3),
]
DECODE_CONFIGS = [
    TileConfig(64, 4, 2),
    TileConfig(64, 4, 4),
    TileConfig(64, 2, 3),
    TileConfig(32, 4, 4),
    TileConfig(32, 2, 3),
    TileConfig(32, 1, 3),
    TileConfig(128, 4, 2),
    TileConfig(128, 8, 3),
]
WINDOW_CONFIGS = [
    TileConfig(64, 4, 3),
    TileConfig(128, 4, 1),
    TileConfig(128, 8, 1),
    TileConfig(128, 8, 2),
    TileConfig(64, 4, 2),
    TileConfig(32, 4, 4),
]
PARTS = {1: (16, 32, 64), 8: (8, 10, 20, 30), 32: (2, 5, 8, 10), 128: (1, 2, 3, 5)}
"""Of each sequence, by rows; five programs fit an SM, so 660 are one round of an H200."""


def cases() -> Iterator[Case]:
    """Prefill, decode and a mix by each implementation; then other launches."""
    for tokens in (8192, 32768, 131072):
        yield from _implementations(f"prefill {tokens}", [(tokens, tokens)])
    yield from _implementations("prefill 8192 of 131072", [(8192, 131072)])
    yield from _implementations("turn 100 of 32768", [(100, 32768)])
    for rows in (1, 8, 32, 128):
        yield from _implementations(f"decode {rows}x8192", [(1, 8192)] * rows)
    yield from _implementations("decode 1x131072", [(1, 131072)])
    uneven = [(1, 131072)] + [(1, 1024)] * 63
    yield from _implementations("decode 1x131072+63x1024", uneven)
    yield from _implementations("decode 4 wide 32x8192", [(4, 8192)] * 32)
    yield from _implementations("mix 8192+64x8192", [(8192, 8192)] + [(1, 8192)] * 64)
    yield from _implementations("mix 512+128x8192", [(512, 512)] + [(1, 8192)] * 128)
    yield from _sweep()


def _implementations(name: str, lens: Lens) -> Iterator[Case]:
    served: dict[str, Callable[..., object]] = {"triton": attention.paged_attention}
    if find_spec("flash_attn_interface"):
        served["fa3"] = fa3.paged_attention
    for group, window in enumerate((None, WINDOW)):
        inputs = _inputs(lens, group)
        mixed = window is None and len({queries for queries, _ in lens}) > 1
        both = {"engine": paged_attention} if mixed and len(served) > 1 else {}
        for implementation, call in (served | both).items():
            named = f"attention {name} {_kind(window)} {implementation}"
            yield _case(named, lens, window, inputs, call)


def _sweep() -> Iterator[Case]:
    for tokens, group, window in ((32768, 0, None), (32768, 1, WINDOW)):
        lens = [(tokens, tokens)]
        inputs = _inputs(lens, group)
        for config in CHUNK_CONFIGS:
            name = f"attention chunk {tokens} {_kind(window)} {_text(config)}"
            call = partial(_into, attention_chunk.attend, config=config)
            yield _case(name, lens, window, inputs, call)
    for rows in PARTS:
        lens = [(1, 8192)] * rows
        inputs = _inputs(lens, 0)
        for config in DECODE_CONFIGS:
            name = f"attention decode {rows}x8192 {_text(config)}"
            call = partial(_into, attention_decode.attend, config=config)
            yield _case(name, lens, None, inputs, call)
        name = f"attention decode {rows}x8192 least_columns=16"
        call = partial(_into, attention_decode.attend, least_columns=16)
        yield _case(name, lens, None, inputs, call)
        for parts in PARTS[rows]:
            name = f"attention decode {rows}x8192 parts={parts}"
            programs = parts * rows * KV_HEADS
            call = partial(_into, attention_decode.attend, programs=programs)
            yield _case(name, lens, None, inputs, call)
        for keys in (64, 256, 512):
            name = f"attention decode {rows}x8192 split_keys={keys}"
            call = partial(_into, attention_decode.attend, split_keys=keys)
            yield _case(name, lens, None, inputs, call)
        inputs = _inputs(lens, 1)
        for config in WINDOW_CONFIGS:
            name = f"attention decode {rows}x8192 {_kind(WINDOW)} {_text(config)}"
            call = partial(_into, attention_decode.attend, config=config)
            yield _case(name, lens, WINDOW, inputs, call)


def _kind(window: int | None) -> str:
    return "full" if window is None else f"window={window}"


def _text(config: TileConfig) -> str:
    return f"keys={config.keys} warps={config.warps} stages={config.stages}"


def _into(attend: Callable[..., None], *inputs: object, **launch: object) -> object:
    query = inputs[0]
    assert isinstance(query, Tensor)
    out = torch.empty_like(query)
    attend(*inputs, out, **launch)
    return out


def _case(
    name: str,
    lens: Lens,
    window: int | None,
    inputs: Callable[[], Inputs],
    call: Callable[..., object],
) -> Case:
    moved = flops = 0.0
    for queries, length in lens:
        last = np.arange(length - queries, length) + 1
        seen = last if window is None else np.minimum(last, window)
        keys = length if window is None else min(length, queries + window - 1)
        moved += queries * ROW_BYTES + keys * KEY_BYTES
        flops += float(seen.sum()) * PAIR_FLOPS
    return Case(name, lambda: call(*inputs()), moved, flops)


def _inputs(lens: Lens, group: int) -> Callable[[], Inputs]:
    """Random tensors, in pages in random order; made once, and shared by the cases given them."""

    @cache
    def make() -> Inputs:
        batch = _batch(lens)
        pages = sum(-(-length // PAGE) for _, length in lens)
        shape = (pages, PAGE, KV_HEADS, DIM)
        kv = LayerKV(_random(shape), _random(shape))
        query = _random((sum(batch.query_lens), HEADS, DIM))
        return query, kv, batch, group, _random((HEADS,)), SCALE

    return make


def _random(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")


def _batch(lens: Lens) -> AttentionBatch:
    query_lens, kv_lens = (np.array(n, dtype=np.int64) for n in zip(*lens, strict=True))
    columns = -(-kv_lens // PAGE)
    tables = np.zeros((len(lens), columns.max()), dtype=np.int32)
    tables[np.arange(columns.max()) < columns[:, None]] = np.random.permutation(columns.sum())
    # Sequences of a few tokens each are decode rows, as speculation makes them.
    width = int(query_lens[0]) if query_lens.max() <= 4 else 1
    starts = np.concatenate(([0], query_lens.cumsum()))
    start, length, table, decode, tiles = (
        torch.from_numpy(part.astype(np.int32)).cuda()
        for part in (starts, kv_lens, tables, *split(query_lens, kv_lens, width))
    )
    slots = torch.zeros(int(starts[-1]), dtype=torch.int64, device="cuda")
    return AttentionBatch(
        query_start=start,
        kv_len=length,
        query_lens=query_lens.tolist(),
        kv_lens=kv_lens.tolist(),
        groups=(KVGroupBatch(slots, table, None), KVGroupBatch(slots, table, WINDOW)),
        plan=LaunchPlan(decode, width, tiles),
    )

"""Attention of decode rows over a paged cache, with sinks: split KV in Triton.

A program serves one sequence, one KV head and one of several equal parts ("splits") of the
sequence's keys; the query heads that share the KV head, of all the sequence's queries, are
the columns of its products: keys times queries, [TILE, columns]. So keys fill the many rows of a
tensor core instruction and queries its columns, of which it has 8: as many as a decode row of
gpt-oss has heads that share a KV head. `attention_merge` joins what the splits leave and counts the
sink, once; with one split this kernel counts it and writes the output itself.

How many splits there are follows from shapes alone, so that a CUDA graph serves all lengths; where
they lie follows from the sequence's length, on the device. Splits of short sequences that have
nothing to do end at once. A sliding layer reads its window only.

The chip bounds it by bytes: 256 a key and KV head, 2 KiB a key for gpt-oss. Predicted at 4.2 TB/s
and context 8192: batch 128, 2.1 GB, 0.6 ms at 85%; batch 1, 16.8 MB, 4 us at the ceiling but about
9 with the latency of two kernels. Instructions leave room: 290 of each of a program's four warps
for a tile of 64 keys, whose bytes take an SM's share of the memory 900 cycles.
"""

import torch
import triton
import triton.language as tl

from rose.kernels.fused.attention_merge import MAX_SPLITS, Partial, merge
from rose.kernels.fused.interpret import INTERPRETED, round_to
from rose.kernels.fused.paged_tile import (
    FLOOR,
    LOG2_E,
    TileConfig,
    blocks_of_tile,
    for_dot,
    slots_of_tile,
)
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LayerKV

CONFIG = TileConfig(keys=64, warps=4, stages=3)
"""26 KiB of shared memory and 84 registers a thread (values are fetched to registers): five or six
programs share an SM, with two tiles, 32 KiB, of each on their way."""

LEAST_COLUMNS = 8
"""With 8 columns products are mma.sync, values are fetched to registers; with 16 or more they are
wgmma, and all goes through shared memory (53 KiB, four programs an SM)."""

PROGRAMS = 16 * 132
"""Wanted of a launch: some four rounds of an H200's SMs, so that unequal lengths even out."""

SPLIT_KEYS = 128
"""The least keys of a split: fewer would cost more to merge than they save."""


@triton.jit
def _attend(
    start,
    state,
    query,
    key,
    value,
    table,
    position,
    low,
    high,
    window,
    scale,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    WINDOWED: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Take one tile of keys into `state`: (sum, running maximum, sum of weights, next blocks)."""
    total, peak, mass, blocks = state
    slots = slots_of_tile(blocks, start, BLOCK_SIZE, TILE)
    blocks = blocks_of_tile(table, start + TILE, low, high, BLOCK_SIZE, TILE)
    offsets = slots[:, None] * (KV_HEADS * DIM) + tl.arange(0, DIM)[None, :]
    at = start + tl.arange(0, TILE)[:, None]
    exists = (at >= low) & (at < high)
    keys = tl.load(key + offsets, mask=exists, other=0.0)
    values = tl.load(value + offsets, mask=exists, other=0.0)
    scores = tl.dot(for_dot(keys, UPCAST), query)
    seen = exists & (at <= position[None, :])
    if WINDOWED:
        seen &= at > position[None, :] - window
    scores = tl.where(seen, scores, -float("inf"))
    new_peak = tl.maximum(peak, tl.max(scores, 0) * scale)
    weights = tl.math.exp2(scores * scale - new_peak[None, :])
    shrink = tl.math.exp2(peak - new_peak)
    # Summed over the tile's keys only once, at the end: a sum over columns crosses warps.
    mass = mass * shrink[None, :] + weights
    total = total * shrink[None, :]
    weights = for_dot(round_to(weights, value.dtype.element_ty), UPCAST)
    total = tl.dot(tl.trans(for_dot(values, UPCAST)), weights, total)
    return total, new_peak, mass, blocks


@triton.jit(
    do_not_specialize=["table_stride", "window", "splits"],
    do_not_specialize_on_alignment=["tables", "query_start", "kv_lens", "sequences"],
)
def _attention_decode_kernel(
    query,
    key,
    value,
    sinks,
    out,
    partial_values,
    partial_log_mass,
    tables,
    table_stride,
    query_start,
    kv_lens,
    sequences,
    splits,
    scale,
    window,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    LEAST_TILES: tl.constexpr,
    WINDOWED: tl.constexpr,
    WHOLE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    head = tl.program_id(0)
    split = tl.program_id(1)
    which = tl.program_id(2)
    sequence = tl.load(sequences + which)
    begin = tl.load(query_start + sequence)
    high = tl.load(kv_lens + sequence)
    table = tables + sequence.to(tl.int64) * table_stride
    key += head * DIM
    value += head * DIM

    columns = tl.arange(0, COLUMNS)
    index = columns // GROUP
    real = index < WIDTH
    position = high - WIDTH + index
    query_head = head * GROUP + columns % GROUP
    dims = tl.arange(0, DIM)[:, None]
    row = (begin + index).to(tl.int64) * (KV_HEADS * GROUP) + query_head
    offsets = row[None, :] * DIM + dims
    q = for_dot(tl.load(query + offsets, mask=real[None, :], other=0.0), UPCAST)

    low = 0
    if WINDOWED:
        low = tl.maximum(high - WIDTH - window + 1, 0)
    first = low // TILE
    end = tl.cdiv(high, TILE)
    tiles = tl.maximum(tl.cdiv(end - first, splits), LEAST_TILES)
    first += split * tiles
    end = tl.minimum(first + tiles, end)

    sink = tl.full([COLUMNS], FLOOR, tl.float32)
    if WHOLE:
        sink = tl.load(sinks + query_head, mask=real, other=0.0).to(tl.float32)
        sink = tl.maximum(sink * LOG2_E, FLOOR)
    peak = sink
    mass = tl.zeros([TILE, COLUMNS], tl.float32)
    total = tl.zeros([DIM, COLUMNS], tl.float32)
    blocks = blocks_of_tile(table, first * TILE, low, high, BLOCK_SIZE, TILE)
    state = (total, peak, mass, blocks)
    for tile in tl.range(first, end):
        state = _attend(
            tile * TILE, state, q, key, value, table, position, low, high, window, scale,
            KV_HEADS, DIM, BLOCK_SIZE, TILE, WINDOWED, UPCAST,
        )  # fmt: skip
    total, peak, mass, blocks = state
    mass = tl.sum(mass, 0)

    if WHOLE:
        # The sink is one more score, with a value of 0.
        mass += tl.math.exp2(sink - peak)
        result = round_to(total / mass[None, :], out.dtype.element_ty)
        tl.store(out + offsets, result, mask=real[None, :])
    else:
        part = (which * WIDTH + index).to(tl.int64) * (KV_HEADS * GROUP) + query_head
        part = part * splits + split
        some = mass != 0  # also of a NaN, which must come out
        mass = tl.where(some, mass, 1.0)
        log_mass = tl.where(some, peak + tl.math.log2(mass), -float("inf"))
        tl.store(partial_log_mass + part, log_mass, mask=real)
        # What a query has not seen here is not read by the merge either.
        result = total / mass[None, :]
        tl.store(partial_values + part[None, :] * DIM + dims, result, mask=(real & some)[None, :])


def split_count(sequences: int, kv_heads: int, where: KVGroupBatch, block_size: int) -> int:
    """Into how many parts each sequence's keys are cut: by shapes alone, 1 to MAX_SPLITS."""
    keys = where.block_tables.shape[1] * block_size if where.window is None else where.window
    wanted = -(-PROGRAMS // (sequences * kv_heads))
    return max(1, min(wanted, keys // SPLIT_KEYS, MAX_SPLITS))


def attend(
    query: torch.Tensor,
    kv: LayerKV,
    batch: AttentionBatch,
    group: int,
    sinks: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    config: TileConfig = CONFIG,
    splits: int | None = None,
    least_columns: int = LEAST_COLUMNS,
) -> None:
    """Write the rows of `out` of the plan's decode sequences; see `attention.paged_attention`.

    Args:
        query: bfloat16 [tokens, heads, head_dim], contiguous.
        kv: contiguous; head_dim and block_size are powers of two of at least 16.
        batch: with a plan.
        group: index into `batch.groups`.
        sinks: [heads].
        scale: of the scores; positive.
        out: like query.
        config: chosen by benchmarks.
        splits: of each sequence's keys, at most MAX_SPLITS; None: `split_count` says.
        least_columns: of the products, 8 or 16.
    """
    plan, where = batch.plan, batch.groups[group]
    assert plan is not None
    count = len(plan.decode_sequences)
    if not count:
        return
    _, block_size, kv_heads, dim = kv.key.shape
    heads = query.shape[1]
    shared = heads // kv_heads
    splits = splits or split_count(count, kv_heads, where, block_size)
    partial = Partial.empty(count * plan.width, heads, splits, query)
    _attention_decode_kernel[(kv_heads, splits, count)](
        query,
        kv.key,
        kv.value,
        sinks,
        out,
        partial.values,
        partial.log_mass,
        where.block_tables,
        where.block_tables.stride(0),
        batch.query_start,
        batch.kv_len,
        plan.decode_sequences,
        splits,
        scale * LOG2_E.value,
        where.window or 0,
        WIDTH=plan.width,
        COLUMNS=max(least_columns, triton.next_power_of_2(plan.width * shared)),
        KV_HEADS=kv_heads,
        GROUP=shared,
        DIM=dim,
        BLOCK_SIZE=block_size,
        TILE=config.keys,
        LEAST_TILES=max(1, SPLIT_KEYS // config.keys),
        WINDOWED=where.window is not None,
        WHOLE=splits == 1,
        UPCAST=INTERPRETED,
        num_warps=config.warps,
        num_stages=config.stages,
    )
    if splits > 1:
        merge(partial, sinks, out, batch.query_start, plan.decode_sequences)

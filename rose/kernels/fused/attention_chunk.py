"""Attention of prompt chunks over a paged cache, with sinks: one pass of online softmax in Triton.

A program serves one tile of QUERY_TILE queries and one KV head: the query heads that share the
head are rows of the same products (128 rows for gpt-oss), so each key is read once for all of them.
Programs of one head come one after the other, so that its keys stay in the L2 cache, and those that
see most keys first.

The chip bounds it by arithmetic. A tile of 64 keys takes an SM 512 cycles of its tensor cores, 544
for the exponentials, and 612 to issue all that a warp does (306 instructions, counted in the
machine code): so two programs share an SM, and one's products run beneath the other's softmax.
Without such overlap that gives 430 TFLOP/s at 1.755 GHz, with all of it 790; FlashAttention-3
reaches 540. Predicted at 32,768 tokens of prompt (64 heads of 64): 8.8 TFLOP at 400 TFLOP/s, 22 ms
a full layer; a sliding one, 143 keys in three or four masked tiles for each 16 queries, 0.3 ms.

Where a batch has few tiles (a short turn after a long context), each tile's keys are split between
programs, and `attention_merge` joins what they leave. How many splits there are follows from
shapes alone; where they lie, from lengths read on the device.
"""

import torch
import triton
import triton.language as tl

from rose.kernels.fused import dependent
from rose.kernels.fused.attention_merge import (
    FEW_SPLITS,
    MAX_SPLITS,
    Partial,
    Programs,
    merge,
)
from rose.kernels.fused.interpret import INTERPRETED, round_to
from rose.kernels.fused.paged_tile import (
    FLOOR,
    LOG2_E,
    TileConfig,
    blocks_of_tile,
    for_dot,
    slots_of_tile,
)
from rose.kernels.paged_kv import QUERY_TILE, AttentionBatch, KVGroupBatch, LayerKV


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
    MASKED: tl.constexpr,
    WINDOWED: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Take one tile of keys into `state`: (sum, running maximum, sum of weights, next blocks)."""
    total, peak, mass, blocks = state
    slots = slots_of_tile(blocks, start, BLOCK_SIZE, TILE)
    blocks = blocks_of_tile(table, start + TILE, low, high, BLOCK_SIZE, TILE)
    offsets = slots[:, None] * (KV_HEADS * DIM) + tl.arange(0, DIM)[None, :]
    at = start + tl.arange(0, TILE)
    if MASKED:
        exists = ((at >= low) & (at < high))[:, None]
        keys = tl.load(key + offsets, mask=exists, other=0.0)
    else:
        keys = tl.load(key + offsets)
    scores = tl.dot(query, tl.trans(for_dot(keys, UPCAST)))
    if MASKED:
        seen = at[None, :] <= position[:, None]
        if WINDOWED:
            seen &= at[None, :] > position[:, None] - window
        scores = tl.where(seen, scores, -float("inf"))
    new_peak = tl.maximum(peak, tl.max(scores, 1) * scale)
    weights = tl.math.exp2(scores * scale - new_peak[:, None])
    shrink = tl.math.exp2(peak - new_peak)
    mass = mass * shrink + tl.sum(weights, 1)
    total = total * shrink[:, None]
    if MASKED:
        values = tl.load(value + offsets, mask=exists, other=0.0)
    else:
        values = tl.load(value + offsets)
    weights = for_dot(round_to(weights, value.dtype.element_ty), UPCAST)
    total = tl.dot(weights, for_dot(values, UPCAST), total)
    return total, new_peak, mass, blocks


@triton.jit(
    do_not_specialize=["table_stride", "window", "splits"],
    do_not_specialize_on_alignment=["tables", "query_start", "kv_lens", "tiles"],
)
def _attention_chunk_kernel(
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
    tiles,
    splits,
    scale,
    window,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    QUERIES: tl.constexpr,
    TILE: tl.constexpr,
    LEAST_TILES: tl.constexpr,
    WINDOWED: tl.constexpr,
    WHOLE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    which = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.program_id(2)
    sequence = tl.load(tiles + 2 * which)
    first = tl.load(tiles + 2 * which + 1)
    begin = tl.load(query_start + sequence)
    queries = tl.load(query_start + sequence + 1) - begin
    kv_len = tl.load(kv_lens + sequence)
    table = tables + sequence.to(tl.int64) * table_stride
    # Lengths and tables are older than the kernel before, which writes queries and keys.
    dependent.start()
    key += head * DIM
    value += head * DIM

    rows = tl.arange(0, QUERIES * GROUP_PAD)
    index = first + rows // GROUP_PAD
    member = rows % GROUP_PAD
    real = (index < queries) & (member < GROUP)
    position = kv_len - queries + index
    query_head = head * GROUP + member
    row = (begin + index).to(tl.int64) * (KV_HEADS * GROUP) + query_head
    offsets = row[:, None] * DIM + tl.arange(0, DIM)[None, :]
    q = for_dot(tl.load(query + offsets, mask=real[:, None], other=0.0), UPCAST)

    oldest = kv_len - queries + first
    high = tl.minimum(oldest + QUERIES, kv_len)
    low = 0
    if WINDOWED:
        low = tl.maximum(oldest - window + 1, 0)
    start = low // TILE
    end = tl.cdiv(high, TILE)
    tiles_of_split = tl.maximum(tl.cdiv(end - start, splits), LEAST_TILES)
    start += split * tiles_of_split
    end = tl.minimum(start + tiles_of_split, end)
    # All queries see all keys of the tiles before this one.
    masked = start
    if not WINDOWED:
        masked = tl.minimum(tl.maximum((oldest + 1) // TILE, start), end)

    peak = tl.full([QUERIES * GROUP_PAD], FLOOR, tl.float32)
    mass = tl.zeros([QUERIES * GROUP_PAD], tl.float32)
    if WHOLE:
        # The sink is a score that is there from the start, with a value of 0.
        sink = tl.load(sinks + query_head, mask=real, other=0.0).to(tl.float32)
        peak = tl.maximum(sink * LOG2_E, FLOOR)
        mass += 1.0
    total = tl.zeros([QUERIES * GROUP_PAD, DIM], tl.float32)
    blocks = blocks_of_tile(table, start * TILE, low, high, BLOCK_SIZE, TILE)
    state = (total, peak, mass, blocks)
    if not WINDOWED:
        for tile in tl.range(start, masked):
            state = _attend(
                tile * TILE, state, q, key, value, table, position, low, high, window, scale,
                KV_HEADS, DIM, BLOCK_SIZE, TILE, False, False, UPCAST,
            )  # fmt: skip
    for tile in tl.range(masked, end):
        state = _attend(
            tile * TILE, state, q, key, value, table, position, low, high, window, scale,
            KV_HEADS, DIM, BLOCK_SIZE, TILE, True, WINDOWED, UPCAST,
        )  # fmt: skip
    total, peak, mass, blocks = state

    if WHOLE:
        result = round_to(total / mass[:, None], out.dtype.element_ty)
        tl.store(out + offsets, result, mask=real[:, None])
    else:
        slot = (which * splits + split) * QUERIES + rows // GROUP_PAD
        part = slot * (KV_HEADS * GROUP) + query_head
        some = mass != 0  # also of a NaN, which must come out
        mass = tl.where(some, mass, 1.0)
        log_mass = tl.where(some, peak + tl.math.log2(mass), -float("inf"))
        tl.store(partial_log_mass + part, log_mass, mask=real)
        # What a query has not seen here the merge leaves out.
        at = part[:, None] * DIM + tl.arange(0, DIM)[None, :]
        tl.store(partial_values + at, total / mass[:, None], mask=(real & some)[:, None])


CONFIG = TileConfig(keys=64, warps=8, stages=3)
"""64 KiB of shared memory and at most 128 registers a thread, so that two programs share an SM."""

PROGRAMS = 2 * 132
"""What an H200 runs at a time; a batch of fewer tiles than that is split by keys."""

SPLIT_KEYS = 512
"""The least keys of a split: fewer would cost more to merge than they save."""


def split_count(tiles: int, kv_heads: int, where: KVGroupBatch, block_size: int) -> int:
    """Into how many parts each tile's keys are cut: by shapes alone, 1 to MAX_SPLITS."""
    if where.window is not None:
        return 1
    keys = where.block_tables.shape[1] * block_size
    return max(1, min(PROGRAMS // (tiles * kv_heads), keys // SPLIT_KEYS, MAX_SPLITS))


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
) -> None:
    """Write the rows of `out` that belong to the plan's tiles; see `attention.paged_attention`.

    Args:
        query: bfloat16 [tokens, heads, head_dim], contiguous.
        kv: contiguous; head_dim and block_size are powers of two of at least 16.
        batch: with a plan.
        group: index into `batch.groups`.
        sinks: [heads].
        scale: of the scores; positive.
        out: like query.
        config: chosen by benchmarks.
        splits: of each tile's keys, at most MAX_SPLITS; None: `split_count` says.
    """
    plan, where = batch.plan, batch.groups[group]
    assert plan is not None
    count = len(plan.tiles)
    if not count:
        return
    _, block_size, kv_heads, dim = kv.key.shape
    heads = query.shape[1]
    shared = heads // kv_heads
    splits = splits or split_count(count, kv_heads, where, block_size)
    partial = Partial.empty(count * splits if splits > 1 else 0, QUERY_TILE, query)
    _attention_chunk_kernel[(count, kv_heads, splits)](
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
        plan.tiles,
        splits,
        scale * LOG2_E.value,
        where.window or 0,
        KV_HEADS=kv_heads,
        GROUP=shared,
        GROUP_PAD=triton.next_power_of_2(shared),
        DIM=dim,
        BLOCK_SIZE=block_size,
        QUERIES=QUERY_TILE,
        TILE=config.keys,
        LEAST_TILES=max(1, SPLIT_KEYS // config.keys),
        WINDOWED=where.window is not None,
        WHOLE=splits == 1,
        UPCAST=INTERPRETED,
        num_warps=config.warps,
        num_stages=config.stages,
        **dependent.LAUNCH,
    )
    if splits > 1:
        programs = Programs(plan.tiles, QUERY_TILE, splits)
        merge(partial, sinks, out, batch.query_start, programs, splits <= FEW_SPLITS)

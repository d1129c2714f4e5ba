"""Attention of decode rows over a paged cache, with sinks: split KV in Triton.

A program serves one sequence, one KV head and one of several equal parts of the sequence's keys;
the query heads that share the KV head, of all the sequence's queries, are the columns of its
products: keys times queries, [TILE, columns]. So keys fill the many rows of a tensor core
instruction and queries its columns, of which it has 8: as many as a decode row of gpt-oss has heads
that share a KV head. `attention_merge` joins what the parts leave and counts the sink, once; where
each sequence is in one part this kernel counts it and writes the output itself.

The grid follows from shapes alone, so that a CUDA graph serves all lengths: a number of slots, one
a part. How many parts a sequence has follows from the lengths of all, on the device, where each
program reads them: a part is as long as all keys divided by the parts wanted, so that a long
sequence among short ones gets many and a batch of equal ones equally many. A sliding layer reads
its window only, in one part.

The chip bounds it by bytes: 256 a key and KV head, 2 KiB a key for gpt-oss. Measured on an H200
at context 8192, when the number of parts was the same for all sequences: batch 128 in 523 us (98%
of the rate of a copy), batch 1 in 13.9 us, of which the bytes are 4: what is left are two
launches, and loads that wait for each other. A batch of decode rows alone (DIRECT) has one of
these loads less in each kernel, and lengths and tables are read before the kernel before has ended:
predicted at 11 us. One sequence of 131,072 beside 63 of 1024 took 498 us: predicted at 120.
"""

import torch
import triton
import triton.language as tl

from rose.kernels.fused import dependent
from rose.kernels.fused.attention_merge import (
    MAX_SPLITS,
    SPAN_PARTS,
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
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LayerKV

CONFIG = TileConfig(keys=64, warps=4, stages=2)
"""96 registers a thread (values are fetched to registers): five programs share an SM, with a tile,
16 KiB, of each on its way. Two tiles of each were up to a tenth slower."""

WINDOW_CONFIG = TileConfig(keys=128, warps=4, stages=1)
"""Of a sliding layer, whose tiles begin where the window does: gpt-oss's window is one tile."""

LEAST_COLUMNS = 8
"""With 8 columns products are mma.sync, values are fetched to registers; with 16 or more they are
wgmma, and all goes through shared memory (53 KiB, four programs an SM)."""

PROGRAMS = 5 * 132
"""Wanted of a launch at least: what an H200 holds at once."""

SEQUENCE_PARTS = 5
"""Wanted of a sequence on average, so that many sequences are more than one round of programs and
end together."""

SPLIT_KEYS = 128
"""The least keys of a part: fewer would cost more to merge than they save."""

MOST_SEQUENCES = 256
"""Of more, each is in one part; a program reads the lengths of so many at once."""

FEW_SEQUENCES = 32
"""Up to so many in a batch of decode rows alone, what counts is latency."""


@triton.jit
def _part_of_slot(
    slot,
    sequences,
    kv_lens,
    count,
    wanted,
    DIRECT: tl.constexpr,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    LEAST_TILES: tl.constexpr,
    MOST_PARTS: tl.constexpr,
):
    """Whose part a slot holds: (index of the sequence, its first slot, its parts).

    Parts are as long as all keys by `wanted`, or longer; so they are `count + wanted` at most. The
    slots that are left come after those of the last sequence, where it has no keys.
    """
    if PAD == 1:
        tiles = tl.cdiv(tl.load(kv_lens), TILE)
        length = tl.maximum(tl.cdiv(tiles, wanted), LEAST_TILES)
        parts = tl.minimum(tl.maximum(tl.cdiv(tiles, length), 1), MOST_PARTS)
        first = tl.full([], 0, tl.int32)
        return first, first, parts
    at = tl.arange(0, PAD)
    exists = at < count
    sequence = at
    if not DIRECT:
        sequence = tl.load(sequences + at, mask=exists, other=0)
    tiles = tl.cdiv(tl.load(kv_lens + sequence, mask=exists, other=0), TILE)
    length = tl.maximum(tl.cdiv(tl.sum(tiles, 0), wanted), LEAST_TILES)
    parts = tl.minimum(tl.maximum(tl.cdiv(tiles, length), 1), MOST_PARTS)
    parts = tl.where(exists, parts, 0)
    ends = tl.cumsum(parts, 0)
    which = tl.minimum(tl.sum((ends <= slot).to(tl.int32), 0), count - 1)
    span = tl.where(at == which, (ends - parts) * SPAN_PARTS + parts, 0)
    span = tl.sum(span, 0)
    return which, span // SPAN_PARTS, span % SPAN_PARTS


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
    blocks = blocks_of_tile(table, start + TILE, low, high, BLOCK_SIZE, TILE, not WINDOWED)
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
    do_not_specialize=["table_stride", "window", "count", "wanted"],
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
    spans,
    tables,
    table_stride,
    query_start,
    kv_lens,
    sequences,
    count,
    wanted,
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
    MOST_PARTS: tl.constexpr,
    PAD: tl.constexpr,
    WINDOWED: tl.constexpr,
    SPLIT: tl.constexpr,
    DIRECT: tl.constexpr,
    UPCAST: tl.constexpr,
):
    head = tl.program_id(0)
    slot = tl.program_id(1)
    which, first_slot, parts = slot, slot, 1
    if SPLIT:
        which, first_slot, parts = _part_of_slot(
            slot, sequences, kv_lens, count, wanted, DIRECT, PAD, TILE, LEAST_TILES, MOST_PARTS
        )
    sequence, begin = which, which * WIDTH
    if not DIRECT:
        sequence = tl.load(sequences + which)
        begin = tl.load(query_start + sequence)
    high = tl.load(kv_lens + sequence)
    table = tables + sequence.to(tl.int64) * table_stride
    low = 0
    if WINDOWED:
        low = tl.maximum(high - WIDTH - window + 1, 0)
    end = tl.cdiv(high - low, TILE)
    first = 0
    if SPLIT:
        tiles = tl.cdiv(end, parts)
        first = (slot - first_slot) * tiles
        end = tl.minimum(first + tiles, end)
    blocks = blocks_of_tile(table, low + first * TILE, low, high, BLOCK_SIZE, TILE, not WINDOWED)

    # Lengths and tables are older than the kernel before, which writes queries and keys.
    dependent.start()
    if SPLIT:
        begins = (slot == first_slot) & (head == 0)
        tl.store(spans + which, first_slot * SPAN_PARTS + parts, mask=begins)
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

    sink = tl.full([COLUMNS], FLOOR, tl.float32)
    if not SPLIT:
        sink = tl.load(sinks + query_head, mask=real, other=0.0).to(tl.float32)
        sink = tl.maximum(sink * LOG2_E, FLOOR)
    peak = sink
    mass = tl.zeros([TILE, COLUMNS], tl.float32)
    total = tl.zeros([DIM, COLUMNS], tl.float32)
    state = (total, peak, mass, blocks)
    for tile in tl.range(first, end):
        state = _attend(
            low + tile * TILE, state, q, key, value, table, position, low, high, window, scale,
            KV_HEADS, DIM, BLOCK_SIZE, TILE, WINDOWED, UPCAST,
        )  # fmt: skip
    total, peak, mass, blocks = state
    mass = tl.sum(mass, 0)

    if SPLIT:
        part = (slot * WIDTH + index).to(tl.int64) * (KV_HEADS * GROUP) + query_head
        some = mass != 0  # also of a NaN, which must come out
        mass = tl.where(some, mass, 1.0)
        log_mass = tl.where(some, peak + tl.math.log2(mass), -float("inf"))
        tl.store(partial_log_mass + part, log_mass, mask=real)
        # What a query has not seen here the merge leaves out.
        result = total / mass[None, :]
        tl.store(partial_values + part[None, :] * DIM + dims, result, mask=(real & some)[None, :])
    else:
        # The sink is one more score, with a value of 0.
        mass += tl.math.exp2(sink - peak)
        result = round_to(total / mass[None, :], out.dtype.element_ty)
        tl.store(out + offsets, result, mask=real[None, :])


def slot_count(
    sequences: int, wanted: int, split_keys: int, where: KVGroupBatch, block_size: int
) -> int:
    """How many parts all sequences can have together, by shapes alone; 0: one each.

    Args:
        sequences: of the launch.
        wanted: parts of all of them, so that the chip is full.
        split_keys: the least keys of a part.
        where: its tables tell how long sequences can be.
        block_size: of the tables.
    """
    keys = where.block_tables.shape[1] * block_size
    most = min(-(-keys // split_keys), MAX_SPLITS)
    if where.window is not None or sequences > MOST_SEQUENCES or most == 1:
        return 0
    return min(sequences + wanted, sequences * most)


def _pad(sequences: int, direct: bool) -> int:
    """The lengths that a program reads; few variants, and one where latency matters less."""
    if direct and sequences <= FEW_SEQUENCES:
        return 1 if sequences == 1 else FEW_SEQUENCES
    return MOST_SEQUENCES


def attend(
    query: torch.Tensor,
    kv: LayerKV,
    batch: AttentionBatch,
    group: int,
    sinks: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    config: TileConfig | None = None,
    least_columns: int = LEAST_COLUMNS,
    programs: int | None = None,
    split_keys: int | None = None,
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
        config: chosen by benchmarks; None: CONFIG or WINDOW_CONFIG.
        least_columns: of the products, 8 or 16.
        programs: wanted of the launch; None: PROGRAMS, or SEQUENCE_PARTS say.
        split_keys: the least keys of a part; None: SPLIT_KEYS.
    """
    plan, where = batch.plan, batch.groups[group]
    assert plan is not None
    count, width = len(plan.decode_sequences), plan.width
    if not count:
        return
    _, block_size, kv_heads, dim = kv.key.shape
    heads = query.shape[1]
    shared = heads // kv_heads
    windowed = where.window is not None
    config = config or (WINDOW_CONFIG if windowed else CONFIG)
    direct = count == len(batch.query_lens)
    wanted = max(1, (programs or PROGRAMS) // kv_heads)
    if programs is None:
        wanted = max(wanted, SEQUENCE_PARTS * count)
    split_keys = split_keys or SPLIT_KEYS
    slots = slot_count(count, wanted, split_keys, where, block_size)
    partial = Partial.empty(slots, width, query)
    spans = plan.decode_sequences.new_empty(count if slots else 0)
    _attention_decode_kernel[(kv_heads, slots or count)](
        query,
        kv.key,
        kv.value,
        sinks,
        out,
        partial.values,
        partial.log_mass,
        spans,
        where.block_tables,
        where.block_tables.stride(0),
        batch.query_start,
        batch.kv_len,
        plan.decode_sequences,
        count,
        wanted,
        scale * LOG2_E.value,
        where.window or 0,
        WIDTH=width,
        COLUMNS=max(least_columns, triton.next_power_of_2(width * shared)),
        KV_HEADS=kv_heads,
        GROUP=shared,
        DIM=dim,
        BLOCK_SIZE=block_size,
        TILE=config.keys,
        LEAST_TILES=max(1, split_keys // config.keys),
        MOST_PARTS=MAX_SPLITS,
        PAD=_pad(count, direct) if slots else 0,
        WINDOWED=windowed,
        SPLIT=slots > 0,
        DIRECT=direct,
        UPCAST=INTERPRETED,
        num_warps=config.warps,
        num_stages=config.stages,
        **dependent.LAUNCH,
    )
    if slots:
        few_at_a_time = not (direct and count <= FEW_SEQUENCES)
        merged = Programs(plan.decode_sequences, width, spans=spans, direct=direct)
        merge(partial, sinks, out, batch.query_start, merged, few_at_a_time)

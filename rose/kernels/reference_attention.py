"""The plain torch truth of paged attention with sinks, on any device.

Scores, softmax and the sum over values are float32; the output is rounded once. Only keys that
some query sees are gathered, so what lies in other slots, or behind other entries of a block
table, cannot leak, be it NaN.

Sequences that run one token (decode rows) are computed together; longer ones (prompt chunks) one
by one in tiles of queries, so that memory grows with the number of keys and not with its square.
"""

import torch
from torch import Tensor

from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LayerKV
from rose.kernels.reference import Tolerance

# Probabilities may be rounded before they meet the values, as tensor cores need it.
ATTENTION_TOLERANCE = Tolerance(1e-5, 2**-7)

SCORES_PER_TILE = 2**22
"""The most scores (heads x queries x keys) of one tile of a chunk: 16 MiB."""

SMALLEST_TILE = 16
"""Fewer queries a tile would spend more on calls than on scores."""

KEYS_PER_TILE = 2**12
"""The most keys, padding included, gathered at once for decode rows; one row may exceed it.

A tile so small stays in a CPU's cache and in memory that the allocator reuses: larger ones are
mapped anew each time, which made decoding of 48 sequences 2.5 times slower.
"""

CUDA_KEYS_PER_TILE = 2**16
"""The same on a GPU, where each tile costs launches."""


def paged_attention(
    query: Tensor,
    kv: LayerKV,
    batch: AttentionBatch,
    group: int,
    sinks: Tensor,
    scale: float,
) -> Tensor:
    """See `attention.paged_attention`. ATTENTION_TOLERANCE."""
    where = batch.groups[group]
    out = torch.empty_like(query)
    start = 0
    decode: list[tuple[int, int]] = []
    for sequence, (queries, keys) in enumerate(zip(batch.query_lens, batch.kv_lens, strict=True)):
        if queries == 1:
            decode.append((sequence, start))
        else:
            rows = slice(start, start + queries)
            table = where.block_tables[sequence]
            _chunk(query[rows], out[rows], kv, table, keys, where.window, sinks, scale)
        start += queries
    limit = CUDA_KEYS_PER_TILE if query.is_cuda else KEYS_PER_TILE
    for tile in _decode_tiles(decode, batch.kv_lens, where.window, limit):
        _decode(query, out, kv, batch, where, tile, sinks, scale)
    return out


def _chunk(
    query: Tensor,
    out: Tensor,
    kv: LayerKV,
    table: Tensor,
    kv_len: int,
    window: int | None,
    sinks: Tensor,
    scale: float,
) -> None:
    """Consecutive queries of one sequence, the last at position kv_len - 1."""
    queries, heads = query.shape[:2]
    reach = kv_len if window is None else min(window, kv_len)
    step = max(SCORES_PER_TILE // (heads * reach), SMALLEST_TILE)
    if window is not None:
        # n queries see n + window - 1 keys: more than n = window would be mostly hidden scores.
        step = min(step, max(window, SMALLEST_TILE))
    first = kv_len - queries
    oldest = max(0, first + 1 - reach)
    position = torch.arange(oldest, kv_len, device=query.device)
    key, value = _gather(kv, table.unsqueeze(0), position.unsqueeze(0))
    for begin in range(0, queries, step):
        end = min(begin + step, queries)
        seen = slice(max(0, first + begin + 1 - reach) - oldest, first + end - oldest)
        distance = position[seen][begin - end :, None] - position[seen]
        hidden = distance < 0
        if window is not None:
            hidden |= distance >= window
        tile = query[begin:end].unsqueeze(0)
        keys, values = key[:, :, seen], value[:, :, seen]
        out[begin:end] = _attend(tile, keys, values, hidden.unsqueeze(0), sinks, scale)[0]


def _decode_tiles(
    rows: list[tuple[int, int]], kv_lens: list[int], window: int | None, limit: int
) -> list[list[tuple[int, int]]]:
    """Cut decode rows (sequence, row) into tiles of like length, each of at most `limit` keys."""
    tiles: list[list[tuple[int, int]]] = []
    for row in sorted(rows, key=lambda row: kv_lens[row[0]], reverse=True):
        keys = kv_lens[(tiles[-1][0] if tiles else row)[0]]
        keys = keys if window is None else min(keys, window)
        if not tiles or (len(tiles[-1]) + 1) * keys > limit:
            tiles.append([])
        tiles[-1].append(row)
    return tiles


def _decode(
    query: Tensor,
    out: Tensor,
    kv: LayerKV,
    batch: AttentionBatch,
    where: KVGroupBatch,
    tile: list[tuple[int, int]],
    sinks: Tensor,
    scale: float,
) -> None:
    """One query for each sequence of the tile, at the end of its keys."""
    device = query.device
    sequences = torch.tensor([sequence for sequence, _ in tile], device=device)
    rows = torch.tensor([row for _, row in tile], device=device)
    length = batch.kv_len[sequences].long().unsqueeze(1)
    longest = batch.kv_lens[tile[0][0]]
    width = longest if where.window is None else min(longest, where.window)
    position = (length - width).clamp_min_(0) + torch.arange(width, device=device)
    # Padding repeats the row's last key: a slot that is sure to hold a number.
    key, value = _gather(kv, where.block_tables[sequences], position.minimum(length - 1))
    hidden = (position >= length).unsqueeze(1)
    out[rows] = _attend(query[rows].unsqueeze(1), key, value, hidden, sinks, scale).squeeze(1)


def _gather(kv: LayerKV, tables: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values at position [sequences, keys]: float32 [sequences, kv_heads, keys, dim]."""
    block_size = kv.key.shape[1]
    block = tables.gather(1, position // block_size)
    slot = (block * block_size + position % block_size).flatten()
    shape = (*position.shape, *kv.key.shape[2:])
    key = kv.key.flatten(0, 1).index_select(0, slot).view(shape)
    value = kv.value.flatten(0, 1).index_select(0, slot).view(shape)
    return key.float().transpose(1, 2), value.float().transpose(1, 2)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, sinks: Tensor, scale: float
) -> Tensor:
    """Attention over gathered keys.

    Args:
        query: [sequences, queries, heads, dim].
        key: float32 [sequences, kv_heads, keys, dim].
        value: likewise.
        hidden: bool, [sequences, queries or 1, keys]; no query may hide all keys.
        sinks: [heads].
        scale: of the scores.

    Returns:
        query's dtype, its shape.
    """
    sequences, queries, heads, dim = query.shape
    kv_heads, keys = key.shape[1:3]
    # Query heads that share a KV head become rows of one product.
    shared = (sequences, kv_heads, heads // kv_heads, queries)
    stacked = query.float().transpose(1, 2).reshape(sequences, kv_heads, -1, dim)
    scores = (stacked @ key.transpose(2, 3)).mul_(scale).view(*shared, keys)
    scores.masked_fill_(hidden[:, None, None], -torch.inf)
    sink = sinks.float().view(kv_heads, -1, 1, 1)
    peak = torch.maximum(scores.amax(-1, keepdim=True), sink)
    weights = scores.sub_(peak).exp_()
    total = weights.sum(-1, keepdim=True) + (sink - peak).exp()
    out = (weights.view(*stacked.shape[:3], keys) @ value).view(*shared, dim) / total
    return out.view(sequences, heads, queries, dim).transpose(1, 2).to(query.dtype)

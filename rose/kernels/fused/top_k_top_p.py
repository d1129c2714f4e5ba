"""Top-k and top-p of whole rows of logits, without sorting them.

What is kept is a prefix of the row's order: all logits above a threshold, and the first few of
those that equal it. The threshold is the logit at which a running sum from the best one down, of
ones (top-k) or of exp(logit - best) (top-p), reaches a target. Four launches find it, three of them
with a program for each part of `_PART` tokens:

1. coarse: sums of 16 bins, two units of the logit wide, on a grid that parts share, each from its
   own best logit down;
2. fine: sums of 16 bins, an eighth wide, in the coarse bin where the target is reached;
3. gather: the fine bin where it is reached is copied aside, for top-k with all that is above; the
   rest of the row is written;
4. select: a program a row searches the copy, by integers in the order of floats, and writes what it
   keeps of it. Top-p after top-k looks at the same copy. More than `_LIST` candidates are not
   copied; then it searches the row itself.

Sums go by parts, in one order, so a row never depends on its batch. A row without a filter is
copied. The kept set is the reference's. Only where top-p's sum comes within 1e-6 of `top_p` may
the order of float32 summation decide otherwise.

What bounds it on an H200, vocabulary 201,088. One row: latency, of launches, of L2 and of the ten
or so rounds of each search; predicted 20-25 us. 128 rows: for top-k 1 and 2 compute ~35
instructions a token, ~40 us each, for top-p alone ~70, ~75 us each; 3 computes ~55 while it moves
206 MB, 60-70 us; 4 takes ~10 us. Predicted 150-170 us with top-k, 220-240 us without; measured 28
us for one row, and for 128 305 and 382.
"""

# mypy: disable-error-code="untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent

_PART = 4096
"""Tokens of a program of the first three launches: 50 programs a row of 201,088."""

_LANES = 1024
"""Columns of a part; 16-byte loads spread them over all threads of `_WARPS`."""

_LIST = 32_768
"""The most candidates that are copied aside."""

_TILE = 1024
"""Candidates read at a time."""

_WARPS = 8

_INFINITY = tl.constexpr(float("inf"))
_BINS = tl.constexpr(16)
_COARSE = tl.constexpr(2.0)
"""Width of a coarse bin; 16 of them span e^30 at least, and 201,088 * e^-30 is 2e-8."""

_EXACT = tl.constexpr(2.0**22)
"""Beyond so many coarse bins float32 may not tell neighbours apart: the grid is not used."""

_STATE = tl.constexpr(8)
"""Floats a row that a launch leaves for later ones."""


@triton.jit
def _key(x: tl.tensor) -> tl.tensor:
    """float32 to uint32 of the same order; both zeros to one."""
    bits = (x + 0.0).to(tl.uint32, bitcast=True)
    return bits ^ tl.where(bits >> 31 != 0, 0xFFFFFFFF, 0x80000000).to(tl.uint32)


@triton.jit
def _logit(key: tl.tensor) -> tl.tensor:
    """The inverse of `_key`."""
    bits = key ^ tl.where(key >> 31 != 0, 0x80000000, 0xFFFFFFFF).to(tl.uint32)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _load(row: tl.tensor, token: tl.tensor, count: tl.tensor) -> tl.tensor:
    """Logits at `token`; -inf from `count` on and for NaN."""
    x = tl.load(row + token, mask=token < count, other=-_INFINITY)
    return tl.where(x == x, x, -_INFINITY)


@triton.jit
def _tokens(part: tl.tensor, size: tl.constexpr, lanes: tl.constexpr) -> tl.tensor:
    """Ids of a part's tokens, int32 [size / lanes, lanes]."""
    line, lane = tl.arange(0, size // lanes), tl.arange(0, lanes)
    return part * size + line[:, None] * lanes + lane[None, :]


@triton.jit
def _bin_and_8_on(place: tl.tensor, weight: tl.tensor, bin: tl.constexpr) -> tl.tensor:
    # A comparison that gives 1.0 and a fused multiply-add; a choice would be an instruction more.
    return tl.join(
        tl.sum((place == bin).to(tl.float32) * weight, axis=0),
        tl.sum((place == bin + 8).to(tl.float32) * weight, axis=0),
    )


@triton.jit
def _every_fourth_bin(place: tl.tensor, weight: tl.tensor, bin: tl.constexpr) -> tl.tensor:
    return tl.join(_bin_and_8_on(place, weight, bin), _bin_and_8_on(place, weight, bin + 4))


@triton.jit
def _every_second_bin(place: tl.tensor, weight: tl.tensor, bin: tl.constexpr) -> tl.tensor:
    return tl.join(_every_fourth_bin(place, weight, bin), _every_fourth_bin(place, weight, bin + 2))


@triton.jit
def _store_sums(out: tl.tensor, place: tl.tensor, weight: tl.tensor) -> None:
    """Sum `weight` ([n, lanes]) by `place`, where that is in 0..15, into 16 floats.

    A thread sums its own column, all bins at a time, before any of them crosses threads.
    """
    pairs = tl.join(_every_second_bin(place, weight, 0), _every_second_bin(place, weight, 1))
    sums = tl.sum(tl.reshape(pairs, (place.shape[1], _BINS)), axis=0)
    tl.store(out + tl.arange(0, _BINS), sums)


@triton.jit
def _four_counts(quarter: tl.tensor, one: tl.tensor, which: tl.constexpr) -> tl.tensor:
    """Counts of bins 4 * which + 0..3 down each column, in 16 bits each: int32 [lanes, 2].

    The first has bins 0 and, higher, 2; the second 1 and 3.
    """
    bytes = tl.sum(tl.where(quarter == which, one, 0), axis=0)
    return tl.join(bytes & 0x00FF00FF, (bytes >> 8) & 0x00FF00FF)


@triton.jit
def _store_counts(out: tl.tensor, place: tl.tensor) -> None:
    """Count `place` ([n, lanes], n < 128) where that is in 0..15, into 16 floats.

    Four bins share a word while a thread counts, two while threads are summed.
    """
    bin = tl.where((place >= 0) & (place < _BINS), place, _BINS).to(tl.int32)
    quarter = bin >> 2
    one = tl.full(bin.shape, 1, tl.int32) << ((bin & 3) * 8)
    pairs = tl.join(
        tl.join(_four_counts(quarter, one, 0), _four_counts(quarter, one, 2)),
        tl.join(_four_counts(quarter, one, 1), _four_counts(quarter, one, 3)),
    )
    words = tl.sum(tl.reshape(pairs, (place.shape[1], 2, 4)), axis=0)
    odd = tl.arange(0, 2)[:, None]
    which = out + odd + 4 * tl.arange(0, 4)[None, :]
    tl.store(which, (words & 0xFFFF).to(tl.float32))
    tl.store(which + 2, (words >> 16).to(tl.float32))


@triton.jit(do_not_specialize_on_alignment=["top_k", "top_p"])
def _coarse_kernel(
    logits: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    part_best: tl.tensor,
    coarse: tl.tensor,
    vocab: tl.constexpr,
    size: tl.constexpr,
    lanes: tl.constexpr,
) -> None:
    """Each part's best logit, and sums of bins from it down, relative to it."""
    dependent.start()
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k, p = tl.load(top_k + row), tl.load(top_p + row)
    if (k > 0) | (p < 1):
        x = _load(logits + row * vocab, _tokens(part, size, lanes), vocab)
        best = tl.max(tl.max(x, axis=0), axis=0)
        place = tl.floor(best / _COARSE) - tl.floor(x / _COARSE)
        where = row * tl.num_programs(1) + part
        tl.store(part_best + where, best)
        if k > 0:
            _store_counts(coarse + where * _BINS, place)
        else:
            _store_sums(coarse + where * _BINS, place, tl.exp(x - best))


@triton.jit
def _fine_distance(x: tl.tensor, high: tl.tensor, unrefined: tl.tensor) -> tl.tensor:
    """Distance below `high` in fine bins, of which the first has (0, 1]; all 1 if `unrefined`."""
    distance = (high - x) * (_BINS / _COARSE)
    return tl.where((x == -_INFINITY), _INFINITY, tl.where(unrefined, 1.0, distance))


@triton.jit
def _merge_coarse(
    part_best: tl.tensor,
    coarse: tl.tensor,
    row: tl.tensor,
    k: tl.tensor,
    p: tl.tensor,
    parts: tl.constexpr,
    padded_parts: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Where the target is reached.

    Returns:
        The row's best logit, the upper border of the bin, the sum above it, the target; whether
        the bin is no use and all of the row is to be searched.
    """
    index, bin = row * parts + tl.arange(0, padded_parts), tl.arange(0, _BINS)
    there = tl.arange(0, padded_parts) < parts
    bests = tl.load(part_best + index, mask=there, other=-_INFINITY)
    best = tl.max(bests, axis=0)
    top = tl.floor(best / _COARSE)
    shift = top - tl.floor(bests / _COARSE)
    shift = tl.where(shift < _BINS, shift, _BINS).to(tl.int32)
    mine = bin[None, :] - shift[:, None]
    sums = tl.load(
        coarse + index[:, None] * _BINS + mine, mask=there[:, None] & (mine >= 0), other=0.0
    )
    share = tl.where(k > 0, 1.0, tl.exp(bests - best))
    sums = tl.where(sums > 0, sums * share[:, None], 0.0)
    upto = tl.cumsum(tl.sum(sums, axis=0), axis=0)
    target = tl.where(k > 0, k.to(tl.float32), (p * tl.max(upto, axis=0)).to(tl.float32))
    short = upto < target
    passed = tl.sum(short.to(tl.int32), axis=0)
    unrefined = (passed == _BINS) | (tl.abs(top) > _EXACT)
    above = tl.max(tl.where(short, upto, 0.0), axis=0)
    above = tl.where((k > 0) | unrefined, 0.0, above)
    return best, (top - passed + 1) * _COARSE, above, target, unrefined


@triton.jit(do_not_specialize_on_alignment=["top_k", "top_p"])
def _fine_kernel(
    logits: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    part_best: tl.tensor,
    coarse: tl.tensor,
    mass: tl.tensor,
    count: tl.tensor,
    state: tl.tensor,
    vocab: tl.constexpr,
    size: tl.constexpr,
    lanes: tl.constexpr,
    parts: tl.constexpr,
    padded_parts: tl.constexpr,
) -> None:
    """Each part's counts, and for top-p alone sums, of the fine bins."""
    dependent.start()
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k, p = tl.load(top_k + row), tl.load(top_p + row)
    if (k > 0) | (p < 1):
        best, high, above, target, unrefined = _merge_coarse(
            part_best, coarse, row, k, p, parts, padded_parts
        )
        x = _load(logits + row * vocab, _tokens(part, size, lanes), vocab)
        place = tl.ceil(_fine_distance(x, high, unrefined)) - 1
        where = (row * parts + part) * _BINS
        if k > 0:
            place = tl.maximum(place, 0.0)  # what is above belongs to the first bin
        else:
            _store_sums(mass + where, place, tl.exp(x - best))
        _store_counts(count + where, place)
        if part == 0:
            # Another kernel may sum in another order: what was decided here is told to it.
            state += row * _STATE
            tl.store(state, best)
            tl.store(state + 1, target)
            tl.store(state + 2, high)
            tl.store(state + 3, unrefined.to(tl.float32))
            tl.store(state + 4, above)


@triton.jit
def _merge_fine(
    mass: tl.tensor,
    count: tl.tensor,
    state: tl.tensor,
    row: tl.tensor,
    part: tl.tensor,
    k: tl.tensor,
    parts: tl.constexpr,
    padded_parts: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Which bins are candidates.

    Returns:
        The first and the last bin, the sum of what is above them; how many candidates there are,
        and in parts before this one.
    """
    target, above = tl.load(state + row * _STATE + 1), tl.load(state + row * _STATE + 4)
    index, bin = tl.arange(0, padded_parts), tl.arange(0, _BINS)
    where = (row * parts + index)[:, None] * _BINS + bin[None, :]
    there = (index < parts)[:, None] & (bin >= 0)[None, :]
    counts = tl.load(count + where, mask=there, other=0.0)
    sums = counts
    if k <= 0:
        sums = tl.load(mass + where, mask=there, other=0.0)
    upto = above + tl.cumsum(tl.sum(sums, axis=0), axis=0)
    short = upto < target
    # Sums by finer bins may round to less than the target: then it is reached in the last of them.
    last = tl.minimum(tl.sum(short.to(tl.int32), axis=0), _BINS - 1)
    first = tl.where(k > 0, 0, last)
    above = tl.maximum(above, tl.max(tl.where(bin < first, upto, 0.0), axis=0))
    inside = (bin >= first) & (bin <= last)
    each = tl.sum(tl.where(inside[None, :], counts, 0.0), axis=1).to(tl.int32)
    before = tl.sum(tl.where(index < part, each, 0), axis=0)
    return first, last, above, tl.sum(each, axis=0), before


@triton.jit(do_not_specialize_on_alignment=["top_k", "top_p"])
def _gather_kernel(
    logits: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    mass: tl.tensor,
    count: tl.tensor,
    state: tl.tensor,
    values: tl.tensor,
    ids: tl.tensor,
    out: tl.tensor,
    vocab: tl.constexpr,
    size: tl.constexpr,
    parts: tl.constexpr,
    padded_parts: tl.constexpr,
    capacity: tl.constexpr,
) -> None:
    """Copy the candidates in the order of their ids; write the logits above them, -inf else."""
    dependent.start()
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k, p = tl.load(top_k + row), tl.load(top_p + row)
    token = _tokens(part, size, 4)  # what a thread reads at a time in a line
    x = tl.load(logits + row * vocab + token, mask=token < vocab, other=-_INFINITY)
    if (k > 0) | (p < 1):
        first, last, above, total, before = _merge_fine(
            mass, count, state, row, part, k, parts, padded_parts
        )
        x = tl.where(x == x, x, -_INFINITY)
        high = tl.load(state + row * _STATE + 2)
        unrefined = tl.load(state + row * _STATE + 3) > 0
        distance = _fine_distance(x, high, unrefined)
        is_above = (distance <= first) & (k <= 0)
        inside = (distance <= last + 1) & (is_above == 0)
        if total <= capacity:
            upto = tl.cumsum(inside.to(tl.int32), axis=1)
            of_line = tl.sum(inside.to(tl.int32), axis=1)
            first_of_line = before + tl.cumsum(of_line, axis=0) - of_line - 1
            order = first_of_line[:, None] + upto
            tl.store(values + row * capacity + order, x, mask=inside)
            tl.store(ids + row * capacity + order, token, mask=inside)
        if part == 0:
            tl.store(state + row * _STATE + 5, above)
            tl.store(state + row * _STATE + 6, total.to(tl.float32))
        x = tl.where(is_above, x, -_INFINITY)
    tl.store(out + row * vocab + token, x, mask=token < vocab)


@triton.jit
def _weight(x: tl.tensor, best: tl.tensor, counts: tl.constexpr) -> tl.tensor:
    """What a logit adds to the running sum; nothing if it is -inf."""
    weight = tl.zeros_like(x) + 1.0 if counts else tl.exp(x - best)
    return tl.where(x == -_INFINITY, 0.0, weight)


@triton.jit
def _range_of_keys(
    list: tl.tensor, count: tl.tensor, tile: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """The least and the greatest key of the list, -inf aside."""
    least = tl.full((tile,), 0xFFFFFFFF, tl.uint32)
    most = tl.full((tile,), 0, tl.uint32)
    for at in tl.range(0, count, tile):
        x = _load(list, at + tl.arange(0, tile), count)
        least = tl.where(x == -_INFINITY, least, tl.minimum(least, _key(x)))
        most = tl.where(x == -_INFINITY, most, tl.maximum(most, _key(x)))
    return tl.min(least, axis=0), tl.max(most, axis=0)


@triton.jit
def _find_key(
    list: tl.tensor,
    count: tl.tensor,
    best: tl.tensor,
    above: tl.tensor,
    target: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    tile: tl.constexpr,
    counts: tl.constexpr,
) -> tl.tensor:
    """The least key, of [low, high], such that `above` and the logits over it miss the target."""
    low, high = low.to(tl.int64), high.to(tl.int64)
    while low < high:
        quarter = (high - low) >> 2
        a, b, c = low + quarter, low + 2 * quarter, low + 3 * quarter
        sum_a = tl.zeros((tile,), tl.float32)
        sum_b = tl.zeros((tile,), tl.float32)
        sum_c = tl.zeros((tile,), tl.float32)
        for at in tl.range(0, count, tile):
            x = _load(list, at + tl.arange(0, tile), count)
            key, weight = _key(x), _weight(x, best, counts)
            sum_a += tl.where(key > a.to(tl.uint32), weight, 0.0)
            sum_b += tl.where(key > b.to(tl.uint32), weight, 0.0)
            sum_c += tl.where(key > c.to(tl.uint32), weight, 0.0)
        sums = tl.sum(tl.join(tl.join(sum_a, sum_b), tl.join(sum_c, sum_c)), axis=0)
        # The sum over c is there twice.
        enough = (above + sums >= target).to(tl.int32)
        passed = tl.sum(tl.sum(enough, axis=0), axis=0)
        low = tl.where(passed == 0, low, tl.where(passed == 1, a, tl.where(passed == 2, b, c)) + 1)
        high = tl.where(passed == 0, a, tl.where(passed == 1, b, tl.where(passed == 2, c, high)))
    return low.to(tl.uint32)


@triton.jit
def _sums_around(
    list: tl.tensor,
    count: tl.tensor,
    best: tl.tensor,
    key: tl.tensor,
    tile: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Of the logits over `key` how many and the sum of exp(logit - best); how many equal it."""
    over = tl.zeros((tile,), tl.float32)
    mass = tl.zeros((tile,), tl.float32)
    equal = tl.zeros((tile,), tl.float32)
    for at in tl.range(0, count, tile):
        x = _load(list, at + tl.arange(0, tile), count)
        is_over = _key(x) > key
        over += is_over.to(tl.float32)
        mass += tl.where(is_over, tl.exp(x - best), 0.0)
        equal += (_key(x) == key).to(tl.float32)
    return tl.sum(over, axis=0), tl.sum(mass, axis=0), tl.sum(equal, axis=0)


@triton.jit
def _choose(
    list: tl.tensor,
    count: tl.tensor,
    best: tl.tensor,
    above: tl.tensor,
    target: tl.tensor,
    k: tl.tensor,
    p: tl.tensor,
    tile: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The threshold's key, how many logits of the list equal it, and how many of them stay."""
    key, high = _range_of_keys(list, count, tile)
    equal, keep_equal = above * 0, above * 0
    if k > 0:
        key = _find_key(list, count, best, above, target, key, high, tile, True)
        over, mass, equal = _sums_around(list, count, best, key, tile)
        keep_equal = tl.minimum(target - over, equal)
        tied = keep_equal * tl.exp(_logit(key) - best)
        target = (p * (mass + tied)).to(tl.float32)
    if p < 1:
        found = _find_key(list, count, best, above, target, key, high, tile, False)
        _, mass, ties = _sums_around(list, count, best, found, tile)
        fit = tl.ceil((target - above - mass) / tl.exp(_logit(found) - best))
        fit = tl.maximum(tl.minimum(fit, ties), 1.0)
        # At top-k's own threshold it has cut already.
        keep_equal = tl.where((k > 0) & (found == key), tl.minimum(fit, keep_equal), fit)
        key, equal = found, ties
    return key, equal, keep_equal


@triton.jit
def _write(
    list: tl.tensor,
    ids: tl.tensor,
    out: tl.tensor,
    count: tl.tensor,
    is_copy: tl.tensor,
    key: tl.tensor,
    equal: tl.tensor,
    keep_equal: tl.tensor,
    tile: tl.constexpr,
) -> None:
    """Write the logits above `key` and the first `keep_equal` of those `equal` to it; else -inf."""
    seen = count * 0
    for at in tl.range(0, count, tile):
        i = at + tl.arange(0, tile)
        x = _load(list, i, count)
        keep = _key(x) >= key
        if keep_equal < equal:
            ties = (_key(x) == key).to(tl.int32)
            rank = seen + tl.cumsum(ties, axis=0) - ties
            keep = keep & ((ties == 0) | (rank < keep_equal))
            seen += tl.sum(ties, axis=0)
        token = tl.where(is_copy, tl.load(ids + i, mask=(i < count) & is_copy, other=0), i)
        tl.store(out + token, tl.where(keep, x, -_INFINITY), mask=i < count)


@triton.jit(do_not_specialize_on_alignment=["top_k", "top_p"])
def _select_kernel(
    logits: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    state: tl.tensor,
    values: tl.tensor,
    ids: tl.tensor,
    out: tl.tensor,
    vocab: tl.constexpr,
    capacity: tl.constexpr,
    tile: tl.constexpr,
) -> None:
    dependent.start()
    row = tl.program_id(0).to(tl.int64)
    k, p = tl.load(top_k + row), tl.load(top_p + row)
    if (k > 0) | (p < 1):
        state += row * _STATE
        best, target = tl.load(state), tl.load(state + 1)
        above, count = tl.load(state + 5), tl.load(state + 6).to(tl.int32)
        is_copy = count <= capacity
        list = values + row * capacity
        if count > capacity:
            list = logits + row * vocab
            count = count * 0 + vocab
            above = above * 0
        if count > 0:
            key, equal, keep_equal = _choose(list, count, best, above, target, k, p, tile)
            _write(
                list,
                ids + row * capacity,
                out + row * vocab,
                count,
                is_copy,
                key,
                equal,
                keep_equal,
                tile,
            )


def keep_top_k_top_p(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Keep the best tokens of each row; see `rose.kernels.sampling.keep_top_k_top_p`."""
    logits = logits.contiguous()
    rows, vocab = logits.shape
    out = torch.empty_like(logits)
    if not rows:
        return out
    parts = triton.cdiv(vocab, _PART)
    padded, grid = triton.next_power_of_2(parts), (rows, parts)
    device = logits.device
    part_best = torch.empty((rows, parts), dtype=torch.float32, device=device)
    coarse, mass, count = torch.empty(
        (3, rows, parts, _BINS.value), dtype=torch.float32, device=device
    )
    state = torch.empty((rows, _STATE.value), dtype=torch.float32, device=device)
    values = torch.empty((rows, _LIST), dtype=torch.float32, device=device)
    ids = torch.empty((rows, _LIST), dtype=torch.int32, device=device)
    row = (logits, top_k.contiguous(), top_p.contiguous())
    _coarse_kernel[grid](
        *row, part_best, coarse, vocab, _PART, _LANES, num_warps=_WARPS, **dependent.LAUNCH
    )
    _fine_kernel[grid](
        *row,
        part_best,
        coarse,
        mass,
        count,
        state,
        vocab,
        _PART,
        _LANES,
        parts,
        padded,
        num_warps=_WARPS,
        **dependent.LAUNCH,
    )
    _gather_kernel[grid](
        *row,
        mass,
        count,
        state,
        values,
        ids,
        out,
        vocab,
        _PART,
        parts,
        padded,
        _LIST,
        num_warps=_WARPS,
        **dependent.LAUNCH,
    )
    _select_kernel[(rows,)](
        *row, state, values, ids, out, vocab, _LIST, _TILE, num_warps=_WARPS, **dependent.LAUNCH
    )
    return out

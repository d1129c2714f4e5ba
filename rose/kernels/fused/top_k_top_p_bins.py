"""Top-k and top-p, launches 1 to 3: bins narrow each row to the candidates for its threshold.

`top_k_top_p` says what the launches do and what bounds them; `top_k_top_p_select` searches what
these leave.
"""

# mypy: disable-error-code="untyped-decorator"

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent

WARPS = 8
"""Of a program of each of the four launches."""

INFINITY = tl.constexpr(float("inf"))
_BINS = tl.constexpr(16)
_COARSE = tl.constexpr(2.0)
"""Width of a coarse bin; 16 of them span e^30 at least, and 201,088 * e^-30 is 2e-8."""

_EXACT = tl.constexpr(2.0**22)
"""Beyond so many coarse bins float32 may not tell neighbours apart: the grid is not used."""

STATE = tl.constexpr(8)
"""Floats a row that a launch leaves for later ones."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is left to be searched of each row; nothing is written for a row without a filter.

    Attributes:
        state: float32 [rows, STATE]. 0 the best logit, 1 the target, 2 the upper border of the
            coarse bin, 3 whether that bin is no use, 4 the sum above it, 5 the sum above the
            candidates, 6 how many these are.
        values: float32 [rows, capacity], the candidates in the order of their ids, unless there
            are more than `capacity`.
        ids: int32 [rows, capacity], their tokens.
    """

    state: Tensor
    values: Tensor
    ids: Tensor


@triton.jit
def load_logits(row: tl.tensor, token: tl.tensor, count: tl.tensor) -> tl.tensor:
    """Logits at `token`; -inf from `count` on and for NaN."""
    x = tl.load(row + token, mask=token < count, other=-INFINITY)
    return tl.where(x == x, x, -INFINITY)


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
        x = load_logits(logits + row * vocab, _tokens(part, size, lanes), vocab)
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
    return tl.where((x == -INFINITY), INFINITY, tl.where(unrefined, 1.0, distance))


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
    bests = tl.load(part_best + index, mask=there, other=-INFINITY)
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
        x = load_logits(logits + row * vocab, _tokens(part, size, lanes), vocab)
        place = tl.ceil(_fine_distance(x, high, unrefined)) - 1
        where = (row * parts + part) * _BINS
        if k > 0:
            place = tl.maximum(place, 0.0)  # what is above belongs to the first bin
        else:
            _store_sums(mass + where, place, tl.exp(x - best))
        _store_counts(count + where, place)
        if part == 0:
            # Another kernel may sum in another order: what was decided here is told to it.
            state += row * STATE
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
    target, above = tl.load(state + row * STATE + 1), tl.load(state + row * STATE + 4)
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
    x = tl.load(logits + row * vocab + token, mask=token < vocab, other=-INFINITY)
    if (k > 0) | (p < 1):
        first, last, above, total, before = _merge_fine(
            mass, count, state, row, part, k, parts, padded_parts
        )
        x = tl.where(x == x, x, -INFINITY)
        high = tl.load(state + row * STATE + 2)
        unrefined = tl.load(state + row * STATE + 3) > 0
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
            tl.store(state + row * STATE + 5, above)
            tl.store(state + row * STATE + 6, total.to(tl.float32))
        x = tl.where(is_above, x, -INFINITY)
    tl.store(out + row * vocab + token, x, mask=token < vocab)


def gather_candidates(
    logits: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    out: Tensor,
    *,
    part: int,
    lanes: int,
    capacity: int,
) -> Candidates:
    """Copy each row's candidates aside; write the rest of the row.

    Args:
        logits: float32 [rows, vocab], contiguous, of a row at least.
        top_k: integers [rows], contiguous; 0 or less: no limit.
        top_p: float64 [rows], contiguous; 1: no limit.
        out: like `logits`. Logits above the candidates are copied to it, and rows without a filter;
            all else is -inf.
        part: tokens of a program, a power of two.
        lanes: columns of a part, a power of two.
        capacity: the most candidates of a row that are copied.
    """
    rows, vocab = logits.shape
    parts = triton.cdiv(vocab, part)
    padded, grid = triton.next_power_of_2(parts), (rows, parts)
    device = logits.device
    part_best = torch.empty((rows, parts), dtype=torch.float32, device=device)
    coarse, mass, count = torch.empty(
        (3, rows, parts, _BINS.value), dtype=torch.float32, device=device
    )
    state = torch.empty((rows, STATE.value), dtype=torch.float32, device=device)
    values = torch.empty((rows, capacity), dtype=torch.float32, device=device)
    ids = torch.empty((rows, capacity), dtype=torch.int32, device=device)
    row = (logits, top_k, top_p)
    _coarse_kernel[grid](
        *row, part_best, coarse, vocab, part, lanes, num_warps=WARPS, **dependent.LAUNCH
    )
    _fine_kernel[grid](
        *row,
        part_best,
        coarse,
        mass,
        count,
        state,
        vocab,
        part,
        lanes,
        parts,
        padded,
        num_warps=WARPS,
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
        part,
        parts,
        padded,
        capacity,
        num_warps=WARPS,
        **dependent.LAUNCH,
    )
    return Candidates(state, values, ids)

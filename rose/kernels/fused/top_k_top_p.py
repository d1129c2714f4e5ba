"""Top-k and top-p of whole rows of logits, without sorting them.

What is kept is a prefix of the row's order: all logits above a threshold, and the first few of
those that equal it. One program a row finds the threshold as the logit at which a running sum from
the best one down, of ones (top-k) or of exp(logit - best) (top-p), reaches a target. Two readings
of the row bracket it to an eighth, each by 16 limits at once; the logits in the bracket, 1-2% of a
language model's, are copied aside; there it is found bit by bit, four bits a reading, by integers
in the order of floats.

The kept set is the reference's. Only where top-p's sum comes within 1e-6 of `top_p` may the order
of float32 summation decide otherwise.

What bounds it on an H200, vocabulary 201,088: the instructions of one SM a row, ~52 a token in the
two readings by limits, and L2 bandwidth in four others. Predicted 0.15 ms for either filter and
0.28 ms for both, for 1 to 132 rows alike; sorting takes ~0.15 ms for one row and 8 ms for 128.
"""

# mypy: disable-error-code="untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

_WARPS = 16
_TILE = 1024
"""Of loops with a sum for each of 16 limits, which take 32 registers a thread."""

_WIDE = 4096
"""Of other loops; as `_STAGES` tiles are in flight, enough to hide the latency of L2."""

_STAGES = tl.constexpr(4)

_INFINITY = tl.constexpr(float("inf"))
_LIMITS = tl.constexpr(16)
_COARSE = tl.constexpr(2.0)
"""Width of a bracket of the first reading, in units of the logit; 16 of them span e^32."""


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
def _load(row: tl.tensor, start: tl.tensor, count: tl.tensor, tile: tl.constexpr) -> tl.tensor:
    """A tile of the row; -inf from `count` on."""
    i = start + tl.arange(0, tile)
    return tl.load(row + i, mask=i < count, other=-_INFINITY)


@triton.jit
def _weight(x: tl.tensor, best: tl.tensor, counts: tl.constexpr) -> tl.tensor:
    """What a logit adds to the running sum; nothing if it is -inf."""
    weight = tl.zeros_like(x) + 1.0 if counts else tl.exp(x - best)
    return tl.where(x == -_INFINITY, 0.0, weight)


@triton.jit
def _best(row: tl.tensor, vocab: tl.constexpr, tile: tl.constexpr) -> tl.tensor:
    best = tl.full((tile,), -_INFINITY, tl.float32)
    for start in tl.range(0, vocab, tile, num_stages=_STAGES):
        best = tl.maximum(best, _load(row, start, vocab, tile))
    return tl.max(best, axis=0)


@triton.jit
def _mass_above(
    row: tl.tensor, key: tl.tensor, best: tl.tensor, vocab: tl.constexpr, tile: tl.constexpr
) -> tl.tensor:
    """Sum of exp(logit - best) of all logits above `key`."""
    total = tl.zeros((tile,), tl.float32)
    for start in tl.range(0, vocab, tile, num_stages=_STAGES):
        x = _load(row, start, vocab, tile)
        total += tl.where(_key(x) > key, _weight(x, best, False), 0.0)
    return tl.sum(total, axis=0)


@triton.jit
def _narrow(
    row: tl.tensor,
    best: tl.tensor,
    low: tl.tensor,
    width: tl.constexpr,
    sum_low: tl.tensor,
    target: tl.tensor,
    vocab: tl.constexpr,
    tile: tl.constexpr,
    counts: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Bracket the threshold among 16 neighbours of `width`, by distance from the best logit.

    Returns:
        Its bounds, [low, high), and the sum of all logits nearer than low, which is below target.
    """
    limit = low + (1 + tl.arange(0, _LIMITS)) * width
    sums = tl.zeros((_LIMITS, tile), tl.float32)
    for start in tl.range(0, vocab, tile, num_stages=_STAGES):
        x = _load(row, start, vocab, tile)
        near = (best - x)[None, :] < limit[:, None]
        sums += tl.where(near, _weight(x, best, counts)[None, :], 0.0)
    total = tl.sum(sums, axis=1)
    short = total < target
    passed = tl.sum(short.to(tl.int32), axis=0)
    sum_low = tl.maximum(sum_low, tl.max(tl.where(short, total, 0.0), axis=0))
    low += passed * width
    return low, tl.where(passed == _LIMITS, _INFINITY, low + width), sum_low


@triton.jit
def _copy_bracket(
    row: tl.tensor,
    scratch: tl.tensor,
    best: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    vocab: tl.constexpr,
    tile: tl.constexpr,
) -> tl.tensor:
    """Copy the logits whose distance from the best is in [low, high); how many they are."""
    count = low.to(tl.int32) * 0
    for start in tl.range(0, vocab, tile, num_stages=_STAGES):
        x = _load(row, start, vocab, tile)
        inside = (best - x >= low) & (best - x < high)
        place = count + tl.cumsum(inside.to(tl.int32), axis=0) - 1
        tl.store(scratch + place, x, mask=inside)
        count += tl.sum(inside.to(tl.int32), axis=0)
    tl.debug_barrier()  # other threads read what was stored
    return count


@triton.jit
def _find_key(
    scratch: tl.tensor,
    count: tl.tensor,
    best: tl.tensor,
    sum_low: tl.tensor,
    target: tl.tensor,
    tile: tl.constexpr,
    counts: tl.constexpr,
) -> tl.tensor:
    """The least key such that `sum_low` and the logits above it sum to less than `target`."""
    digit = tl.arange(0, _LIMITS).to(tl.uint32)
    key = count.to(tl.uint32) * 0
    for level in range(8):
        shift = (28 - 4 * level + tl.zeros_like(digit).to(tl.int32)).to(tl.uint32)
        limit = key + (digit << shift) + ((digit * 0 + 1) << shift) - 1
        sums = tl.zeros((_LIMITS, tile), tl.float32)
        for start in tl.range(0, count, tile):
            x = _load(scratch, start, count, tile)
            above = _key(x)[None, :] > limit[:, None]
            sums += tl.where(above, _weight(x, best, counts)[None, :], 0.0)
        enough = sum_low + tl.sum(sums, axis=1) >= target
        # Sums fall as limits rise: the first limit that falls short is the digit.
        place = tl.sum(enough.to(tl.int32), axis=0)
        key += tl.sum(tl.where(digit.to(tl.int32) == place, digit << shift, 0), axis=0).to(
            tl.uint32
        )
    return key


@triton.jit
def _threshold(
    row: tl.tensor,
    scratch: tl.tensor,
    best: tl.tensor,
    target: tl.tensor,
    vocab: tl.constexpr,
    tile: tl.constexpr,
    wide: tl.constexpr,
    counts: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Where the sum from the best logit down reaches `target`.

    Returns:
        The key of that logit, the sum of all logits above it, and how many equal it.
    """
    zero = target * 0
    low, high, sum_low = _narrow(row, best, zero, _COARSE, zero, target, vocab, tile, counts)
    low, high, sum_low = _narrow(row, best, low, _COARSE / 16, sum_low, target, vocab, tile, counts)
    count = _copy_bracket(row, scratch, best, low, high, vocab, wide)
    key = _find_key(scratch, count, best, sum_low, target, tile, counts)
    # In another order the bracket's sum may round to less than the target: then it is its last.
    least = tl.full((tile,), 0xFFFFFFFF, tl.uint32)
    for start in tl.range(0, count, tile):
        inside = start + tl.arange(0, tile) < count
        least = tl.where(inside, tl.minimum(least, _key(_load(scratch, start, count, tile))), least)
    key = tl.where(count > 0, tl.maximum(key, tl.min(least, axis=0)), key)
    total, equal = tl.zeros((tile,), tl.float32), tl.zeros((tile,), tl.int32)
    for start in tl.range(0, count, tile):
        x = _load(scratch, start, count, tile)
        total += tl.where(_key(x) > key, _weight(x, best, counts), 0.0)
        equal += (_key(x) == key).to(tl.int32)
    tl.debug_barrier()  # the next search overwrites what is read here
    return key, sum_low + tl.sum(total, axis=0), tl.sum(equal, axis=0)


@triton.jit
def _write(
    row: tl.tensor,
    out: tl.tensor,
    key: tl.tensor,
    keep_equal: tl.tensor,
    equal: tl.tensor,
    vocab: tl.constexpr,
    tile: tl.constexpr,
) -> None:
    """Copy the logits above `key` and the first `keep_equal` of those `equal` to it; else -inf."""
    seen = equal * 0
    for start in tl.range(0, vocab, tile, num_stages=_STAGES):
        i = start + tl.arange(0, tile)
        x = _load(row, start, vocab, tile)
        keep = _key(x) >= key
        if keep_equal < equal:
            ties = (_key(x) == key).to(tl.int32)
            rank = seen + tl.cumsum(ties, axis=0) - ties
            keep = keep & ((ties == 0) | (rank < keep_equal))
            seen += tl.sum(ties, axis=0)
        tl.store(out + i, tl.where(keep, x, -_INFINITY), mask=i < vocab)


@triton.jit(do_not_specialize_on_alignment=["top_k", "top_p"])
def _top_k_top_p_kernel(
    logits: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    scratch: tl.tensor,
    out: tl.tensor,
    vocab: tl.constexpr,
    tile: tl.constexpr,
    wide: tl.constexpr,
) -> None:
    place = tl.program_id(0).to(tl.int64)
    row, scratch, out = logits + place * vocab, scratch + place * vocab, out + place * vocab
    k, p = tl.load(top_k + place), tl.load(top_p + place)
    best = _best(row, vocab, wide)
    key, keep_equal, equal = k.to(tl.uint32) * 0, k.to(tl.int32) * 0, k.to(tl.int32) * 0
    if k > 0:
        ones = k.to(tl.float32)
        key, above, equal = _threshold(row, scratch, best, ones, vocab, tile, wide, True)
        keep_equal = tl.minimum(k - above.to(tl.int64), equal).to(tl.int32)
    if p < 1:
        tied = tl.where(keep_equal > 0, keep_equal * tl.exp(_logit(key) - best), 0.0)
        target = (p * (_mass_above(row, key, best, vocab, wide) + tied)).to(tl.float32)
        found, above, ties = _threshold(row, scratch, best, target, vocab, tile, wide, False)
        fit = tl.ceil((target - above) / tl.exp(_logit(found) - best))
        fit = tl.maximum(tl.minimum(fit, ties.to(tl.float32)), 1.0).to(tl.int32)
        if found > key:  # top-p cuts deeper
            key, keep_equal, equal = found, fit, ties
        elif found == key:
            keep_equal = tl.minimum(fit, keep_equal)
    _write(row, out, key, keep_equal, equal, vocab, wide)


def keep_top_k_top_p(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Keep the best tokens of each row; see `rose.kernels.sampling.keep_top_k_top_p`."""
    logits = logits.contiguous()
    rows, vocab_size = logits.shape
    out = torch.empty_like(logits)
    if not rows:
        return out
    scratch = torch.empty_like(logits)
    arguments = (logits, top_k.contiguous(), top_p.contiguous(), scratch, out)
    _top_k_top_p_kernel[(rows,)](*arguments, vocab_size, _TILE, _WIDE, num_warps=_WARPS)
    return out

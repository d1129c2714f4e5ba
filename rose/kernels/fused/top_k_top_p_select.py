"""Top-k and top-p, launch 4: a program a row finds the threshold among the candidates.

The search is by integers in the order of floats, in quarters of what is left of their range.
`top_k_top_p` says what the launches do; `top_k_top_p_bins` copies the candidates.
"""

# mypy: disable-error-code="untyped-decorator"

import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent
from rose.kernels.fused.top_k_top_p_bins import INFINITY, STATE, WARPS, Candidates, load_logits


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
def _weight(x: tl.tensor, best: tl.tensor, counts: tl.constexpr) -> tl.tensor:
    """What a logit adds to the running sum; nothing if it is -inf."""
    weight = tl.zeros_like(x) + 1.0 if counts else tl.exp(x - best)
    return tl.where(x == -INFINITY, 0.0, weight)


@triton.jit
def _range_of_keys(
    list: tl.tensor, count: tl.tensor, tile: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """The least and the greatest key of the list, -inf aside."""
    least = tl.full((tile,), 0xFFFFFFFF, tl.uint32)
    most = tl.full((tile,), 0, tl.uint32)
    for at in tl.range(0, count, tile):
        x = load_logits(list, at + tl.arange(0, tile), count)
        least = tl.where(x == -INFINITY, least, tl.minimum(least, _key(x)))
        most = tl.where(x == -INFINITY, most, tl.maximum(most, _key(x)))
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
            x = load_logits(list, at + tl.arange(0, tile), count)
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
        x = load_logits(list, at + tl.arange(0, tile), count)
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
        x = load_logits(list, i, count)
        keep = _key(x) >= key
        if keep_equal < equal:
            ties = (_key(x) == key).to(tl.int32)
            rank = seen + tl.cumsum(ties, axis=0) - ties
            keep = keep & ((ties == 0) | (rank < keep_equal))
            seen += tl.sum(ties, axis=0)
        token = tl.where(is_copy, tl.load(ids + i, mask=(i < count) & is_copy, other=0), i)
        tl.store(out + token, tl.where(keep, x, -INFINITY), mask=i < count)


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
        state += row * STATE
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


def select(
    logits: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    candidates: Candidates,
    out: Tensor,
    *,
    tile: int,
) -> None:
    """Write to `out` what is kept of the candidates, -inf for the others.

    Args:
        logits: float32 [rows, vocab], contiguous; searched where candidates were not copied.
        top_k: integers [rows], contiguous; 0 or less: no limit.
        top_p: float64 [rows], contiguous; 1: no limit.
        candidates: of these rows.
        out: like `logits`.
        tile: candidates read at a time, a power of two.
    """
    rows, vocab = logits.shape
    _select_kernel[(rows,)](
        logits,
        top_k,
        top_p,
        candidates.state,
        candidates.values,
        candidates.ids,
        out,
        vocab,
        candidates.values.shape[1],
        tile,
        num_warps=WARPS,
        **dependent.LAUNCH,
    )

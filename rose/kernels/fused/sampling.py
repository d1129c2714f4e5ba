"""Sampling from float32 logits: the draw, the greedy choice, log-probabilities of given tokens.

A row is cut into parts of `TOKENS` tokens, by the vocabulary's size alone, so that a row's result
never depends on its batch. `sample` is three launches: the best logit of each part, the best noised
logit of each part, the best part. Noise needs the row's best logit first, since the reference
scales from it down; the second reading of a small batch comes from the L2 cache.

What bounds it on an H200, vocabulary 201,088. Batch 1: launches, 3 x ~2 us in a graph; 99 programs
read 0.8 MB. Batch 128: the first pass reads 103 MB, 25 us at 4.2 TB/s; the second computes ~80
instructions a token (Philox 15, the division 8, two logarithms 34), ~90 us of vector ALU, more than
three times its reading. `sample_greedy` is the first pass and the merge. `token_logprobs` reads
once: 25 us at batch 128.
"""

# mypy: disable-error-code="untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent
from rose.kernels.fused.interpret import INTERPRETED

TOKENS = 2048
"""Tokens of a part: 99 programs a row of 201,088, so that one row nearly fills the chip."""

_WARPS = 4
_NOBODY = tl.constexpr(2**31 - 1)
_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def _load_part(row_logits: tl.tensor, token: tl.tensor, vocab: tl.constexpr) -> tl.tensor:
    """Logits at `token`; -inf beyond the vocabulary and for NaN, so that neither ever wins."""
    x = tl.load(row_logits + token, mask=token < vocab, other=-float("inf"))
    return tl.where(x == x, x, -float("inf"))


@triton.jit
def _store_best(
    value: tl.tensor,
    token: tl.tensor,
    best_value: tl.tensor,
    best_token: tl.tensor,
    where: tl.tensor,
) -> None:
    """The greatest value and its token, the lowest if several have it. No NaN may come.

    Tokens beyond the vocabulary come after all others and are -inf: they never win.
    """
    best = tl.max(tl.ravel(value), axis=0)
    mine = tl.where(value == best, token, _NOBODY)
    tl.store(best_value + where, best)
    tl.store(best_token + where, tl.min(tl.ravel(mine), axis=0))


@triton.jit
def _sample_best_kernel(
    logits: tl.tensor,
    best_value: tl.tensor,
    best_token: tl.tensor,
    vocab: tl.constexpr,
    tokens: tl.constexpr,
) -> None:
    dependent.start()
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = part * tokens + tl.arange(0, tokens)
    x = _load_part(logits + row * vocab, token, vocab)
    where = row * tl.num_programs(1) + part
    _store_best(x, token, best_value, best_token, where)


@triton.jit
def _two_thirds_exponent(x: tl.tensor) -> tl.tensor:
    """Of positive normal numbers, times a power of two in [2/3, 4/3): its exponent, in place."""
    return (x.to(tl.int32, bitcast=True) - 0x3F2AAAAB) & -0x800000


@triton.jit
def _log_from(exponent: tl.tensor, f: tl.tensor) -> tl.tensor:
    """log(2 ** e * (1 + f)), f in [-1/3, 1/3), of e in place of a float's exponent.

    The polynomial is (log1p(f) - f) / f^2, fitted for the least greatest relative error of the
    logarithm, 2^-27 before rounding.
    """
    p = f * -0.13311606645584106 + 0.1400623619556427
    p = p * f - 0.12078181654214859
    p = p * f + 0.14000822603702545
    p = p * f - 0.16689501702785492
    p = p * f + 0.20010770857334137
    p = p * f - 0.24999506771564484
    p = p * f + 0.3333320915699005
    p = p * f - 0.5
    return exponent.to(tl.float32) * 8.262958405176314e-08 + ((p * f) * f + f)


@triton.jit
def gumbel(word: tl.tensor) -> tl.tensor:
    """Random 32-bit words (uint32) to standard Gumbel variates, float32.

    The uniform number has the bits of `rose.kernels.sampling.gumbel_noise`; the logarithms may be
    off by units in the last place. They are of normal numbers, so they need no special cases, and
    the first is log1p, since 1 - u only chooses its power of two.
    """
    u = tl.minimum(word.to(tl.float32) * 2.0**-32 + 2.0**-33, 1 - 2.0**-24)
    exponent = _two_thirds_exponent(1 - u)
    scale = (0x3F800000 - exponent).to(tl.float32, bitcast=True)
    exponential = -_log_from(exponent, scale - 1 - u * scale)
    exponent = _two_thirds_exponent(exponential)
    fraction = (exponential.to(tl.int32, bitcast=True) - exponent).to(tl.float32, bitcast=True)
    return -_log_from(exponent, fraction - 1)


@triton.jit
def _philox_round(
    c0: tl.tensor, c1: tl.tensor, c2: tl.tensor, c3: tl.tensor, k0: tl.tensor, k1: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    # Whole products: one instruction each, where the high and the low half are two.
    a, b = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
    high_a, high_b = (a >> 32).to(tl.uint32), (b >> 32).to(tl.uint32)
    return high_b ^ c1 ^ k0, b.to(tl.uint32), high_a ^ c3 ^ k1, a.to(tl.uint32)


@triton.jit
def random_words(
    block: tl.tensor, position: tl.tensor, low: tl.tensor, high: tl.tensor
) -> tl.tensor:
    """Philox words of blocks (int32 [n]) of four tokens: uint32 [n, 4], token order."""
    w0 = block.to(tl.uint32)
    w2 = w0 * 0
    w1, w3 = w2 + position.to(tl.uint32), w2
    k0, k1 = low.to(tl.uint32), high.to(tl.uint32)
    for _ in tl.static_range(10):
        w0, w1, w2, w3 = _philox_round(w0, w1, w2, w3, k0, k1)
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (block.shape[0], 4))


@triton.jit
def _scaled(distance: tl.tensor, heat: tl.tensor) -> tl.tensor:
    """Distances from the best logit (at most 0) over the temperature, rounded as a division is.

    Of many numbers by one: its reciprocal and two corrections (Markstein 1990).
    """
    if _INTERPRETED:  # has no fused multiply-add
        return tl.div_rn(distance, heat + tl.zeros_like(distance))
    if (heat > 2.0**-60) & (heat < 2.0**60):
        inverse = tl.div_rn(1.0, heat)
        quotient = distance * inverse
        rest = tl.fma(-quotient, heat, distance)
        better = tl.fma(rest, inverse, quotient)
        rest = tl.fma(-better, heat, distance)
        better = tl.fma(rest, inverse, better)
        # Corrections of infinity are no numbers; of what is as far, no matter.
        result = tl.where(distance > -(2.0**60), better, quotient)
    else:
        result = tl.div_rn(distance, heat + tl.zeros_like(distance))
    return result


# Slices of one upload, aligned by chance: not worth a compilation each.
@triton.jit(
    do_not_specialize=["rows"],
    do_not_specialize_on_alignment=["keys", "positions", "temperature", "min_p"],
)
def _sample_draw_kernel(
    logits: tl.tensor,
    part_best: tl.tensor,
    keys: tl.tensor,
    positions: tl.tensor,
    temperature: tl.tensor,
    min_p: tl.tensor,
    best_value: tl.tensor,
    best_token: tl.tensor,
    rows: tl.tensor,
    vocab: tl.constexpr,
    tokens: tl.constexpr,
    parts: tl.constexpr,
    padded_parts: tl.constexpr,
) -> None:
    dependent.start()
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    block = part * (tokens // 4) + tl.arange(0, tokens // 4)
    token = block[:, None] * 4 + tl.arange(0, 4)[None, :]
    value = _load_part(logits + row * vocab, token, vocab)
    heat = tl.load(temperature + row).to(tl.float32)
    if heat > 0:
        index = tl.arange(0, padded_parts)
        bests = tl.load(part_best + row * parts + index, mask=index < parts, other=-float("inf"))
        best = tl.max(bests, axis=0)
        # The best is 0 by definition, also where it is infinite.
        scaled = tl.where(value == best, 0.0, _scaled(value - best, heat))
        least = tl.log(tl.load(min_p + row).to(tl.float32))
        scaled = tl.where(scaled >= least, scaled, -float("inf"))
        low, high = tl.load(keys + row), tl.load(keys + rows + row)
        word = random_words(block, tl.load(positions + row), low, high)
        value = tl.where(token < vocab, scaled + gumbel(word), -float("inf"))
    where = row * parts + part
    _store_best(value, token, best_value, best_token, where)


@triton.jit
def _sample_merge_kernel(
    best_value: tl.tensor,
    best_token: tl.tensor,
    out: tl.tensor,
    parts: tl.constexpr,
    padded_parts: tl.constexpr,
) -> None:
    dependent.start()
    row = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, padded_parts)
    value = tl.load(best_value + row * parts + index, mask=index < parts, other=-float("inf"))
    token = tl.load(best_token + row * parts + index, mask=index < parts, other=_NOBODY)
    best = tl.max(value, axis=0)
    tl.store(out + row, tl.min(tl.where(value == best, token, _NOBODY), axis=0).to(tl.int64))


@triton.jit
def _logprob_parts_kernel(
    logits: tl.tensor,
    chosen: tl.tensor,
    part_max: tl.tensor,
    part_sum: tl.tensor,
    part_above: tl.tensor,
    vocab: tl.constexpr,
    tokens: tl.constexpr,
) -> None:
    dependent.start()
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = part * tokens + tl.arange(0, tokens)
    x = _load_part(logits + row * vocab, token, vocab)
    own = tl.load(logits + row * vocab + tl.load(chosen + row))
    best = tl.max(x, axis=0)
    # A part of nothing but -inf has no share.
    share = tl.where(x == -float("inf"), 0.0, tl.exp(x - best))
    where = row * tl.num_programs(1) + part
    tl.store(part_max + where, best)
    tl.store(part_sum + where, tl.sum(share, axis=0))
    tl.store(part_above + where, tl.sum((x > own).to(tl.int32), axis=0))


@triton.jit
def _logprob_kernel(
    logits: tl.tensor,
    chosen: tl.tensor,
    part_max: tl.tensor,
    part_sum: tl.tensor,
    part_above: tl.tensor,
    logprob: tl.tensor,
    normalizer: tl.tensor,
    rank: tl.tensor,
    vocab: tl.constexpr,
    parts: tl.constexpr,
    padded_parts: tl.constexpr,
) -> None:
    dependent.start()
    row = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, padded_parts)
    there, where = index < parts, row * parts + index
    maxima = tl.load(part_max + where, mask=there, other=-float("inf"))
    sums = tl.load(part_sum + where, mask=there, other=0.0)
    best = tl.max(maxima, axis=0)
    total = tl.sum(tl.where(sums > 0, sums * tl.exp(maxima - best), 0.0), axis=0)
    normal = best + tl.log(total)
    own = tl.load(logits + row * vocab + tl.load(chosen + row))
    tl.store(normalizer + row, normal)
    tl.store(logprob + row, own - normal)
    above = tl.load(part_above + where, mask=there, other=0)
    tl.store(rank + row, 1 + tl.sum(above, axis=0).to(tl.int64))


def _parts(vocab_size: int) -> tuple[int, int]:
    """Parts of a row, and the power of two that holds as many."""
    parts = triton.cdiv(vocab_size, TOKENS)
    return parts, triton.next_power_of_2(parts)


def _partials(logits: Tensor) -> tuple[Tensor, Tensor]:
    """A float32 and an int32 for each part of each row."""
    shape = (logits.shape[0], _parts(logits.shape[1])[0])
    return (
        torch.empty(shape, dtype=torch.float32, device=logits.device),
        torch.empty(shape, dtype=torch.int32, device=logits.device),
    )


def _best_of_parts(logits: Tensor) -> tuple[Tensor, Tensor]:
    rows, vocab_size = logits.shape
    parts, _ = _parts(vocab_size)
    value, token = _partials(logits)
    _sample_best_kernel[(rows, parts)](
        logits, value, token, vocab_size, TOKENS, num_warps=_WARPS, **dependent.LAUNCH
    )
    return value, token


def _merge(value: Tensor, token: Tensor, padded: int) -> Tensor:
    rows, parts = value.shape
    out = torch.empty(rows, dtype=torch.int64, device=value.device)
    _sample_merge_kernel[(rows,)](value, token, out, parts, padded, num_warps=1, **dependent.LAUNCH)
    return out


def sample_greedy(logits: Tensor) -> Tensor:
    """The best token of each row of float32 [rows, vocabulary] logits: int64 [rows]."""
    logits = logits.contiguous()
    if not logits.shape[0]:
        return torch.empty(0, dtype=torch.int64, device=logits.device)
    _, padded = _parts(logits.shape[1])
    return _merge(*_best_of_parts(logits), padded)


def sample(
    logits: Tensor, keys: Tensor, positions: Tensor, temperature: Tensor, min_p: Tensor
) -> Tensor:
    """Draw a token a row; see `rose.kernels.sampling.sample`.

    NaN never wins, and a row without any finite logit still yields a token of the vocabulary.
    """
    logits = logits.contiguous()
    rows, vocab_size = logits.shape
    if not rows:
        return torch.empty(0, dtype=torch.int64, device=logits.device)
    parts, padded = _parts(vocab_size)
    part_best, _ = _best_of_parts(logits)
    value, token = _partials(logits)
    _sample_draw_kernel[(rows, parts)](
        logits,
        part_best,
        keys.contiguous(),
        positions.contiguous(),
        temperature.contiguous(),
        min_p.contiguous(),
        value,
        token,
        rows,
        vocab_size,
        TOKENS,
        parts,
        padded,
        num_warps=_WARPS,
        **dependent.LAUNCH,
    )
    return _merge(value, token, padded)


def normalized(logits: Tensor, token: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What `rose.kernels.sampling.token_logprobs` tells of the token itself.

    Args:
        logits: float32 [rows, vocabulary].
        token: int64 [rows].

    Returns:
        The token's log-probability and the logarithm of the row's sum of exponentials, float32
        [rows], and the token's rank, int64 [rows].
    """
    logits = logits.contiguous()
    rows, vocab_size = logits.shape
    logprob = torch.empty(rows, dtype=torch.float32, device=logits.device)
    normalizer = torch.empty(rows, dtype=torch.float32, device=logits.device)
    rank = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if not rows:
        return logprob, normalizer, rank
    parts, padded = _parts(vocab_size)
    maxima, above = _partials(logits)
    sums = torch.empty((rows, parts), dtype=torch.float32, device=logits.device)
    partial = (token.contiguous(), maxima, sums, above)
    _logprob_parts_kernel[(rows, parts)](
        logits, *partial, vocab_size, TOKENS, num_warps=_WARPS, **dependent.LAUNCH
    )
    out = (logprob, normalizer, rank)
    _logprob_kernel[(rows,)](
        logits, *partial, *out, vocab_size, parts, padded, num_warps=1, **dependent.LAUNCH
    )
    return out

"""Sampling on the device: penalties, filters, counter-based randomness, log-probabilities.

Each row is independent of the others in its batch. Nothing here waits for the device, but `sample`
where no fused kernel serves it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rose.kernels.dispatch import use_triton

_MASK = 0xFFFFFFFF
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
_PHILOX_ROUNDS = 10


def philox4x32(counter: Tensor, key: Tensor) -> Tensor:
    """Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

    A bijection of the counter for each key, so any word of the stream costs the same and needs no
    state. 32-bit words travel in int64, whose product wraps to the right 64 bits.

    Args:
        counter: int64 [4, ...], words in [0, 2**32).
        key: int64 [2, ...], the same; broadcast against the counter.

    Returns:
        int64 [4, ...], words in [0, 2**32).
    """
    dims = [1] * (counter.dim() - 1)
    multipliers = _constants(_PHILOX_MULTIPLIERS, counter.device).view(2, *dims)
    weyl = _constants(_PHILOX_WEYL, counter.device).view(2, *dims)
    even, odd = counter[0::2], counter[1::2]
    for _ in range(_PHILOX_ROUNDS):
        product = even * multipliers
        high = (product >> 32) & _MASK
        even = high.flip(0) ^ odd ^ key
        odd = product.bitwise_and_(_MASK).flip(0)
        key = (key + weyl) & _MASK
    return torch.stack((even, odd), dim=1).flatten(0, 1)


_constant_cache: dict[tuple[tuple[int, int], torch.device], Tensor] = {}


def _constants(values: tuple[int, int], device: torch.device) -> Tensor:
    # Made once a device: a tensor from Python numbers is a copy that waits for the device.
    found = _constant_cache.get((values, device))
    if found is None:
        with torch.inference_mode(False):
            found = torch.tensor(values, dtype=torch.int64, device=device)
        _constant_cache[values, device] = found
    return found


def gumbel_noise(keys: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """Standard Gumbel variates, each a function of (key, position, token id) alone.

    Args:
        keys: int64 [2, rows], the low and the high 32 bits of each row's seed.
        positions: int64 [rows], where the token to sample will stand.
        vocab_size: variates a row.

    Returns:
        float32 [rows, vocab_size], finite.
    """
    rows = positions.shape[0]
    blocks = (vocab_size + 3) // 4
    counter = torch.zeros((4, rows, blocks), dtype=torch.int64, device=positions.device)
    counter[0] = torch.arange(blocks, device=positions.device)
    counter[1] = positions[:, None]
    words = philox4x32(counter, keys[:, :, None])
    bits = words.permute(1, 2, 0).reshape(rows, 4 * blocks)[:, :vocab_size]
    # Where the noise is large (the winners) u is near 0, and there float32 has bits to spare. Near
    # 1 it rounds; the clamp keeps the noise finite.
    uniform = (bits.float() + 0.5).mul_(2.0**-32).clamp_(max=1 - 2.0**-24)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def penalize(
    logits: Tensor,
    history: Tensor,
    prompt_lengths: Tensor,
    lengths: Tensor,
    *,
    repetition: Tensor,
    presence: Tensor,
    frequency: Tensor,
) -> Tensor:
    """Lower the logits of tokens that were seen already.

    Args:
        logits: float32 [rows, vocabulary].
        history: integer [rows, columns], the tokens of each row, prompt first; columns from the
            row's length on may hold anything.
        prompt_lengths: int64 [rows], where the output begins.
        lengths: int64 [rows], prompt and output.
        repetition: float32 [rows], divides positive and multiplies negative logits of all tokens
            seen (Keskar et al. 2019).
        presence: float32 [rows], subtracted if the token stands in the output.
        frequency: float32 [rows], subtracted for each time that it does.

    Returns:
        float32 [rows, vocabulary], a new tensor.
    """
    rows, vocab_size = logits.shape
    column = torch.arange(history.shape[1], device=logits.device)
    output = (column >= prompt_lengths[:, None]) & (column < lengths[:, None])
    prompt = column < prompt_lengths[:, None]
    # Columns that do not count fall into one bin beyond the vocabulary.
    trash = torch.full_like(history, vocab_size, dtype=torch.int64)
    one = torch.ones((), dtype=torch.int32, device=logits.device).expand(history.shape)
    counts = torch.zeros((2, rows, vocab_size + 1), dtype=torch.int32, device=logits.device)
    counts[0].scatter_add_(1, torch.where(output, history.long(), trash), one)
    counts[1].scatter_add_(1, torch.where(prompt, history.long(), trash), one)
    in_output, in_prompt = counts[0, :, :vocab_size], counts[1, :, :vocab_size]
    seen = (in_output + in_prompt) > 0
    factor = repetition[:, None]
    repeated = torch.where(logits > 0, logits / factor, logits * factor)
    penalized = torch.where(seen, repeated, logits)
    penalized -= frequency[:, None] * in_output
    penalized -= presence[:, None] * (in_output > 0)
    return penalized


def keep_top_k_top_p(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Keep the best tokens; equal logits rank by token id.

    Args:
        logits: float32 [rows, vocabulary], after temperature.
        top_k: int64 [rows], how many to keep; 0 keeps all.
        top_p: float64 [rows], keep the fewest of these whose probability reaches it; 1 keeps all.

    Returns:
        float32 [rows, vocabulary], -inf where a token was dropped.
    """
    if use_triton("sampling", logits):
        from rose.kernels.fused import top_k_top_p as fused

        return fused.keep_top_k_top_p(logits, top_k, top_p)
    ordered, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    keep = (rank < top_k[:, None]) | (top_k[:, None] == 0)
    probability = torch.softmax(ordered.masked_fill(~keep, -torch.inf), dim=-1).double()
    before = torch.cumsum(probability, dim=-1) - probability
    keep &= (before < top_p[:, None]) | (top_p[:, None] >= 1)
    mask = torch.empty_like(keep).scatter_(1, ids, keep)
    return logits.masked_fill(~mask, -torch.inf)


def keep_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Drop tokens less likely than `min_p` (float32 [rows]) times the best one; 0 keeps all."""
    least = logits.amax(dim=-1, keepdim=True) + min_p.log()[:, None]
    return logits.masked_fill(logits < least, -torch.inf)


def scale_by_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Divide by `temperature` (float32 [rows], above 0), from the best logit down.

    A tiny temperature then gives -inf for the others, never inf - inf.
    """
    return (logits - logits.amax(dim=-1, keepdim=True)) / temperature[:, None]


def sample_greedy(logits: Tensor) -> Tensor:
    """The best token of each row of float32 [rows, vocabulary] logits, equal ones by id.

    Returns:
        int64 [rows].
    """
    if use_triton("sampling", logits):
        from rose.kernels.fused import sampling as fused

        return fused.sample_greedy(logits)
    return logits.argmax(dim=-1)


def sample(
    logits: Tensor, keys: Tensor, positions: Tensor, temperature: Tensor, min_p: Tensor
) -> Tensor:
    """Draw a token a row from the softmax of its logits over its temperature.

    It is the token with the greatest logit plus Gumbel noise (Gumbel 1954); equal ones go by id.

    Args:
        logits: float32 [rows, vocabulary], left as they are; -inf where a filter dropped a token.
        keys: int64 [2, rows], see `gumbel_noise`.
        positions: int64 [rows], where the token will stand.
        temperature: float64 [rows]; a row of 0 gets its best token.
        min_p: float64 [rows], see `keep_min_p`.

    Returns:
        int64 [rows].
    """
    if use_triton("sampling", logits):
        from rose.kernels.fused import sampling as fused

        return fused.sample(logits, keys, positions, temperature, min_p)
    random = temperature.nonzero().squeeze(1)
    if len(random) == len(logits):
        return _draw(logits, keys, positions, temperature, min_p)
    parts = (logits, positions, temperature, min_p)
    some, *others = (part.index_select(0, random) for part in parts)
    drawn = _draw(some, keys.index_select(1, random), *others)
    return logits.argmax(dim=-1).index_copy_(0, random, drawn)


def _draw(
    logits: Tensor, keys: Tensor, positions: Tensor, temperature: Tensor, min_p: Tensor
) -> Tensor:
    """`sample` of rows of which none is greedy."""
    scaled = scale_by_temperature(logits, temperature.float())
    if min_p.any():
        scaled = keep_min_p(scaled, min_p.float())
    noise = gumbel_noise(keys, positions, logits.shape[1])
    return scaled.add_(noise).argmax(dim=-1)


@dataclass(frozen=True, slots=True)
class LogprobTensors:
    """Log-probabilities of one token a row, and of the best ones.

    Attributes:
        token: int64 [rows].
        logprob: float32 [rows].
        rank: int64 [rows], 1 for a token that none exceeds.
        top_token: int64 [rows, n], best first, equal ones by token id.
        top_logprob: float32 [rows, n].
    """

    token: Tensor
    logprob: Tensor
    rank: Tensor
    top_token: Tensor
    top_logprob: Tensor


def token_logprobs(logits: Tensor, token: Tensor, n: int) -> LogprobTensors:
    """Log-probabilities under `logits` (float32 [rows, vocabulary]) of `token` (int64 [rows])."""
    logprob, normalizer, rank = _normalized(logits, token)
    top_token = best_tokens(logits, n)
    top_logprob = logits.gather(1, top_token) - normalizer[:, None]
    return LogprobTensors(token, logprob, rank, top_token, top_logprob)


def _normalized(logits: Tensor, token: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each row's log-probability of `token`, log of the sum of exponentials, and rank."""
    if use_triton("sampling", logits):
        from rose.kernels.fused import sampling as fused

        return fused.normalized(logits, token)
    normalizer = torch.logsumexp(logits, dim=-1)
    own = logits.gather(1, token[:, None])
    rank = 1 + (logits > own).sum(dim=-1)
    return own.squeeze(1) - normalizer, normalizer, rank


def best_tokens(logits: Tensor, n: int) -> Tensor:
    """The `n` best token ids a row, int64 [rows, n]; equal logits rank by token id.

    `topk` leaves ties open, so it ranks unique integers: the logit's bits, order-preserving, then
    the id from the highest down.
    """
    if n == 0:
        return torch.empty((logits.shape[0], 0), dtype=torch.int64, device=logits.device)
    bits = (logits + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    last = logits.shape[1] - 1
    ids = torch.arange(last, -1, -1, device=logits.device)
    best = ((ordered << 32) | ids).topk(min(n, last + 1), dim=-1).values
    return last - (best & _MASK)

"""Each token's best experts, and the order of rows that groups them by expert.

A tile of tokens x experts is on the chip at once: k rounds of maximum choose the experts, a
running count down each column gives the order among the rows of one expert. One program does it
for few tokens. For more, a first kernel counts each block's rows an expert, and the blocks of the
second add up the counts of the blocks before them. That they choose again costs less than
another pass through memory.

Bound by latency: at one token a launch and about 2 us; at 64 about 5 us; at 8192 about 10 us for
the two launches, against 2 MB of logits (0.5 us at 4.2 TB/s).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused.interpret import round_to
from rose.kernels.quantize import ceil_div

ONE_PROGRAM = 64
"""Up to so many tokens one program serves: a second launch would cost more than it saves."""

TILE = 8192
"""The most logits of a block: 16 a thread at 16 warps, which registers hold without a spill."""

_TAKEN = tl.constexpr(-(2**31))
"""Below the key of every logit."""


@triton.jit
def _keys(logits: tl.tensor, expert: tl.tensor) -> tl.tensor:
    """int32 keys in the reference's order: NaN, larger logits, lower experts; all distinct.

    The upper half holds the bfloat16, as an integer of the same order; the lower half the expert.
    """
    # Zeros of both signs are one number.
    bits = tl.where(logits == 0, 0.0, logits).to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFF0000)
    ordered = tl.where(logits == logits, ordered, 0x7FFF0000)
    return ordered | (0xFFFF - expert)


@triton.jit
def _logit(key: tl.tensor) -> tl.tensor:
    """The float32 logit that a key was made of."""
    ordered = key & -0x10000
    return (ordered ^ ((ordered >> 31) & 0x7FFF0000)).to(tl.float32, bitcast=True)


@triton.jit
def _choose(
    logits: tl.tensor,
    tokens: tl.tensor,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """The best keys of each of this program's tokens, and which experts it chose.

    Returns:
        int32 keys [block, padded_k], the best first, _TAKEN beyond k; int32 [block, padded], 1
        where an expert is chosen by a token of the batch.
    """
    token = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    expert = tl.arange(0, padded)[None, :]
    inside = (token < tokens) & (expert < experts)
    at = token.to(tl.int64) * experts + expert
    key = _keys(tl.load(logits + at, mask=inside, other=0.0).to(tl.float32), expert)
    key = tl.where(expert < experts, key, _TAKEN)
    choice = tl.arange(0, padded_k)[None, :]
    best = tl.full((block, padded_k), _TAKEN, dtype=tl.int32)
    for rank in tl.static_range(k):
        highest = tl.max(key, axis=1)[:, None]
        best = tl.where(choice == rank, highest, best)
        key = tl.where(key == highest, _TAKEN, key)
    return best, (inside & (key == _TAKEN)).to(tl.int32)


@triton.jit(do_not_specialize=["tokens"])
def _route_count_kernel(
    logits: tl.tensor,
    counts: tl.tensor,
    tokens: tl.tensor,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> None:
    """Rows an expert of each block: int32 counts [blocks, experts]."""
    _, chosen = _choose(logits, tokens, experts, k, block, padded, padded_k)
    expert = tl.arange(0, padded)
    at = counts + tl.program_id(0) * experts + expert
    tl.store(at, tl.sum(chosen, axis=0), mask=expert < experts)


@triton.jit
def _add_counts(
    counts: tl.tensor, blocks: tl.tensor, experts: tl.constexpr, padded: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Rows an expert of all blocks, and of those before this program's: int32 [padded] each."""
    expert = tl.arange(0, padded)[None, :]
    total = tl.zeros((padded,), dtype=tl.int32)
    before = tl.zeros((padded,), dtype=tl.int32)
    step: tl.constexpr = 32
    for start in range(0, blocks, step):
        block = start + tl.arange(0, step)[:, None]
        inside = (block < blocks) & (expert < experts)
        rows = tl.load(counts + block * experts + expert, mask=inside, other=0)
        total += tl.sum(rows, axis=0)
        before += tl.sum(tl.where(block < tl.program_id(0), rows, 0), axis=0)
    return total, before


@triton.jit(do_not_specialize=["tokens", "blocks"])
def _route_place_kernel(
    logits: tl.tensor,
    counts: tl.tensor,
    weights: tl.tensor,
    row_of: tl.tensor,
    token_of_row: tl.tensor,
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    tokens: tl.tensor,
    blocks: tl.tensor,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> None:
    """Weights and rows of a block of tokens; `counts` is None where there is one block."""
    best, chosen = _choose(logits, tokens, experts, k, block, padded, padded_k)
    token = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    choice = tl.arange(0, padded_k)[None, :]
    inside = (token < tokens) & (choice < k)
    pair = token * k + choice

    score = tl.where(choice < k, _logit(best), -float("inf"))
    power = tl.exp(score - tl.max(score, axis=1)[:, None])
    weight = power / tl.sum(power, axis=1)[:, None]
    tl.store(weights + pair, round_to(weight, weights.dtype.element_ty), mask=inside)

    if counts is None:
        total = tl.sum(chosen, axis=0)
        before = tl.zeros_like(total)
    else:
        total, before = _add_counts(counts, blocks, experts, padded)
    after = tl.cumsum(total, axis=0)
    rows = (after - total + before)[None, :] + tl.cumsum(chosen, axis=0) - chosen
    row = tl.gather(rows, tl.where(inside, 0xFFFF - (best & 0xFFFF), 0), axis=1)
    tl.store(row_of + pair, row, mask=inside)
    tl.store(token_of_row + row, tl.broadcast_to(token, row.shape), mask=inside)

    if tl.program_id(0) == 0:
        expert = tl.arange(0, padded)
        tl.store(tokens_per_expert + expert, total, mask=expert < experts)
        tl.store(first_row, 0)
        tl.store(first_row + 1 + expert, after, mask=expert < experts)


def block_tokens(tokens: int, padded: int) -> int:
    """Tokens of one block: few sizes, so that few kernels are compiled.

    Args:
        tokens: of the batch.
        padded: experts, rounded up to a power of two.
    """
    if tokens <= 8:
        return 8
    # Small blocks use more of the chip, but each reads the counts of all.
    block = 32 if ONE_PROGRAM < tokens <= 4096 else ONE_PROGRAM
    return min(block, TILE // padded)


def route(logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The fields of `routing.Routing`, in their order.

    Args:
        logits: bfloat16 [tokens, experts], at most 256 experts. NaN counts as the highest logit.
        k: experts a token, at most `experts`.
    """
    tokens, experts = logits.shape
    padded = triton.next_power_of_2(experts)
    block = block_tokens(tokens, padded)
    blocks = max(ceil_div(tokens, block), 1)
    warps = min(max(block * padded // 512, 4), 16)
    logits = logits.contiguous()

    def fresh(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int32, device=logits.device)

    shape = (experts, k, block, padded, triton.next_power_of_2(k))
    counts = None
    if blocks > 1:
        counts = fresh(blocks, experts)
        _route_count_kernel[(blocks,)](logits, counts, tokens, *shape, num_warps=warps)
    weights = torch.empty((tokens, k), dtype=logits.dtype, device=logits.device)
    outputs = (weights, fresh(tokens, k), fresh(tokens * k), fresh(experts), fresh(experts + 1))
    _route_place_kernel[(blocks,)](
        logits, counts, *outputs, tokens, blocks, *shape, num_warps=warps
    )
    return outputs

"""Each token's best experts, and the order of rows that groups them by expert.

A tile of tokens x experts is on the chip at once: k rounds of maximum choose the experts, and a
word an expert with a bit for each token that chose it gives the order among the rows of one
expert. One program does it for few tokens. For more, a first kernel leaves each pair's expert and
rank within its block, and each block's rows an expert; a second adds up the rows of the blocks
before its own. Where rows are few, the experts' tiles are listed as well (`expert_tiles`).

Bound by latency. Predicted for 128 experts: 3 us at one token; at 64 about 5 us; at 256 about
6 us for the two launches; at 8192 about 9 us, against 2 MB of logits (0.5 us at 4.2 TB/s).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent
from rose.kernels.fused.expert_tiles import LISTED, LISTED_EXPERTS, listed
from rose.kernels.fused.interpret import round_to
from rose.kernels.quantize import ceil_div

ONE_PROGRAM = 4096
"""Up to so many logits one program serves: a second launch would cost more than it saves."""

TILE = 8192
"""The most logits of a block: 16 a thread at 16 warps, which registers hold without a spill."""

MOST_LISTED = 4096
"""Up to so many rows tiles are listed: far more than the experts' kernels take from a list, but
with four experts a token what blocks of 16 tokens serve, which then need no second variant."""

Fields = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]
"""Those of `routing.Routing`, in their order."""

_TAKEN = tl.constexpr(-(2**31))
"""Below the key of every logit."""

_RANK_BITS = tl.constexpr(16)
"""A pair's rank within its block lies below its expert."""


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
def _ones(bits: tl.tensor) -> tl.tensor:
    """How many bits of a uint32 or uint64 are set, int32; the interpreter has no `popc`."""
    if bits.dtype == tl.uint64:
        return _ones(bits.to(tl.uint32)) + _ones((bits >> 32).to(tl.uint32))
    pairs = bits - ((bits >> 1) & 0x55555555)
    fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
    bytes_ = (fours + (fours >> 4)) & 0x0F0F0F0F
    return ((bytes_ * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def _store_weights(
    weights: tl.tensor,
    best: tl.tensor,
    token: tl.tensor,
    tokens: tl.tensor,
    k: tl.constexpr,
    padded_k: tl.constexpr,
) -> None:
    """The softmax of the best logits of each token, int32 [block, 1]."""
    choice = tl.arange(0, padded_k)[None, :]
    score = tl.where(choice < k, _logit(best), -float("inf"))
    power = tl.exp(score - tl.max(score, axis=1)[:, None])
    weight = round_to(power / tl.sum(power, axis=1)[:, None], weights.dtype.element_ty)
    at = weights + token.to(tl.int64) * k + choice
    tl.store(at, weight, mask=(token < tokens) & (choice < k))


@triton.jit
def _choose(
    logits: tl.tensor,
    weights: tl.tensor,
    first: tl.tensor,
    tokens: tl.tensor,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Choose for a block of tokens from `first` on, and store their weights.

    A pair is a token and one of its choices; there are block * padded_k.

    Returns:
        int32 [pairs], the expert of each, 0 where it is none; int32 [pairs], how many tokens of
        the block chose the same expert before it; int32 [padded], how many chose each expert.
    """
    local = tl.arange(0, block)[:, None]
    token = first + local
    expert = tl.arange(0, padded)[None, :]
    inside = (token < tokens) & (expert < experts)
    at = logits + token.to(tl.int64) * experts + expert
    # From L2, which is where other programs of the same launch may have written.
    logit = tl.load(at, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    key = tl.where(expert < experts, _keys(logit, expert), _TAKEN)
    choice = tl.arange(0, padded_k)[None, :]
    best = tl.full((block, padded_k), _TAKEN, dtype=tl.int32)
    for rank in tl.static_range(k):
        highest = tl.max(key, axis=1)[:, None]
        best = tl.where(choice == rank, highest, best)
        key = tl.where(key == highest, _TAKEN, key)
    _store_weights(weights, best, token, tokens, k, padded_k)

    # A bit a token: adding up columns is all that crosses warps, and no scan of the tile is needed.
    word: tl.constexpr = tl.uint64 if block > 32 else tl.uint32
    bit = tl.full((block, 1), 1, dtype=word) << local.to(word)
    chose = tl.sum(tl.where(inside & (key == _TAKEN), bit, 0), axis=0)
    chosen = (token < tokens) & (choice < k)
    owner = tl.reshape(tl.where(chosen, 0xFFFF - (best & 0xFFFF), 0), (block * padded_k,))
    earlier = (tl.arange(0, block * padded_k) // padded_k).to(word)
    earlier = (tl.full((block * padded_k,), 1, dtype=word) << earlier) - 1
    return owner, _ones(tl.gather(chose, owner, axis=0) & earlier), _ones(chose)


@triton.jit
def _place(
    owner: tl.tensor,
    rank: tl.tensor,
    total: tl.tensor,
    before: tl.tensor,
    row_of: tl.tensor,
    token_of_row: tl.tensor,
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    tiles: tl.tensor | None,
    first: tl.tensor,
    tokens: tl.tensor,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> None:
    """Store the rows of a block's pairs; the first block's program stores the experts' as well.

    `owner` and `rank` are `_choose`'s; of each expert's rows, int32 `total` [padded], `before`
    [padded] belong to the blocks before. Without `tiles`, none are listed.
    """
    pair = tl.arange(0, block * padded_k)
    token, choice = first + pair // padded_k, pair % padded_k
    inside = (token < tokens) & (choice < k)
    if tiles is None:
        after = tl.cumsum(total, axis=0)
        row = tl.gather(after - total + before, owner, axis=0) + rank
    else:
        # Few enough that one scan adds up rows and tiles.
        each = total | ((total + LISTED - 1) // LISTED << 16)
        after = tl.cumsum(each, axis=0)
        start = tl.gather(after - each, owner, axis=0)
        mine = tl.gather(total | (before << 16), owner, axis=0)
        after &= 0xFFFF
        rank += mine >> 16
        row = (start & 0xFFFF) + rank
        tile = (start >> 16) + rank // LISTED
        # Every pair fills a slot: with the tile that its row begins, or from the end on with none.
        begins = rank % LISTED == 0
        word = tl.where(begins, listed(owner, row, (mine & 0xFFFF) - rank), 0)
        tl.store(tiles + tl.where(begins, tile, tokens * k - row + tile), word, mask=inside)
    tl.store(row_of + token.to(tl.int64) * k + choice, row, mask=inside)
    tl.store(token_of_row + row, token, mask=inside)
    if first == 0:
        expert = tl.arange(0, padded)
        tl.store(tokens_per_expert + expert, total, mask=expert < experts)
        tl.store(first_row, 0)
        tl.store(first_row + 1 + expert, after, mask=expert < experts)


@triton.jit
def route_block(
    logits: tl.tensor,
    weights: tl.tensor,
    row_of: tl.tensor,
    token_of_row: tl.tensor,
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    tiles: tl.tensor | None,
    tokens: tl.tensor,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> None:
    """Route all tokens, at most `block`, in this program."""
    owner, rank, total = _choose(logits, weights, 0, tokens, experts, k, block, padded, padded_k)
    before = tl.zeros_like(total)
    _place(
        owner,
        rank,
        total,
        before,
        row_of,
        token_of_row,
        tokens_per_expert,
        first_row,
        tiles,
        0,
        tokens,
        experts,
        k,
        block,
        padded,
        padded_k,
    )


@triton.jit(do_not_specialize=["tokens"])
def _route_kernel(
    logits: tl.tensor,
    weights: tl.tensor,
    row_of: tl.tensor,
    token_of_row: tl.tensor,
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    tiles: tl.tensor | None,
    tokens: tl.tensor,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> None:
    """All of few tokens, by one program."""
    dependent.start()
    route_block(
        logits,
        weights,
        row_of,
        token_of_row,
        tokens_per_expert,
        first_row,
        tiles,
        tokens,
        experts,
        k,
        block,
        padded,
        padded_k,
    )


@triton.jit(do_not_specialize=["tokens"])
def _route_rank_kernel(
    logits: tl.tensor,
    weights: tl.tensor,
    ranks: tl.tensor,
    counts: tl.tensor,
    tokens: tl.tensor,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> None:
    """A block's choice: weights, and what places its pairs among those of other blocks.

    Writes int32 ranks [tokens, k], expert and rank within the block; counts [blocks, experts].
    """
    dependent.start()
    first = tl.program_id(0) * block
    owner, rank, count = _choose(
        logits, weights, first, tokens, experts, k, block, padded, padded_k
    )
    pair = tl.arange(0, block * padded_k)
    token, choice = first + pair // padded_k, pair % padded_k
    at = ranks + token.to(tl.int64) * k + choice
    tl.store(at, (owner << _RANK_BITS) | rank, mask=(token < tokens) & (choice < k))
    expert = tl.arange(0, padded)
    tl.store(counts + tl.program_id(0) * experts + expert, count, mask=expert < experts)


@triton.jit
def _add_counts(
    counts: tl.tensor, blocks: tl.tensor, experts: tl.constexpr, padded: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Rows an expert of all blocks, and of those before this program's: int32 [padded] each."""
    step: tl.constexpr = 4096 // padded
    expert = tl.arange(0, padded)[None, :]
    total = tl.zeros((step, padded), dtype=tl.int32)
    before = tl.zeros((step, padded), dtype=tl.int32)
    for start in range(0, blocks, step):
        block = start + tl.arange(0, step)[:, None]
        inside = (block < blocks) & (expert < experts)
        rows = tl.load(counts + block * experts + expert, mask=inside, other=0)
        total += rows
        before += tl.where(block < tl.program_id(0), rows, 0)
    return tl.sum(total, axis=0), tl.sum(before, axis=0)


@triton.jit(do_not_specialize=["tokens", "blocks"])
def _route_place_kernel(
    ranks: tl.tensor,
    counts: tl.tensor,
    row_of: tl.tensor,
    token_of_row: tl.tensor,
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    tiles: tl.tensor | None,
    tokens: tl.tensor,
    blocks: tl.tensor,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> None:
    """The rows of a block of tokens, from what `_route_rank_kernel` wrote."""
    dependent.start()
    first = tl.program_id(0) * block
    pair = tl.arange(0, block * padded_k)
    token, choice = first + pair // padded_k, pair % padded_k
    inside = (token < tokens) & (choice < k)
    ranked = tl.load(ranks + token.to(tl.int64) * k + choice, mask=inside, other=0)
    total, before = _add_counts(counts, blocks, experts, padded)
    _place(
        ranked >> _RANK_BITS,
        ranked & 0xFFFF,
        total,
        before,
        row_of,
        token_of_row,
        tokens_per_expert,
        first_row,
        tiles,
        first,
        tokens,
        experts,
        k,
        block,
        padded,
        padded_k,
    )


def block_tokens(tokens: int, padded: int, one_program: int | None = None) -> int:
    """Tokens of one block: few sizes, so that few kernels are compiled.

    Args:
        tokens: of the batch.
        padded: experts, rounded up to a power of two.
        one_program: up to so many tokens are one block, if a tile holds them; None: ONE_PROGRAM
            says.
    """
    one_program = min(64, ONE_PROGRAM // padded) if one_program is None else one_program
    if tokens <= one_program:
        block = 8 if tokens <= 8 else 32 if tokens <= 32 else max(64, one_program)
    else:
        # Small blocks use more of the chip, but each reads the counts of all.
        block = 16 if tokens <= 1024 else 64
    return min(block, TILE // padded)


def warps_for(block: int, padded: int) -> int:
    """Warps of a program that holds a block's logits: 16 a thread."""
    return min(max(block * padded // 512, 4), 16)


def empty_routing(tokens: int, experts: int, k: int, like: Tensor) -> Fields:
    """Memory for the fields of a routing; weights as `like`."""

    def fresh(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int32, device=like.device)

    weights = torch.empty((tokens, k), dtype=like.dtype, device=like.device)
    rows = tokens * k
    tiles = fresh(rows) if rows <= MOST_LISTED and experts <= LISTED_EXPERTS else None
    return weights, fresh(tokens, k), fresh(rows), fresh(experts), fresh(experts + 1), tiles


def route(logits: Tensor, k: int, one_program: int | None = None) -> Fields:
    """The fields of a routing.

    Args:
        logits: bfloat16 [tokens, experts], at most 256 experts. NaN counts as the highest logit.
        k: experts a token, at most `experts`.
        one_program: see `block_tokens`.
    """
    tokens, experts = logits.shape
    padded = triton.next_power_of_2(experts)
    block = block_tokens(tokens, padded, one_program)
    blocks = ceil_div(tokens, block)
    warps = warps_for(block, padded)
    shape = (experts, k, block, padded, triton.next_power_of_2(k))
    logits = logits.contiguous()
    outputs = empty_routing(tokens, experts, k, logits)
    if blocks <= 1:
        _route_kernel[(1,)](logits, *outputs, tokens, *shape, num_warps=warps, **dependent.LAUNCH)
        return outputs
    weights, *rows = outputs
    ranks = torch.empty((tokens, k), dtype=torch.int32, device=logits.device)
    counts = torch.empty((blocks, experts), dtype=torch.int32, device=logits.device)
    _route_rank_kernel[(blocks,)](
        logits, weights, ranks, counts, tokens, *shape, num_warps=warps, **dependent.LAUNCH
    )
    _route_place_kernel[(blocks,)](
        ranks, counts, *rows, tokens, blocks, *shape, num_warps=8, **dependent.LAUNCH
    )
    return outputs

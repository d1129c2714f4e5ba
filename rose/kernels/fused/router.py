"""The router of few tokens: its product and the routing in one launch.

A program computes whole dots of an expert and a few tokens, each in float32 and in an order that
does not depend on how many tokens there are. The program that arrives last finds all logits in
memory and routes; which one that is shows in no result. It puts the counter of arrivals back to
zero for the next launch on the stream, so that a graph can replay it.

Bound by latency: a launch, one read from memory, an atomic's round trip, one read from L2 and the
routing of a block. Predicted for 128 experts, 2880 wide: 4.5 us at one token (3.5 behind a kernel
that lets it start early), 5.5 at 8, and 7 at 16, where the programs read 15 MB from L2; the
weights' 0.74 MB take 0.2 us at 4.2 TB/s.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent
from rose.kernels.fused.interpret import round_to
from rose.kernels.fused.routing import Fields, empty_routing, route_block
from rose.kernels.quantize import ceil_div

FEW = 16
"""Up to so many tokens; beyond, tensor cores and a launch for the routing are faster."""

ROWS = 4
"""Tokens of a program, where there are more than two: each is read by as many programs as there
are experts, and the weights by as many as there are such groups of tokens."""

CHUNK = 2048
"""Columns side by side in a program: 8 a thread, which one load takes."""

_WARPS = 8

_REGISTERS = 128
"""A limit that is never reached. Without one, the assembler keeps to fewer registers than a row's
loads need, and issues the next only when the one before has been used."""


@triton.jit
def _logits(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    token: tl.tensor,
    tokens: tl.tensor,
    width: tl.constexpr,
    parts: tl.constexpr,
    chunk: tl.constexpr,
) -> tl.tensor:
    """float32 [rows]: of each int32 `token` [rows, 1, 1] for the expert of this weight and bias.

    A row is `parts` chunks, of which the last may be short and more may be empty.
    """
    part = tl.arange(0, parts)[None, :, None]
    column = part * chunk + tl.arange(0, chunk)[None, None, :]
    inside = column < width
    factor = tl.load(weight + column, mask=inside, other=0.0)
    offset = tl.load(bias)
    # No kernel writes weights: they come from memory while the one before still computes x.
    dependent.start()
    at = x + token * width + column
    value = tl.load(at, mask=inside & (token < tokens), other=0.0)
    product = value.to(tl.float32) * factor.to(tl.float32)
    # A thread's own 8 first, then its parts, then the others' sums.
    eights = tl.sum(tl.reshape(product, (token.shape[0], parts, chunk // 8, 8)), axis=3)
    return tl.sum(tl.sum(eights, axis=1), axis=1) + offset.to(tl.float32)


@triton.jit(do_not_specialize=["tokens"])
def _router_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    arrivals: tl.tensor,
    logits: tl.tensor,
    weights: tl.tensor,
    row_of: tl.tensor,
    token_of_row: tl.tensor,
    tokens_per_expert: tl.tensor,
    first_row: tl.tensor,
    tiles: tl.tensor | None,
    tokens: tl.tensor,
    width: tl.constexpr,
    rows: tl.constexpr,
    parts: tl.constexpr,
    chunk: tl.constexpr,
    experts: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    padded_k: tl.constexpr,
) -> None:
    """An expert and a few tokens a program: experts in the grid's first dimension."""
    expert = tl.program_id(0)
    token = tl.program_id(1) * rows + tl.arange(0, rows)
    row = weight + expert * width
    logit = _logits(x, row, bias + expert, token[:, None, None], tokens, width, parts, chunk)
    rounded = round_to(logit, logits.dtype.element_ty)
    tl.store(logits + token * experts + expert, rounded, mask=token < tokens)
    # One thread arrives for all, so all must have stored; what it releases includes their stores.
    tl.debug_barrier()
    arrived = tl.atomic_add(arrivals, 1, sem="acq_rel", scope="gpu")
    if arrived == experts * tl.num_programs(1) - 1:
        tl.store(arrivals, 0)
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


def route_few(x: Tensor, weight: Tensor, bias: Tensor, k: int, arrivals: Tensor) -> Fields:
    """The fields of a routing by the logits x W^T + bias in bfloat16.

    Args:
        x: bfloat16 [tokens, width], few tokens: `FEW` is where more stop to pay.
        weight: bfloat16 [experts, width], at most 256 experts.
        bias: bfloat16 [experts].
        k: experts a token, at most `experts`.
        arrivals: int32 [1], zero; it is zero again afterwards. Of one stream's launches alone, as
            two at a time would count each other's programs.
    """
    tokens, width = x.shape
    experts = weight.shape[0]
    x = x.contiguous()
    logits = torch.empty((tokens, experts), dtype=x.dtype, device=x.device)
    outputs = empty_routing(tokens, experts, k, x)
    rows = ROWS if tokens > 2 else 1
    _router_kernel[(experts, max(ceil_div(tokens, rows), 1))](
        x,
        weight,
        bias,
        arrivals,
        logits,
        *outputs,
        tokens,
        width,
        rows,
        triton.next_power_of_2(ceil_div(width, CHUNK)),
        CHUNK,
        experts,
        k,
        max(triton.next_power_of_2(tokens), 8),
        triton.next_power_of_2(experts),
        triton.next_power_of_2(k),
        num_warps=_WARPS,
        maxnreg=_REGISTERS,
        **dependent.LAUNCH,
    )
    return outputs

"""The weighted sum of what a token's experts computed, the residual, and the norm that follows.

Bound by memory: k rows and the residual read, one row written, and with the norm another. For 4
experts and rows of 2880, `combine` of 8192 tokens moves 283 MB, 67 us at 4.2 TB/s, and takes 71 us
on an H200. `combine_norm` moves 330 MB, 79 us, so about 85, where two kernels take 101. Of one
token it is a launch, a round trip to memory and a reduction: predicted 2 us behind a kernel that
lets it start early, where two kernels take 3.3.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent
from rose.kernels.fused.interpret import round_to
from rose.kernels.fused.norm import normalise
from rose.kernels.fused.quantize import RUN, padded_runs, warps_for

BLOCK = 1024
"""Columns of one program: 16 bytes of each expert's row a thread, and 2880 leaves 6% idle."""

EARLY = True
"""Whether `combine_norm` reads the routing while the kernel before, which computes the rows, still
runs: a round trip to memory less. That kernel has waited for the routing's, see `dependent`."""

_REGISTERS = 128
"""A limit that is never reached. Without one, the assembler keeps to fewer registers than a row's
loads need, and issues the next only when the one before has been used."""


@triton.jit
def _combine_kernel(
    rows: tl.tensor,
    weights: tl.tensor,
    row_of: tl.tensor,
    residual: tl.tensor,
    out: tl.tensor,
    width: tl.constexpr,
    k: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """A run of columns of one token a program; `residual` may be None."""
    dependent.start()
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    total = tl.zeros((block,), dtype=tl.float32)
    for choice in tl.static_range(k):
        row = tl.load(row_of + token * k + choice).to(tl.int64)
        weight = tl.load(weights + token * k + choice).to(tl.float32)
        # Products of two bfloat16 are exact in float32: fused or not, the sum is the same.
        total += tl.load(rows + row * width + column, mask=inside).to(tl.float32) * weight
    result = round_to(total, out.dtype.element_ty)
    if residual is not None:
        before = tl.load(residual + token * width + column, mask=inside).to(tl.float32)
        result = round_to(before + result.to(tl.float32), out.dtype.element_ty)
    tl.store(out + token * width + column, result, mask=inside)


@triton.jit
def _combine_norm_kernel(
    rows: tl.tensor,
    weights: tl.tensor,
    row_of: tl.tensor,
    residual: tl.tensor,
    norm_weight: tl.tensor,
    total: tl.tensor,
    normed: tl.tensor,
    epsilon: tl.tensor,
    width: tl.constexpr,
    k: tl.constexpr,
    runs: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """One token a program, in the tile of `_rms_norm_kernel`."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, runs)[:, None] * RUN + tl.arange(0, RUN)[None, :]
    inside = column < width
    # No kernel writes weights: they come from memory while the one before still computes rows.
    factor = tl.load(norm_weight + column, mask=inside, other=0.0)
    if not early:
        dependent.start()
    chosen = ()
    for choice in tl.static_range(k):
        # From L2: L1 may have kept what lay there before the routing was written.
        row = tl.load(row_of + token * k + choice, cache_modifier=".cg").to(tl.int64)
        weight = tl.load(weights + token * k + choice, cache_modifier=".cg").to(tl.float32)
        chosen += ((row, weight),)  # type: ignore[assignment]
    if early:
        dependent.start()
    before = tl.load(residual + token * width + column, mask=inside, other=0.0).to(tl.float32)
    value = tl.zeros((runs, RUN), dtype=tl.float32)
    for choice in tl.static_range(k):
        row, weight = chosen[choice]
        # Products of two bfloat16 are exact in float32: fused or not, the sum is the same.
        part = tl.load(rows + row * width + column, mask=inside, other=0.0)
        value += part.to(tl.float32) * weight
    dtype: tl.constexpr = normed.dtype.element_ty
    rounded = round_to(before + round_to(value, dtype).to(tl.float32), dtype)
    tl.store(total + token * width + column, rounded, mask=inside)
    result = normalise(rounded.to(tl.float32), factor.to(tl.float32), epsilon, width, dtype)
    tl.store(normed + token * width + column, result, mask=inside)


def combine(rows: Tensor, weights: Tensor, row_of: Tensor, residual: Tensor | None) -> Tensor:
    """See `routing.combine`; weights and row_of as `routing.Routing` has them."""
    tokens, k = row_of.shape
    width = rows.shape[1]
    out = torch.empty((tokens, width), dtype=rows.dtype, device=rows.device)
    _combine_kernel[(tokens, triton.cdiv(width, BLOCK))](
        rows.contiguous(),
        weights,
        row_of,
        None if residual is None else residual.contiguous(),
        out,
        width,
        k,
        BLOCK,
        num_warps=4,
        **dependent.LAUNCH,
    )
    return out


def combine_norm(
    rows: Tensor,
    weights: Tensor,
    row_of: Tensor,
    residual: Tensor,
    norm_weight: Tensor,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """See `routing.combine_norm`; weights and row_of as `routing.Routing` has them.

    A kernel lies between those that write the routing and this one: the one that computes rows.
    """
    tokens, k = row_of.shape
    width = rows.shape[1]
    total = torch.empty((tokens, width), dtype=rows.dtype, device=rows.device)
    normed = torch.empty_like(total)
    runs = padded_runs(width)
    _combine_norm_kernel[(tokens,)](
        rows.contiguous(),
        weights,
        row_of,
        residual.contiguous(),
        norm_weight,
        total,
        normed,
        epsilon,
        width,
        k,
        runs,
        EARLY,
        num_warps=warps_for(runs),
        maxnreg=_REGISTERS,
        **dependent.LAUNCH,
    )
    return total, normed

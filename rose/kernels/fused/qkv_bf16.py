"""Decode's QKV product with the rotation and the write to the cache at its end.

As `linear_bf16`, which it takes its loop and its tilings from, but a program's columns are pairs
that the rotation turns together: half of them from the first half of a head, half from the second.
What `rope_kv` would read back, and its launch, are saved: 2 to 2.5 us a layer for one row. The
roundings are the same: the projection's to bfloat16, then the rotation's.
"""
# mypy: disable-error-code="untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from rose.kernels.fused import dependent, linear_bf16
from rose.kernels.fused.interpret import round_to
from rose.kernels.fused.linear_bf16 import part_sums
from rose.kernels.fused.skinny_tiles import SkinnyTiling, column_bias
from rose.kernels.paged_kv import LayerKV
from rose.kernels.quantize import ceil_div

MOST_ROWS = linear_bf16.FEW_ROWS
"""For more, the product and `rope_kv` serve; 0 leaves all to them."""


# The mapping is a slice of one upload, aligned by chance: not worth a compilation each.
@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["slot_mapping"])
def _linear_qkv_bf16_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    slot_mapping: tl.tensor,
    query: tl.tensor,
    key: tl.tensor,
    value: tl.tensor,
    rows: tl.tensor,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    half: tl.constexpr,
    width: tl.constexpr,
    biased: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    parts: tl.constexpr,
    step: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """`block_n / 2` pairs of one head, of `block_m` rows; `half` is a multiple of `block_n / 2`."""
    pairs: tl.constexpr = block_n // 2
    columns: tl.constexpr = (heads + 2 * kv_heads) * 2 * half
    head = tl.program_id(0) // (half // pairs)
    first_pair = tl.program_id(0) % (half // pairs) * pairs
    place = tl.arange(0, block_n)
    column = head * (2 * half) + first_pair + place // pairs * half + place % pairs
    row = tl.program_id(1).to(tl.int64) * block_m + tl.arange(0, block_m)
    held = row < rows
    dependent.start()

    # All that the end needs is asked for at the start.
    wide_bias = column_bias(bias, column, columns, biased)
    slot = tl.load(slot_mapping + row, mask=held, other=0)
    pair = first_pair + tl.arange(0, pairs)[:, None]
    turn_at = row[None, :] * half + pair
    cosine = tl.load(cos + turn_at, mask=held[None, :], other=0.0)
    sine = tl.load(sin + turn_at, mask=held[None, :], other=0.0)
    total = part_sums(
        x, weight, column, row, held, columns, width, block_m, block_n, parts, step, stages
    )
    rounded = round_to(tl.sum(total, 0) + wide_bias[:, None], tl.bfloat16).to(tl.float32)
    halves = tl.trans(tl.reshape(rounded, (2, pairs, block_m)), (1, 2, 0))
    first, second = tl.split(halves)
    turned = round_to(first * cosine - second * sine, tl.bfloat16)
    turned_second = round_to(second * cosine + first * sine, tl.bfloat16)

    if head < heads:
        at = query + row[None, :] * (heads * 2 * half) + head * (2 * half) + pair
        tl.store(at, turned, mask=held[None, :])
        tl.store(at + half, turned_second, mask=held[None, :])
    else:
        offset = slot[None, :] * (kv_heads * 2 * half) + pair
        if head < heads + kv_heads:
            key_at = key + (head - heads) * (2 * half) + offset
            tl.store(key_at, turned, mask=held[None, :])
            tl.store(key_at + half, turned_second, mask=held[None, :])
        else:
            value_at = value + (head - heads - kv_heads) * (2 * half) + offset
            tl.store(value_at, round_to(first, tl.bfloat16), mask=held[None, :])
            tl.store(value_at + half, round_to(second, tl.bfloat16), mask=held[None, :])


def serves(x: Tensor, weight: Tensor, kv: LayerKV) -> bool:
    """Whether the kernel is for operands of these shapes."""
    half = kv.key.shape[-1] // 2
    tiling = linear_bf16.choose_tiling(x.shape[0])
    whole = half % (tiling.block_n // 2) == 0 and kv.key.dtype == torch.bfloat16
    return whole and x.shape[0] <= MOST_ROWS and linear_bf16.serves(x, weight)


def linear_qkv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    slot_mapping: Tensor,
    kv: LayerKV,
    num_heads: int,
) -> Tensor:
    """See `qkv.linear_qkv`."""
    tiling = linear_bf16.choose_tiling(x.shape[0])
    return multiply_with(tiling, x, weight, bias, cos, sin, slot_mapping, kv, num_heads)


def multiply_with(
    tiling: SkinnyTiling,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    slot_mapping: Tensor,
    kv: LayerKV,
    num_heads: int,
) -> Tensor:
    """See `linear_qkv`."""
    rows, width = x.shape
    columns = weight.shape[0]
    kv_heads, head_dim = kv.key.shape[-2:]
    query = torch.empty((rows, num_heads, head_dim), dtype=x.dtype, device=x.device)
    _linear_qkv_bf16_kernel[(columns // tiling.block_n, ceil_div(rows, tiling.block_m))](
        x.contiguous(),
        weight,
        # Any pointer: without a bias nothing is read through it.
        weight if bias is None else bias,
        cos.contiguous(),
        sin.contiguous(),
        slot_mapping.contiguous(),
        query,
        # These must not be copies: view raises where blocks do not lie one after the other.
        kv.key.view(-1),
        kv.value.view(-1),
        rows,
        num_heads,
        kv_heads,
        head_dim // 2,
        width,
        bias is not None,
        tiling.block_m,
        tiling.block_n,
        tiling.parts,
        tiling.step,
        tiling.stages(columns, width, rows, x.itemsize),
        num_warps=tiling.parts,
        # A fused multiply-add would skip a rounding that the reference makes.
        enable_fp_fusion=False,
        **dependent.LAUNCH,
    )
    return query

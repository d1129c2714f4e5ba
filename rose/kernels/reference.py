"""The plain torch truth of each op but attention (`reference_attention`), on any device.

Arithmetic is float32 inside; a result is rounded to its dtype once. A fused kernel is right if it
stays within the op's tolerance of these functions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rose.kernels.quantize import (
    dequantize_fp8_activations,
    dequantize_fp8_block,
    dequantize_mxfp4,
    quantize_fp8_activations,
)

SWIGLU_ALPHA = 1.702
"""Slope of the gate's sigmoid: x * sigmoid(1.702 x) approximates GELU."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a kernel may be off: max |difference| over max |reference|, by output dtype."""

    float32: float
    bfloat16: float


# One rounding to bfloat16 is off by 2^-9; two implementations whose float32 results straddle a
# midpoint differ by 2^-8.
NORM_TOLERANCE = Tolerance(1e-6, 2**-8)
ROPE_TOLERANCE = Tolerance(1e-6, 2**-8)
SWIGLU_TOLERANCE = Tolerance(1e-6, 2**-8)
COMBINE_TOLERANCE = Tolerance(1e-6, 2**-8)
# The order of summation over thousands of products.
GEMM_TOLERANCE = Tolerance(1e-5, 2**-8)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Zhang and Sennrich 2019; the weight applies before the rounding. NORM_TOLERANCE."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * scale).mul_(weight.float()).to(x.dtype)


def add_rms_norm(
    residual: Tensor, x: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """See `norm.add_rms_norm`. The sum is exact, the norm has NORM_TOLERANCE."""
    total = residual + x
    return total, rms_norm(total, weight, epsilon)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on halves (NeoX style): x [tokens, heads, head_dim] in its dtype. ROPE_TOLERANCE."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


def rope_write_kv(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    slot_mapping: Tensor,
    key: Tensor,
    value: Tensor,
    num_heads: int,
) -> Tensor:
    """See `rope_kv.rope_write_kv`. ROPE_TOLERANCE for queries and keys; values are copied."""
    kv_heads, head_dim = key.shape[-2:]
    heads = qkv.view(qkv.shape[0], -1, head_dim)
    rotated = rotate(heads[:, : num_heads + kv_heads], cos, sin)
    key.view(-1, kv_heads, head_dim).index_copy_(0, slot_mapping, rotated[:, num_heads:])
    value.view(-1, kv_heads, head_dim).index_copy_(0, slot_mapping, heads[:, -kv_heads:])
    return rotated[:, :num_heads]


def top_experts(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Weights (logits' dtype) and indices (int64) of the k best experts, [tokens, k]; exact."""
    # A stable sort, as topk leaves the order of equal logits open and bfloat16 has many.
    ordered, experts = logits.sort(dim=-1, descending=True, stable=True)
    weights = ordered[:, :k].softmax(dim=-1, dtype=torch.float32).to(logits.dtype)
    return weights, experts[:, :k]


def sort_by_expert(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Order (token, expert) pairs by expert, then by token; exact.

    Args:
        experts: int64 [tokens, k].
        num_experts: how many there are.

    Returns:
        row_of, token_of_row, tokens_per_expert and first_row, see `routing.Routing`.
    """
    flat = experts.flatten()
    pair_of_row = flat.argsort(stable=True)
    row_of = torch.empty_like(pair_of_row, dtype=torch.int32)
    row_of[pair_of_row] = torch.arange(flat.numel(), dtype=torch.int32, device=flat.device)
    tokens_per_expert = flat.bincount(minlength=num_experts).int()
    first_row = F.pad(tokens_per_expert.cumsum(0, dtype=torch.int32), (1, 0))
    token_of_row = (pair_of_row // experts.shape[1]).int()
    return row_of.view_as(experts), token_of_row, tokens_per_expert, first_row


def combine(
    rows: Tensor, weights: Tensor, row_of: Tensor, residual: Tensor | None = None
) -> Tensor:
    """See `routing.combine`. COMBINE_TOLERANCE."""
    total = rows.new_zeros((row_of.shape[0], rows.shape[1]), dtype=torch.float32)
    for choice in range(row_of.shape[1]):
        chosen = rows.index_select(0, row_of[:, choice]).float()
        total.addcmul_(chosen, weights[:, choice, None].float())
    combined = total.to(rows.dtype)
    return combined if residual is None else residual + combined


def swiglu(gate_up: Tensor, limit: float) -> Tensor:
    """See `swiglu.swiglu`. SWIGLU_TOLERANCE."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    gate = gate.clamp(max=limit)
    up = up.clamp(-limit, limit)
    return (gate * torch.sigmoid(SWIGLU_ALPHA * gate)).mul_(up + 1).to(gate_up.dtype)


def linear_fp8(x: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """See `gemm.linear_fp8`. GEMM_TOLERANCE."""
    wide = _through_fp8(x)
    weight = dequantize_fp8_block(values, scales)
    return F.linear(wide, weight, None if bias is None else bias.float()).to(x.dtype)


def _through_fp8(x: Tensor) -> Tensor:
    # Products of two e4m3 values are exact in float32, so multiplying the dequantised numbers
    # equals scaling the products, up to the order of rounding.
    return dequantize_fp8_activations(*quantize_fp8_activations(x))


def grouped_linear(x: Tensor, weight: Tensor, bias: Tensor, tokens_per_expert: Tensor) -> Tensor:
    """See `grouped_gemm.grouped_linear`. GEMM_TOLERANCE."""
    return _each_expert(x, lambda expert: weight[expert].flatten(0, 1), bias, tokens_per_expert)


def grouped_linear_fp8(
    x: Tensor, values: Tensor, scales: Tensor, bias: Tensor, tokens_per_expert: Tensor
) -> Tensor:
    """See `grouped_gemm.grouped_linear_fp8`. GEMM_TOLERANCE."""

    def weight_of(expert: int) -> Tensor:
        return dequantize_fp8_block(values[expert], scales[expert]).flatten(0, 1)

    return _each_expert(_through_fp8(x), weight_of, bias.float(), tokens_per_expert).to(x.dtype)


def grouped_linear_mxfp4(
    x: Tensor, blocks: Tensor, scales: Tensor, bias: Tensor, tokens_per_expert: Tensor
) -> Tensor:
    """See `grouped_gemm.grouped_linear_mxfp4`. GEMM_TOLERANCE."""

    def weight_of(expert: int) -> Tensor:
        return dequantize_mxfp4(blocks[expert], scales[expert], x.dtype).flatten(0, 1)

    return _each_expert(x, weight_of, bias, tokens_per_expert)


def _each_expert(
    x: Tensor, weight_of: Callable[[int], Tensor], bias: Tensor, tokens_per_expert: Tensor
) -> Tensor:
    """Multiply each expert's rows; `weight_of` is asked for experts that have rows only."""
    out = x.new_empty((x.shape[0], bias.shape[1]))
    start = 0
    for expert, count in enumerate(tokens_per_expert.tolist()):
        if count:
            rows = slice(start, start + count)
            torch.addmm(bias[expert], x[rows], weight_of(expert).t(), out=out[rows])
            start += count
    return out

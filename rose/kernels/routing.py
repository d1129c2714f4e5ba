"""Which expert computes which row, and the weighted sum of what they computed."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from rose.kernels import reference
from rose.kernels.dispatch import use_triton


@dataclass(frozen=True, slots=True)
class Routing:
    """Each token's k experts, and the (token, expert) pairs as rows sorted by expert.

    Attributes:
        weights: router's dtype [tokens, k], best expert first; each row adds up to 1.
        row_of: int32 [tokens, k]; the row that computes each pair.
        token_of_row: int32 [tokens * k]; rows of one expert keep the order of tokens.
        tokens_per_expert: int32 [experts].
        first_row: int32 [experts + 1]; expert e computes rows first_row[e] : first_row[e + 1].
        tiles: int32 [tokens * k], or None; each tile of few rows as one word, for the fused
            kernels: see `fused.expert_tiles`.
    """

    weights: Tensor
    row_of: Tensor
    token_of_row: Tensor
    tokens_per_expert: Tensor
    first_row: Tensor
    tiles: Tensor | None = None


def route(logits: Tensor, k: int) -> Routing:
    """Choose k experts a token.

    Args:
        logits: [tokens, experts]. Equal logits go to the lower expert first; NaN is the highest.
        k: experts a token, at most `experts`.

    Returns:
        The choice; weights are the softmax of the k chosen logits alone, in float32, rounded to
        the logits' dtype.
    """
    if use_triton("routing", logits):
        from rose.kernels.fused import routing as fused

        return Routing(*fused.route(logits, k))
    weights, experts = reference.top_experts(logits, k)
    return Routing(weights, *reference.sort_by_expert(experts, logits.shape[1]))


def route_linear(x: Tensor, weight: Tensor, bias: Tensor, k: int, arrivals: Tensor) -> Routing:
    """Choose k experts a token by the logits x W^T + bias: the product and `route` as one op.

    Args:
        x: [tokens, width].
        weight: x's dtype [experts, width].
        bias: x's dtype [experts].
        k: experts a token, at most `experts`.
        arrivals: int32 [1], zero before and after; no two calls at a time may be given the same.

    Returns:
        The choice by logits in x's dtype, rounded once.
    """
    if use_triton("routing", x):
        from rose.kernels.fused import router

        if x.shape[0] <= router.FEW:
            return Routing(*router.route_few(x, weight, bias, k, arrivals))
    return route(F.linear(x, weight, bias), k)


def combine(rows: Tensor, routing: Routing, residual: Tensor | None = None) -> Tensor:
    """Each token's weighted sum, in float32 and in the order of `routing.weights`.

    The sum is rounded to rows' dtype before the residual is added, and the result once more: what
    `residual + combine(rows, routing)` gives, to the bit.

    Args:
        rows: [tokens * k, width], in the routing's order of rows.
        routing: who computed what.
        residual: rows' dtype [tokens, width], added to the sum.

    Returns:
        rows' dtype [tokens, width].
    """
    if use_triton("combine", rows):
        from rose.kernels.fused.combine import combine as fused_combine

        return fused_combine(rows, routing.weights, routing.row_of, residual)
    return reference.combine(rows, routing.weights, routing.row_of, residual)


def combine_norm(
    rows: Tensor, routing: Routing, residual: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Add to the residual stream what `combine` gives, and normalise the sum.

    Args:
        rows: [tokens * k, width], in the routing's order of rows, computed by way of `routing`.
        routing: who computed what.
        residual: rows' dtype [tokens, width].
        weight: of the norm, [width].
        epsilon: added to the mean of squares.

    Returns:
        `combine` of the three, to the bit, and `norm.rms_norm` of it, both rows' dtype
        [tokens, width].
    """
    if use_triton("combine", rows):
        from rose.kernels.fused.combine import combine_norm as fused_combine_norm

        weights, row_of = routing.weights, routing.row_of
        return fused_combine_norm(rows, weights, row_of, residual, weight, epsilon)
    total = reference.combine(rows, routing.weights, routing.row_of, residual)
    return total, reference.rms_norm(total, weight, epsilon)

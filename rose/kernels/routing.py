"""Which expert computes which row, and the weighted sum of what they computed."""

from dataclasses import dataclass

from torch import Tensor

from rose.kernels import reference


@dataclass(frozen=True, slots=True)
class Routing:
    """Each token's k experts, and the (token, expert) pairs as rows sorted by expert.

    Attributes:
        weights: router's dtype [tokens, k], best expert first; each row adds up to 1.
        row_of: int64 [tokens, k]; the row that computes each pair.
        token_of_row: int64 [tokens * k]; rows of one expert keep the order of tokens.
        tokens_per_expert: int64 [experts].
    """

    weights: Tensor
    row_of: Tensor
    token_of_row: Tensor
    tokens_per_expert: Tensor


def route(logits: Tensor, k: int) -> Routing:
    """Choose k experts a token.

    Args:
        logits: [tokens, experts]. Equal logits go to the lower expert first.
        k: experts a token.

    Returns:
        The choice; weights are the softmax of the k chosen logits alone, in float32, rounded to
        the logits' dtype.
    """
    weights, experts = reference.top_experts(logits, k)
    row_of, token_of_row, tokens_per_expert = reference.sort_by_expert(experts, logits.shape[1])
    return Routing(weights, row_of, token_of_row, tokens_per_expert)


def combine(rows: Tensor, routing: Routing) -> Tensor:
    """Each token's weighted sum, in float32 and in the order of `routing.weights`.

    Args:
        rows: [tokens * k, width], in the routing's order of rows.
        routing: who computed what.

    Returns:
        rows' dtype [tokens, width].
    """
    return reference.combine(rows, routing.weights, routing.row_of)

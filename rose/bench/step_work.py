"""What the large ops of a window of engine steps must move and compute, by the model's shape.

The ops are those that a trace can tell apart: attention, the experts' products, and the four dense
products. Small ones (norms, routing, sampling) count as overhead and have no entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rose.bench.ceiling import (
    ATTENTION_SHARE,
    BF16_BYTES,
    WEIGHT_BYTES,
    Rates,
    StoredBytes,
    experts_read,
    sliding_pairs,
)
from rose.config import FULL, SLIDING, ModelConfig

DENSE_OPS = ("qkv", "out", "router", "head")
"""In the order in which a layer, and then the model, runs them."""


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes that an op must move at least, FLOP that it computes, and the FLOP/s it could have."""

    bytes: float
    flop: float
    flop_rate: float

    def least_seconds(self, read_rate: float) -> float:
        """At the ceilings: the longer of moving and computing."""
        return max(self.bytes / read_rate, self.flop / self.flop_rate)


@dataclass(frozen=True, slots=True)
class Window:
    """Steps that were recorded.

    Attributes:
        steps: how many.
        tokens: run by all of them.
        sampled: rows whose logits were computed.
        full_pairs, sliding_pairs: (query, key) pairs that attention scores in one layer.
        full_keys, sliding_keys: keys that it must read in one layer, once a sequence and step.
    """

    steps: int
    tokens: int
    sampled: int
    full_pairs: float
    sliding_pairs: float
    full_keys: float
    sliding_keys: float


def prefill_window(model: ModelConfig, *, prompts: int, tokens: int, steps: int) -> Window:
    """`prompts` whole prompts of `tokens` tokens, run in `steps` steps.

    Keys count once, however often chunks read them again: an implementation could keep them.
    """
    return Window(
        steps=steps,
        tokens=prompts * tokens,
        sampled=prompts,
        full_pairs=prompts * tokens * (tokens + 1) / 2,
        sliding_pairs=prompts * sliding_pairs(model, tokens),
        full_keys=prompts * tokens,
        sliding_keys=prompts * tokens,
    )


def decode_window(model: ModelConfig, *, contexts: Sequence[int], steps: int) -> Window:
    """`steps` steps of one token for each sequence; the first of them sees `contexts` keys."""
    full = sliding = 0
    for context in contexts:
        lengths = range(context, context + steps)
        full += sum(lengths)
        sliding += sum(min(length, model.sliding_window) for length in lengths)
    rows = len(contexts) * steps
    return Window(
        steps=steps,
        tokens=rows,
        sampled=rows,
        full_pairs=full,
        sliding_pairs=sliding,
        full_keys=full,
        sliding_keys=sliding,
    )


def work_of(model: ModelConfig, quantization: str, window: Window, rates: Rates) -> dict[str, Work]:
    """The work of each op over the whole window, all layers.

    Raises:
        ValueError: the quantization is unknown.
    """
    stored = StoredBytes.of(quantization)
    if stored is None:
        raise ValueError(f"how many bytes a weight takes in {quantization!r} is unknown")
    query, kv = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    hidden, layers = model.hidden_size, model.num_layers
    bf16_rate = rates.attention / ATTENTION_SHARE

    def dense(rows: int, times: int, inputs: int, outputs: int, bytes_each: float) -> Work:
        weights = bytes_each * window.steps * inputs * outputs
        moved = times * (weights + 2.0 * rows * (inputs + outputs))
        rate = bf16_rate if bytes_each == BF16_BYTES else rates.matmul
        return Work(moved, 2.0 * times * rows * inputs * outputs, rate)

    return {
        "attention": _attention(model, window, rates),
        "experts": _experts(model, stored.experts, window, rates, bf16_rate),
        "qkv": dense(window.tokens, layers, hidden, query + 2 * kv, stored.dense),
        "out": dense(window.tokens, layers, query, hidden, stored.dense),
        "router": dense(window.tokens, layers, hidden, model.num_experts, BF16_BYTES),
        "head": dense(window.sampled, 1, hidden, model.vocab_size, stored.dense),
    }


def all_dense(work: dict[str, Work]) -> Work:
    """The dense products as one, for a trace that cannot tell which is which."""
    parts = [work[op] for op in DENSE_OPS]
    return Work(sum(p.bytes for p in parts), sum(p.flop for p in parts), parts[0].flop_rate)


def _attention(model: ModelConfig, window: Window, rates: Rates) -> Work:
    query, kv = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    full, sliding = model.layers_of_group(FULL), model.layers_of_group(SLIDING)
    pairs = full * window.full_pairs + sliding * window.sliding_pairs
    keys = full * window.full_keys + sliding * window.sliding_keys
    queries = model.num_layers * window.tokens
    # Keys and values in; queries in, outputs out.
    moved = 2.0 * (2 * kv * keys + 2 * query * queries)
    return Work(moved, 4.0 * query * pairs, rates.attention)


def _experts(
    model: ModelConfig, bytes_each: float, window: Window, rates: Rates, bf16_rate: float
) -> Work:
    matrices = 3 * model.hidden_size * model.intermediate_size
    weights = window.steps * experts_read(model, window.tokens / window.steps) * matrices
    rows = window.tokens * model.experts_per_token
    # The token's row in, gate and up out and (as one) in again, the result out.
    activations = 2.0 * rows * (2 * model.hidden_size + 3 * model.intermediate_size)
    moved = weights * bytes_each + activations
    flop = 2.0 * rows * matrices
    rate = rates.matmul if bytes_each == WEIGHT_BYTES["fp8"] else bf16_rate
    return Work(model.num_layers * moved, model.num_layers * flop, rate)

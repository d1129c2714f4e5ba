"""What the hardware allows: the least seconds of a prefill and of a decode step.

Counted from the model's shape and from rates measured on the same chip. Both are bounds that no
engine reaches; what share of them is reached says how much is left.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

from rose.bench.results import BenchError, Cell, Machine, Result, RooflineCell, median
from rose.config import FULL, SLIDING, ModelConfig

PREFILL_OVERHEAD = 1.1
"""Norms, routing, activations and what else is no product take a tenth more, with kernels fused."""

ATTENTION_SHARE = 0.77
"""Of the rate of bf16 GEMMs: what FlashAttention-3 reaches beside them on Hopper (540 of 701)."""

WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0 + 4 / 128**2, "mxfp4": 4.25 / 8}
"""A weight with its share of the scales."""

BF16_BYTES = 2
"""The router is bfloat16 under every quantization, and so is the KV cache."""


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes of a weight of the experts, and of attention's projections and the head."""

    experts: float
    dense: float

    @classmethod
    def of(cls, quantization: str) -> Self | None:
        """By its name, as "mxfp4", or "mxfp4+fp8" with dense layers in FP8; None: unknown."""
        experts, _, dense = quantization.partition("+")
        if experts not in WEIGHT_BYTES or (dense or "bf16") not in WEIGHT_BYTES:
            return None
        return cls(WEIGHT_BYTES[experts], WEIGHT_BYTES[dense or "bf16"])


@dataclass(frozen=True, slots=True)
class Rates:
    """What one GPU sustains.

    Attributes:
        matmul: FLOP/s of the fastest products that the experts may use.
        attention: FLOP/s of causal attention in bfloat16.
        read: B/s from memory.
        source: where the rates are from, for a reader.
    """

    matmul: float
    attention: float
    read: float
    source: str


H200 = Rates(
    matmul=1.1e15,
    attention=540e12,
    read=4.2e12,
    source=(
        "rates of one H200 measured on 2026-11-29 "
        "(grouped FP8 1100, attention 540 TFLOP/s, 4.2 TB/s)"
    ),
)


def rates_from(
    cells: Iterable[Cell], source: str, *, chosen: Callable[[list[float]], float] = median
) -> Rates:
    """Rates out of the cells of `rose bench roofline`.

    The rate of products is that of the grouped FP8 GEMM, which the experts are; else of the fastest
    GEMM measured.

    Args:
        cells: that hold them, among others.
        source: where they are from.
        chosen: which of a cell's samples counts.

    Raises:
        BenchError: a read rate or any GEMM is missing.
    """
    rates = {c.name: c.amount / chosen(c.samples) for c in cells if isinstance(c, RooflineCell)}
    grouped = [rate for name, rate in rates.items() if name.startswith("grouped gemm fp8")]
    gemms = [rate for name, rate in rates.items() if name.startswith("gemm")]
    # Attention runs in bfloat16, on a CPU in float32.
    plain = [rate for name, rate in rates.items() if name.startswith(("gemm bf16", "gemm fp32"))]
    if "read" not in rates or not plain:
        raise BenchError(
            f"{source} holds no read rate or no bf16 or fp32 GEMM: make it with rose bench roofline"
        )
    return Rates(
        matmul=max(grouped or gemms),
        attention=ATTENTION_SHARE * max(plain),
        read=rates["read"],
        source=source,
    )


def rates_from_result(result: Result, source: str) -> Rates:
    """The same, of a whole result file; the source names its machine too."""
    return rates_from(result.cells, f"{source} ({result.machine.name}, {result.created[:10]})")


def rates_known(machine: Machine) -> Rates | None:
    """Those measured before on the same chip; None: there are none."""
    return H200 if "H200" in machine.name else None


def matrix_flop(model: ModelConfig) -> int:
    """FLOP of all products with weights for one token, without the head."""
    expert = 3 * model.hidden_size * model.intermediate_size
    router = model.hidden_size * model.num_experts
    layer = _attention_weights(model) + router + model.experts_per_token * expert
    return 2 * model.num_layers * layer


def head_flop(model: ModelConfig) -> int:
    """FLOP of the logits of one token."""
    return 2 * model.vocab_size * model.hidden_size


def sliding_pairs(model: ModelConfig, tokens: int) -> float:
    """(query, key) pairs that a sliding layer scores over one prompt."""
    window = min(model.sliding_window, tokens)
    return window * (window + 1) / 2 + (tokens - window) * window


def experts_read(model: ModelConfig, tokens: float) -> float:
    """Experts of a layer that `tokens` tokens pick, if they pick independently and evenly."""
    untouched: float = (1 - model.experts_per_token / model.num_experts) ** tokens
    return model.num_experts * (1 - untouched)


def attention_flop(model: ModelConfig, tokens: int) -> float:
    """FLOP of causal attention over one prompt, in all layers."""
    width = model.num_heads * model.head_dim
    pairs_full = tokens * (tokens + 1) / 2
    full, sliding = model.layers_of_group(FULL), model.layers_of_group(SLIDING)
    return 4 * width * (full * pairs_full + sliding * sliding_pairs(model, tokens))


def prefill_seconds(
    model: ModelConfig, tokens: int, batch: int, rates: Rates, *, gpus: int = 1
) -> float:
    """The least seconds until the last of `batch` prompts of `tokens` tokens has its first token.

    All products count at the rate of the fastest, whatever the quantization, and the GPUs share
    the work without loss.
    """
    products = matrix_flop(model) * tokens / rates.matmul
    attention = attention_flop(model, tokens) / rates.attention
    head = head_flop(model) / rates.matmul
    return PREFILL_OVERHEAD * batch * (products + attention + head) / gpus


def decode_bytes(model: ModelConfig, quantization: str, context: int, batch: int) -> float:
    """Bytes that one decode step must read: weights (of `experts_read`) once, every sequence's KV.

    Raises:
        ValueError: the quantization is unknown.
    """
    stored = StoredBytes.of(quantization)
    if stored is None:
        raise ValueError(f"how many bytes a weight takes in {quantization!r} is unknown")
    matrices = 3 * model.hidden_size * model.intermediate_size
    router = model.hidden_size * model.num_experts
    dense = stored.dense * _attention_weights(model) + BF16_BYTES * router
    experts = experts_read(model, batch) * matrices * stored.experts
    layers = model.num_layers * (dense + experts)
    head = stored.dense * model.vocab_size * model.hidden_size
    return layers + head + batch * _kv_bytes(model, context)


def decode_seconds(
    model: ModelConfig,
    quantization: str,
    context: int,
    batch: int,
    rates: Rates,
    *,
    gpus: int = 1,
) -> float:
    """The least seconds of a decode step: its bytes at the rate of memory, or its products."""
    read = decode_bytes(model, quantization, context, batch) / rates.read
    products = batch * (matrix_flop(model) + head_flop(model)) / rates.matmul
    return max(read, products) / gpus


def _attention_weights(model: ModelConfig) -> int:
    """Weights of the four projections of a layer."""
    query, kv = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    return model.hidden_size * (2 * query + 2 * kv)


def _kv_bytes(model: ModelConfig, context: int) -> int:
    """Bytes of one sequence's keys and values that a step reads."""
    token = 2 * model.num_kv_heads * model.head_dim * BF16_BYTES
    full, sliding = model.layers_of_group(FULL), model.layers_of_group(SLIDING)
    return token * (full * context + sliding * min(context, model.sliding_window))

"""Which implementation of an op serves which tensors: one table.

The reference runs anywhere and in any dtype. Fused kernels are for a GPU and bfloat16.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


class Implementation(Enum):
    """Who computes an op."""

    REFERENCE = "reference"
    TRITON = "triton"
    CUDA = "cuda"
    FA3 = "fa3"


@dataclass(frozen=True, slots=True)
class Shape:
    """What an implementation may depend on besides device and dtype; 0 where it has no meaning.

    Attributes:
        head_dim: of attention's queries, keys and values.
        block_size: of the KV cache.
        windowed: whether the layer sees a sliding window only.
        chunks: whether the rows are those of prompt chunks, which run many tokens of a sequence.
        rows: of a product of experts, of all together.
        experts: that share the rows.
        widths: of their matrices, which are packed MXFP4.
    """

    head_dim: int = 0
    block_size: int = 0
    windowed: bool = False
    chunks: bool = False
    rows: int = 0
    experts: int = 0
    widths: tuple[int, ...] = ()

    @property
    def ragged(self) -> bool:
        """Whether products in Triton cannot take it: they want powers of two from 16 on."""
        return any(n < 16 or n & (n - 1) for n in (self.head_dim, self.block_size))


@dataclass(frozen=True, slots=True)
class Rule:
    """`implementation` serves `op` if `accepts` says so; "*" is every op."""

    op: str
    implementation: Implementation
    accepts: Callable[[Shape], bool]


def _any(shape: Shape) -> bool:
    return True


@cache
def _installed(module: str) -> bool:
    return find_spec(module) is not None


def _fa3(shape: Shape) -> bool:
    """Whether FlashAttention-3 can serve: TMA reads whole pages of 128 keys."""
    fits = shape.head_dim == 64 and shape.block_size % 128 == 0
    return fits and _installed("flash_attn_interface")


def _triton(shape: Shape) -> bool:
    return _installed("triton")


def _cuda(shape: Shape) -> bool:
    """Whether the experts' kernel in CUDA C++ can serve, and is the faster one."""
    if not shape.experts:
        return False
    from rose.kernels.cuda import experts_mxfp4

    return experts_mxfp4.serves(shape.rows, shape.experts, shape.widths)


TABLE = (
    # Measured on an H200: FA3 is a quarter faster where products bound it, and slower elsewhere.
    Rule(
        "attention",
        Implementation.FA3,
        lambda shape: shape.chunks and not shape.windowed and _fa3(shape),
    ),
    Rule("attention", Implementation.TRITON, lambda shape: not shape.ragged and _triton(shape)),
    Rule("attention", Implementation.FA3, _fa3),
    Rule("attention", Implementation.REFERENCE, _any),
    Rule("experts", Implementation.CUDA, _cuda),
    Rule("*", Implementation.TRITON, _triton),
    Rule("*", Implementation.REFERENCE, _any),
)
"""The first rule that accepts wins."""

FLOAT32_OPS = frozenset({"sampling"})
"""Ops whose operand, the logits, is float32 in any model; all others are fused in bfloat16."""

BFLOAT16_OPS = frozenset({"experts", "linear_bf16", "linear_fp8", "routing"})
"""Ops whose fused kernels take nothing else, even where they are forced: experts and FP8 products
round to bfloat16 inside, the keys of routing hold 16 bits of a logit."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """What `choose` may answer, and whether only for a GPU and bfloat16."""

    allowed: frozenset[Implementation]
    anywhere: bool


_EVERYTHING = _Limits(frozenset(Implementation), anywhere=False)

_limits: ContextVar[_Limits] = ContextVar("limits", default=_EVERYTHING)


def choose(op: str, x: Tensor, shape: Shape | None = None) -> Implementation:
    """Who computes `op` on `x`.

    Args:
        op: the op's name.
        x: its main operand, which decides by device and dtype.
        shape: what else the table asks.
    """
    limits = _limits.get()
    eligible = x.device.type == "cuda" and (x.dtype == torch.bfloat16 or op in FLOAT32_OPS)
    forced = limits.anywhere and (x.dtype == torch.bfloat16 or op not in BFLOAT16_OPS)
    if not (eligible or forced):
        return Implementation.REFERENCE
    # The reference is never left out: it serves what the others cannot.
    allowed = limits.allowed | {Implementation.REFERENCE}
    for rule in TABLE:
        serves = rule.op in (op, "*") and rule.implementation in allowed
        if serves and rule.accepts(shape or Shape()):
            return rule.implementation
    return Implementation.REFERENCE


def use_triton(op: str, x: Tensor) -> bool:
    """Whether the Triton kernel computes `op` on `x`; the reference does otherwise."""
    return choose(op, x) is Implementation.TRITON


@contextmanager
def only(*implementations: Implementation) -> Iterator[None]:
    """Leave the table these implementations, and the reference for what they don't serve."""
    with _limited(_Limits(frozenset(implementations), anywhere=False)):
        yield


@contextmanager
def force(*implementations: Implementation) -> Iterator[None]:
    """Let these serve every op that they have, on any device: for tests and benches."""
    with _limited(_Limits(frozenset(implementations), anywhere=True)):
        yield


@contextmanager
def _limited(limits: _Limits) -> Iterator[None]:
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)

"""Dense bfloat16 products of few rows at the shapes of gpt-oss: the kernel beside cuBLAS.

QKV also with the rotation and the write to the cache, in one kernel beside two.
"""

from collections.abc import Callable, Iterator
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.kernel_cases.case import Case
from rose.kernels.fused import linear_bf16, qkv_bf16, rope_kv
from rose.kernels.paged_kv import LayerKV

SHAPES = {"qkv": (5120, 2880), "output": (2880, 4096)}
"""Output and input widths."""
TOKENS = (1, 4, 8, 16, 32, 64)
BF16 = 2
HEADS, KV_HEADS, HEAD_DIM = 64, 8, 64


def cases() -> Iterator[Case]:
    """Each shape and number of tokens twice; `linear_bf16.FEW_ROWS` follows from the results."""
    products = {"triton": linear_bf16.linear, "cublas": F.linear}
    for name, (out, width) in SHAPES.items():
        for tokens in TOKENS:
            inputs = operands(out, width, tokens)
            moved = BF16 * float(out * width + tokens * (out + width))
            flops = 2.0 * tokens * out * width
            for who, product in products.items():
                label = f"linear bf16 {name} tokens={tokens} {who}"
                yield Case(label, _call(product, inputs), moved, flops)
            if name == "qkv":
                for kernels, run in _rotated(tokens, inputs).items():
                    yield Case(f"qkv rope cache tokens={tokens} {kernels}", run, moved, flops)


def operands(out: int, width: int, tokens: int) -> Callable[[], tuple[Tensor, Tensor, Tensor]]:
    """x, a weight and a bias, made when first called."""

    @cache
    def made() -> tuple[Tensor, Tensor, Tensor]:
        shapes = ((tokens, width), (out, width), (out,))
        x, weight, bias = (torch.randn(shape, device="cuda").bfloat16() for shape in shapes)
        return x, weight * width**-0.5, bias

    return made


def _call(
    product: Callable[[Tensor, Tensor, Tensor], Tensor],
    inputs: Callable[[], tuple[Tensor, Tensor, Tensor]],
) -> Callable[[], object]:
    return lambda: product(*inputs())


def _rotated(
    tokens: int, inputs: Callable[[], tuple[Tensor, Tensor, Tensor]]
) -> dict[str, Callable[[], object]]:
    """The product, the rotation and the cache's write by one kernel and by two."""

    @cache
    def places() -> tuple[Tensor, Tensor, Tensor, LayerKV]:
        cos = torch.randn(tokens, HEAD_DIM // 2, device="cuda")
        shape = (8, 128, KV_HEADS, HEAD_DIM)
        key, value = (torch.empty(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        return cos, cos, torch.randperm(1024, device="cuda")[:tokens], LayerKV(key, value)

    def two() -> object:
        return rope_kv.rope_write_kv(linear_bf16.linear(*inputs()), *places(), HEADS)

    return {"one": lambda: qkv_bf16.linear_qkv(*inputs(), *places(), HEADS), "two": two}

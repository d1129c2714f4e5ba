"""Dense bfloat16 products of few rows at the shapes of gpt-oss: the kernel beside cuBLAS."""

from collections.abc import Callable, Iterator
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.kernel_cases.case import Case
from rose.kernels.fused import linear_bf16

SHAPES = {"qkv": (5120, 2880), "output": (2880, 4096)}
"""Output and input widths."""
TOKENS = (1, 4, 8, 16, 32, 64)
BF16 = 2


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

"""The experts' products and dense FP8 products at the shapes of gpt-oss.

Tokens choose their experts uniformly, as the byte counts assume: a case reads the weights of the
experts that got a row, once.
"""

from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from bench.kernel_cases.case import Case
from rose.kernels.cuda import experts_mxfp4 as cuda_experts_mxfp4
from rose.kernels.fused import experts_bf16, experts_fp8, experts_mxfp4, linear_fp8
from rose.kernels.fused.quantize import quantize_fp8_rows
from rose.kernels.matrices import Fp8Matrices, Mxfp4Matrices
from rose.kernels.mxfp4_tiles import tiled_scales_shape
from rose.kernels.quantize import FP8_BLOCK, ceil_div
from rose.kernels.routing import Routing, route

WIDTH = 2880
"""Hidden and intermediate size."""
K = 4
LIMIT = 7.0
TOKENS = (1, 4, 8, 16, 32, 64, 128, 256, 1024, 8192, 16384)
MODELS = {"20b": 32, "120b": 128}
DENSE = {"qkv": (5120, 2880), "output": (2880, 4096)}

CUDA = "mxfp4 cuda"
"""MXFP4 by the kernel in CUDA C++, where rows are many."""
LEAST_ROWS = 16
"""An expert, from which on that one is timed."""

KERNELS = {
    "bf16": experts_bf16,
    "fp8": experts_fp8,
    "mxfp4": experts_mxfp4,
    CUDA: cuda_experts_mxfp4,
}
WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "mxfp4": 17 / 32, CUDA: 17 / 32}
ACTIVATION_BYTES = {"bf16": 2.0, "fp8": 1.0, "mxfp4": 2.0, CUDA: 2.0}


def cases() -> Iterator[Case]:
    """Both products by format, model and tokens; then dense ones."""
    for model, experts in MODELS.items():
        for tokens in TOKENS:
            for name in WEIGHT_BYTES:
                if name == "bf16" and model == "120b":
                    continue
                if name == CUDA and tokens * K < LEAST_ROWS * experts:
                    continue
                yield _case("gate_up", name, model, experts, tokens)
                yield _case("down", name, model, experts, tokens)
    for name in DENSE:
        for tokens in (1, 8, 16, 64, 256, 8192):
            yield _dense_case(name, tokens)


def _case(product: str, name: str, model: str, experts: int, tokens: int) -> Case:
    rows, parts = tokens * K, 2 if product == "gate_up" else 1
    weights = parts * WIDTH * WIDTH
    busy = experts * (1 - (1 - K / experts) ** tokens)
    read = tokens if product == "gate_up" else rows
    activations = ACTIVATION_BYTES[name] * WIDTH * (read + (rows if parts == 2 else 0))
    moved = busy * weights * WEIGHT_BYTES[name] + activations
    if product == "down":
        moved += 2.0 * WIDTH * rows
    return Case(
        f"experts {product} {name} {model} tokens={tokens}",
        run_product(product, name, experts, tokens),
        moved,
        2.0 * rows * weights,
    )


def run_product(product: str, name: str, experts: int, tokens: int) -> Callable[[], object]:
    """A call of one product, with random routing; its inputs are made when it is first called."""

    @cache
    def inputs() -> tuple[Routing, object, Tensor, Tensor]:
        generator = torch.Generator("cuda").manual_seed(0)
        logits = torch.randn(tokens, experts, generator=generator, device="cuda")
        routing = route(logits.bfloat16(), K)
        parts = 2 if product == "gate_up" else 1
        rows = tokens if product == "gate_up" else tokens * K
        x = torch.randn(rows, WIDTH, generator=generator, device="cuda").bfloat16()
        bias = torch.randn(experts, parts * WIDTH, generator=generator, device="cuda").bfloat16()
        return routing, _weights(name.split()[0], experts, parts), x, bias

    @cache
    def quantised() -> tuple[Tensor, Tensor]:
        return quantize_fp8_rows(inputs()[2])

    def run() -> object:
        routing, weight, x, bias = inputs()
        kernels = KERNELS[name]
        operands = quantised() if name == "fp8" else (x,)
        if product == "gate_up":
            return kernels.gate_up(*operands, routing, weight, bias, LIMIT)
        return kernels.down(*operands, routing, weight, bias)

    return run


@cache
def _weights(name: str, experts: int, parts: int) -> object:
    """Random bits that are numbers of about the right size; shared by all cases."""
    shape = (experts, parts, WIDTH, WIDTH)
    if name == "bf16":
        weight = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
        return weight.normal_(0, WIDTH**-0.5)
    if name == "fp8":
        codes = torch.randint(0, 0x7E, shape, dtype=torch.uint8, device="cuda")
        runs = ceil_div(WIDTH, FP8_BLOCK)
        scales = torch.full((experts, parts, runs, runs), 2.0**-12, device="cuda")
        return Fp8Matrices(codes.view(torch.float8_e4m3fn), scales)
    groups = WIDTH // 32
    blocks = torch.randint(
        0, 256, (experts, parts, WIDTH, groups, 16), dtype=torch.uint8, device="cuda"
    )
    scale_shape = (experts, parts, *tiled_scales_shape(WIDTH, groups))
    scales = torch.full(scale_shape, 119, dtype=torch.uint8, device="cuda")
    return Mxfp4Matrices(blocks, scales, tiled=True)


def _dense_case(name: str, tokens: int) -> Case:
    out, width = DENSE[name]

    @cache
    def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        x = torch.randn(tokens, width, device="cuda").bfloat16()
        codes = torch.randint(0, 0x7E, (out, width), dtype=torch.uint8, device="cuda")
        grid = (ceil_div(out, FP8_BLOCK), ceil_div(width, FP8_BLOCK))
        scales = torch.full(grid, 2.0**-12, device="cuda")
        bias = torch.randn(out, device="cuda").bfloat16()
        return *quantize_fp8_rows(x), codes.view(torch.float8_e4m3fn), scales, bias

    moved = float(out * width + tokens * (width + 2 * out))
    flops = 2.0 * tokens * out * width
    return Case(
        f"linear fp8 {name} tokens={tokens}", lambda: linear_fp8.multiply(*inputs()), moved, flops
    )

"""Which tiling is best for dense products of few rows: what the kernels' tables are made of.

    python -m bench.tune_linear [bf16|fp8] [--tokens 1,8,16,32] [--samples 7] [--compile]

Times every candidate at the shapes of gpt-oss's attention on one GPU, operands cold, as
bench/kernels.py does, and prints them in the order of their times, * the one of the table and
"usual" what serves without these kernels. With --compile it only compiles them for Hopper, which
needs no GPU: into TRITON_CACHE_DIR, for a run with the same Triton.
"""

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.kernel_cases.dense import SHAPES
from bench.kernels import Timer
from rose.kernels.fused import linear_bf16, linear_fp8
from rose.kernels.fused.skinny_tiles import SkinnyTiling
from rose.kernels.quantize import FP8_BLOCK, ceil_div

TABLES = {"bf16": linear_bf16.TILINGS, "fp8": linear_fp8.FEW_TILINGS}


def candidates(name: str, block_m: int) -> Iterator[SkinnyTiling]:
    """Tilings worth a try; parts of FP8 have 128 inner values."""
    steps = (64, 128) if name == "bf16" else (FP8_BLOCK,)
    longest = 512 if name == "bf16" else 1024
    # Few columns for few tokens: a program reads all tokens' rows.
    widths = {8: (16, 32), 16: (16, 32, 64)}.get(block_m, (32,))
    for block_n, parts, step in itertools.product(widths, (2, 4, 8), steps):
        if parts * step <= longest:
            yield SkinnyTiling(block_m, block_n, parts, step, depth=12)
    for depth in (2, 3, 4, 5):
        yield SkinnyTiling(block_m, widths[0], 4, steps[0], depth)


def operands(name: str, out: int, width: int, tokens: int, device: str) -> tuple[Tensor, ...]:
    """What the product takes, in its order."""
    bias = torch.randn(out, device=device).bfloat16()
    if name == "bf16":
        shapes = ((tokens, width), (out, width))
        x, weight = (torch.randn(shape, device=device).bfloat16() for shape in shapes)
        return x, weight * width**-0.5, bias
    runs = ceil_div(width, FP8_BLOCK)
    # Finite whatever the bits: 0x7F alone is none.
    x, values = (
        torch.randint(0, 0x7E, (rows, width), dtype=torch.uint8, device=device)
        for rows in (tokens, out)
    )
    scales = torch.full((ceil_div(out, FP8_BLOCK), runs), 2.0**-12, device=device)
    x_scales = torch.full((tokens, runs), 1.0, device=device)
    return x.view(torch.float8_e4m3fn), x_scales, values.view(torch.float8_e4m3fn), scales, bias


def usual(name: str, inputs: tuple[Tensor, ...]) -> Callable[[], object]:
    """Who serves more rows."""
    if name == "bf16":
        return lambda: F.linear(*inputs)
    return lambda: linear_fp8.multiply_many(*inputs)


def tuned(name: str, tiling: SkinnyTiling, inputs: tuple[Tensor, ...]) -> Callable[[], object]:
    """The kernel with this tiling."""
    module = linear_bf16.multiply_with if name == "bf16" else linear_fp8.multiply_few
    return lambda: module(tiling, *inputs)


def tune(name: str, shape: str, tokens: int, timer: Timer) -> None:
    """Print all tilings of one case."""
    out, width = SHAPES[shape]
    inputs = operands(name, out, width, tokens, "cuda")
    chosen = next(tiling for most, tiling in TABLES[name].items() if tokens <= most)
    found = {"    usual": statistics.median(timer.measure(usual(name, inputs)))}
    for tiling in dict.fromkeys((chosen, *candidates(name, chosen.block_m))):
        stages = tiling.stages(out, width, tokens, inputs[0].itemsize)
        label = f"  {'*' if tiling == chosen else ' '} {stages} stages {tiling}"
        found[label] = statistics.median(timer.measure(tuned(name, tiling, inputs)))
    print(f"{name} {shape} tokens={tokens}")
    for label in sorted(found, key=found.__getitem__):
        print(f"{found[label] * 1e6:9.2f} us {label}", flush=True)


def compile_all(name: str, tokens: list[int]) -> tuple[int, int]:
    """Compile what `tune` would launch of these kernels; how many without spills, and in all."""
    from tools.sm90 import compile_only

    with compile_only() as launches:
        for out, width in SHAPES.values():
            for count in (each for each in tokens if each <= max(TABLES[name])):
                inputs = operands(name, out, width, count, "cpu")
                chosen = next(tiling for most, tiling in TABLES[name].items() if count <= most)
                for tiling in dict.fromkeys((chosen, *candidates(name, chosen.block_m))):
                    tuned(name, tiling, inputs)()
    return sum(not launch.stack for launch in launches), len(launches)


def main() -> None:
    """Tune, or compile, what the command line names."""
    parser = argparse.ArgumentParser(description="Time the tilings of dense products of few rows.")
    parser.add_argument("format", nargs="?", choices=TABLES)
    parser.add_argument("--tokens", default="1,8,16,32", metavar="N,N,...")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    tokens = [int(each) for each in options.tokens.split(",")]
    names = [options.format] if options.format else list(TABLES)
    if options.compile:
        for name in names:
            print(name, "compiled without spills, and in all:", *compile_all(name, tokens))
        return
    timer = Timer(options.samples)
    for name in names:
        for shape, count in itertools.product(SHAPES, tokens):
            if count <= max(TABLES[name]):
                tune(name, shape, count, timer)


if __name__ == "__main__":
    main()

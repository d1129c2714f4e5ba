"""Which tiling is best for the experts' products, by tokens: what the kernels' tables are made of.

    python -m bench.tune_experts mxfp4 [--experts 128] [--tokens 1,64,8192] [--product down]

Times every candidate on one GPU, operands cold, as bench/kernels.py does, and prints the best ones
beside the one that the table chooses.
"""

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator
from types import ModuleType

from triton.runtime.errors import OutOfResources

from bench.kernel_cases.experts import K, run_product
from bench.kernels import Timer
from rose.kernels.fused import experts_bf16, experts_fp8, experts_mxfp4
from rose.kernels.fused.expert_tiles import Tiling, TilingTable

MODULES = {"bf16": experts_bf16, "fp8": experts_fp8, "mxfp4": experts_mxfp4}
TABLES = {"gate_up": "GATE_UP_TILINGS", "down": "DOWN_TILINGS"}

MOST_STREAMED = 32
"""Rows an expert up to which the streaming kernel for MXFP4 is worth a try."""

FEW, SOME = 0.3, 4
"""Rows an expert up to which programs are few, and up to which eight rows a tile will do."""

# Columns a program of gate and up, its warps, into how many parts they split the inner dimension,
# and how many steps ahead they fetch.
FEW_CUTS: tuple[tuple[int, int, int, tuple[int, ...]], ...] = (
    (8, 4, 4, (1, 2, 3, 5, 6)),
    (8, 2, 2, (2, 4)),
    (8, 1, 1, (4,)),
    (8, 8, 8, (1, 2)),
    (16, 4, 4, (1, 2, 3)),
    (16, 8, 8, (1, 2)),
    (16, 8, 4, (1, 2)),
    (16, 4, 2, (2, 3)),
    (16, 2, 1, (2, 4)),
    (32, 4, 4, (1, 2)),
    (32, 8, 4, (1, 2)),
    (32, 4, 2, (1, 2)),
    (32, 4, 1, (2,)),
    (64, 4, 1, (1,)),
)
CUTS: tuple[tuple[int, int, int, tuple[int, ...]], ...] = (
    (64, 4, 1, (1, 2)),
    (32, 4, 1, (1, 2, 3)),
    (32, 2, 1, (1, 2)),
    (64, 8, 1, (1, 2)),
    (32, 4, 2, (1, 2)),
    (32, 4, 4, (1,)),
    (16, 4, 4, (1, 2)),
)
Run = Callable[[], object]

SHOWN = 10
"""Candidates of a case that are printed."""


def candidates(name: str, product: str, rows_an_expert: float) -> Iterator[Tiling]:
    """Tilings worth a try; FP8 tiles are always 128 columns wide."""
    if name == "mxfp4" and rows_an_expert <= MOST_STREAMED:
        yield from streaming(product, rows_an_expert)
        return
    widths: tuple[int, ...] = (64, 128)
    if rows_an_expert <= 32:
        heights, groups, stages = (16, 32), (1,), (3, 4, 6)
    else:
        heights, groups, stages = (64, 128), (4, 8), (3, 4)
        # One part leaves registers for sums twice as wide.
        widths = (*widths, 256) if product == "down" else widths
    if name == "fp8":
        widths, stages = (128,), (2, *stages)
    for cut in itertools.product(heights, widths, groups, stages):
        block_m, block_n, group, depth = cut
        # Two warp groups would unpack the same 64 columns; one alone would spill larger sums.
        yield Tiling(block_m, block_n, group, 4 if block_n == 64 else 8, depth)
        if block_n == 128 and (block_m <= 32 or (block_m == 64 and name == "fp8")):
            yield Tiling(block_m, block_n, group, 4, depth)


def streaming(product: str, rows_an_expert: float) -> Iterator[Tiling]:
    """Tilings of the streaming kernel for MXFP4, and the best of the other one."""
    # What a program has of columns: as many bytes for either product.
    scale = 1 if product == "gate_up" else 2
    if rows_an_expert <= FEW:
        heights, cuts = (8,), FEW_CUTS
    elif rows_an_expert <= SOME:
        heights, cuts = (8,), CUTS
    else:
        heights, cuts = (8, 16), CUTS
    for block_m in heights:
        for width, warps, split, depths in cuts:
            for depth in depths:
                yield Tiling(block_m, width * scale, 1, warps, depth, split)
    if rows_an_expert > SOME:
        for width, warps, depth in ((64, 4, 1), (64, 8, 2), (32, 4, 1)):
            yield Tiling(32, width * scale, 1, warps, depth, 1)
    narrow = rows_an_expert <= FEW
    yield Tiling(16, 64 if narrow else 128, 1, 4 if narrow else 8, 6 if narrow else 4)


def measure(module: ModuleType, product: str, tiling: Tiling, run: Run, timer: Timer) -> float:
    """Median seconds with this tiling; infinite if it does not fit the chip."""
    table = TABLES[product]
    before = getattr(module, table)
    setattr(module, table, TilingTable((), tiling))
    try:
        return statistics.median(timer.measure(run))
    except OutOfResources:
        return float("inf")
    finally:
        setattr(module, table, before)


def tune(name: str, product: str, tokens: int, experts: int, timer: Timer) -> None:
    """Print the best tilings of one case."""
    module, rows = MODULES[name], tokens * K
    run = run_product(product, name, experts, tokens)
    chosen = getattr(module, TABLES[product]).choose(rows, experts)
    found = {chosen: measure(module, product, chosen, run, timer)}
    for tiling in candidates(name, product, rows / experts):
        if tiling not in found:
            found[tiling] = measure(module, product, tiling, run, timer)
    print(f"{name} {product} tokens={tokens} experts={experts}")
    best = sorted(found, key=found.__getitem__)[:SHOWN]
    for tiling in [*best, *({chosen} - set(best))]:
        mark = "*" if tiling == chosen else " "
        print(f"  {mark} {found[tiling] * 1e6:9.1f} us  {tiling}", flush=True)


def main() -> None:
    """Tune what the command line names."""
    parser = argparse.ArgumentParser(description="Time the tilings of the experts' products.")
    parser.add_argument("format", choices=MODULES)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--tokens", default="1,8,64,256,1024,8192", metavar="N,N,...")
    parser.add_argument("--product", choices=TABLES, action="append")
    parser.add_argument("--samples", type=int, default=7)
    options = parser.parse_args()
    timer = Timer(options.samples)
    for product in options.product or TABLES:
        for tokens in map(int, options.tokens.split(",")):
            tune(options.format, product, tokens, options.experts, timer)


if __name__ == "__main__":
    main()

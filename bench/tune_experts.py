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
Run = Callable[[], object]

SHOWN = 4
"""Candidates of a case that are printed."""


def candidates(name: str, product: str, rows_an_expert: float) -> Iterator[Tiling]:
    """Tilings worth a try; FP8 tiles are always 128 columns wide."""
    widths: tuple[int, ...] = (64, 128)
    if rows_an_expert <= 32:
        heights, groups, stages = (16, 32), (1,), (3, 4, 6)
    else:
        heights, groups, stages = (64, 128), (4, 8), (3, 4)
        # One part leaves registers for sums twice as wide.
        widths = (*widths, 256) if product == "down" else widths
    if name == "fp8":
        widths = (128,)
    for cut in itertools.product(heights, widths, groups, stages):
        block_m, block_n, group, depth = cut
        # Two warp groups would unpack the same 64 columns; one alone would spill larger sums.
        yield Tiling(block_m, block_n, group, 4 if block_n == 64 else 8, depth)
        if block_m <= 32 and block_n == 128:
            yield Tiling(block_m, block_n, group, 4, depth)


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

"""Compile every tiling that bench/tune_experts.py times, for Hopper; needs no GPU.

`python -m tools.compile_tilings mxfp4 [--experts 128] [--tokens 1,64] [--product down]`:
with TRITON_CACHE_DIR a machine with a GPU finds them there and spends no time on it.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

PRODUCTS = ("gate_up", "down")


def main() -> None:
    """Compile what the command line names, in several processes."""
    parser = argparse.ArgumentParser(description="Compile tilings of the experts' products.")
    parser.add_argument("format", choices=("mxfp4",))
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--tokens", default="1,8,64,128,256", metavar="N,N,...")
    parser.add_argument("--product", choices=PRODUCTS, action="append")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    os.environ.pop("TRITON_INTERPRET", None)

    from bench.kernel_cases.experts import K
    from bench.tune_experts import TABLES, candidates
    from rose.kernels.fused import experts_mxfp4

    experts = options.experts
    tilings: dict[tuple[str, int, object, str], None] = {}
    for product in options.product or PRODUCTS:
        for rows in (int(tokens) * K for tokens in options.tokens.split(",")):
            chosen = getattr(experts_mxfp4, TABLES[product]).choose(rows, experts)
            for tiling in (chosen, *candidates(options.format, product, rows / experts)):
                tilings[product, experts, tiling] = None
    print("tiling; registers, stack, shared")
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for line in pool.map(_compile, tilings):
            print(line, flush=True)


def _compile(case: tuple[str, int, object]) -> str:
    from unittest import mock

    from rose.kernels.fused import experts_mxfp4
    from rose.kernels.fused.expert_tiles import Tiling, TilingTable
    from tests.kernels.fused.launches_experts import launches_mxfp4
    from tools.sm90 import compile_only

    product, experts, tiling = case
    assert isinstance(tiling, Tiling)
    none = Tiling(128, 128, 8, 8, 4)
    tables = {
        f"{p.upper()}_TILINGS": TilingTable((), tiling if p == product else none) for p in PRODUCTS
    }
    with compile_only() as compiled, mock.patch.multiple(experts_mxfp4, **tables):
        launches_mxfp4(64, experts)
    one = compiled[PRODUCTS.index(product)]
    return f"{product} {tiling}; {one.registers} {one.stack} {one.shared}"


if __name__ == "__main__":
    main()

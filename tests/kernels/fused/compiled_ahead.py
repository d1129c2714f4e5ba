"""Compile the small kernels ahead for Hopper; print how many then, and how many at their launches.

Without TRITON_INTERPRET; needs no GPU.
"""

import json
import sys

import triton

from rose.kernels.fused.compile_ahead import compile_ahead
from tests.kernels.fused import launches_small
from tools.sm90 import compile_only


def main() -> None:
    compiled: list[str] = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **told: compiled.append(told["repr"])
    with compile_only():
        pass  # sets the target
    with compile_ahead(2):
        launches_small.launches()
    ahead = len(compiled)
    with compile_only() as launches:
        launches_small.launches()
    sys.stdout.write(json.dumps([ahead, len(compiled) - ahead, len(launches)]))


if __name__ == "__main__":
    main()

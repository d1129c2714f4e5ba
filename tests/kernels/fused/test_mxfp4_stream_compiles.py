"""The streaming kernel for MXFP4 as it is compiled: from memory to the tensor cores by registers.

Triton lays out loads and operands by itself. Should its choices part, it would pass every weight
through shared memory, and the kernel would stay right and take twice as long.
"""

import json

import pytest

from tests.kernels.fused.uninterpreted import run_python

SCRIPT = """
import json
from unittest import mock
from rose.kernels.fused import experts_mxfp4
from rose.kernels.fused.expert_tiles import Tiling, TilingTable
from tests.kernels.fused import launches_experts
from tools.sm90 import compile_only

def table(rows, columns, *rest):
    return TilingTable((), Tiling(rows, columns, 1, *rest))

found = []
for rows, columns, *rest in [(8, 64, 4, 1, 1), (8, 16, 4, 2, 4), (16, 32, 4, 2, 1)]:
    with (
        mock.patch.object(experts_mxfp4, "GATE_UP_TILINGS", table(rows, columns, *rest)),
        mock.patch.object(experts_mxfp4, "DOWN_TILINGS", table(rows, 2 * columns, *rest)),
        compile_only() as compiled,
    ):
        launches_experts.launches_mxfp4(64, 128)
    for one in compiled:
        loads = one.ptx.count("ld.global.v4.b32")
        barriers = one.ptx.count("bar.sync")
        found.append((one.stack, one.registers, loads, barriers, one.ptx.count("ldmatrix")))
print(json.dumps(found))
"""


@pytest.mark.timeout(300)
def test_weights_pass_from_memory_to_products():
    for stack, registers, loads, barriers, crossings in json.loads(run_python("-c", SCRIPT)):
        assert stack == 0
        assert registers <= 160
        assert loads > 0
        assert crossings == 0
        # To find the tile and to add up the parts of a split, none in a loop.
        assert barriers <= 16

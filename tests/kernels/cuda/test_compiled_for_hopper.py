"""What compiles kernels without launching them reaches those in CUDA C++: ahead, and for tables."""

import json

import pytest

from tests.kernels.cuda.test_nvrtc import needs_nvrtc
from tests.kernels.fused.uninterpreted import run_python

pytestmark = needs_nvrtc

PROGRAM = """
import json
from pathlib import Path
import torch
from rose.kernels.cuda import nvrtc
from rose.kernels.cuda.kernel import Kernel
from rose.kernels.fused.compile_ahead import compile_ahead
from tools.sm90 import compile_only

compiled = []
compile_ = nvrtc._compile
nvrtc._compile = lambda *asked: compiled.append(asked) or compile_(*asked)
x = torch.zeros(1000)
add = Kernel(Path("tests/kernels/cuda/add.cu"), "add", "PPfi", threads=128, shared=512)
with compile_ahead(2):
    for _ in range(3):
        add.launch((8, 1, 1), x, x, 1.0, 1000)
ahead = len(compiled)
with compile_only() as launches:
    add.launch((4, 1, 1), x, x, 1.0, 500)
    add.launch((8, 1, 1), x, x, 1.0, 1000)
_, launch = launches
launch = {name: getattr(launch, name) for name in launch.__slots__ if name != "cubin"}
print(json.dumps([ahead, len(compiled), launch]))
"""


def test_ahead_and_for_the_table(tmp_path):
    printed = run_python("-c", PROGRAM, TRITON_CACHE_DIR=str(tmp_path))
    ahead, in_all, launch = json.loads(printed)
    assert ahead == in_all == 1
    registers = launch.pop("registers")
    assert 8 <= registers <= 32
    expected = {"kernel": "add", "grid": [8, 1, 1], "warps": 4, "stages": 0, "shared": 512}
    assert launch == expected | {"stack": 0, "wgmma": False, "ptx": ""}


def test_an_error_comes_when_the_block_ends(tmp_path):
    broken = PROGRAM.replace("tests/kernels/cuda/add.cu", str(tmp_path / "add.cu"))
    (tmp_path / "add.cu").write_text("no kernel\n")
    with pytest.raises(AssertionError, match=r"CompileError: add\.cu does not compile"):
        run_python("-c", broken, TRITON_CACHE_DIR=str(tmp_path))

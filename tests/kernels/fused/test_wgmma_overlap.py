"""Products overlap with what prepares their operands: ptxas does not put them in a row.

Where it cannot prove that registers are safe, it waits for each wgmma before the next. It says so,
but nobody sees it, and the kernel stays right and takes about twice as long.
"""

import os
import subprocess
from pathlib import Path

import triton

from tests.kernels.fused.uninterpreted import run_python

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"

WRITE_PTX = """
import sys
from pathlib import Path
from tools.sm90 import compile_only
from tests.kernels.fused.launches_experts import launches
with compile_only() as compiled:
    launches()
texts = {launch.ptx for launch in compiled if launch.wgmma}
for number, text in enumerate(texts):
    (Path(sys.argv[1]) / f"{number}.ptx").write_text(text)
"""


def test_no_product_of_experts_is_serialised(tmp_path):
    run_python("-c", WRITE_PTX, str(tmp_path))
    files = sorted(tmp_path.glob("*.ptx"))
    assert files
    for file in files:
        command = [PTXAS, "-arch=sm_90a", "-o", os.devnull, file]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "serialized" not in done.stdout + done.stderr, done.stderr

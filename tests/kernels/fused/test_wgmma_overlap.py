"""Products overlap with what prepares their operands, as far as this is safe.

Where ptxas cannot prove that registers are safe, it waits for each wgmma before the next. It says
so, but nobody sees it, and the kernel stays right and takes about twice as long. Where Triton lets
a product of registers run on into the loop's next round, ptxas does write to them too early.
"""

import os
import re
import subprocess
from pathlib import Path

import triton

from tests.kernels.fused.uninterpreted import run_python

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"

FROM_REGISTERS = re.compile(r"wgmma\.mma_async[^;]*?\}\s*,\s*\{")
WAIT = re.compile(r"wgmma\.wait_group\.sync\.aligned (\d+)")

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


def test_products_of_experts_are_neither_serialised_nor_left_running(tmp_path):
    run_python("-c", WRITE_PTX, str(tmp_path))
    files = sorted(tmp_path.glob("*.ptx"))
    assert files
    texts = [file.read_text() for file in files]
    waits = [set(WAIT.findall(text)) for text in texts if FROM_REGISTERS.search(text)]
    assert waits
    assert all(each == {"0"} for each in waits)
    for file in files:
        command = [PTXAS, "-arch=sm_90a", "-o", os.devnull, file]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "serialized" not in done.stdout + done.stderr, done.stderr

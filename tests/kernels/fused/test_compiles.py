"""Every fused kernel compiles for Hopper at the shapes of gpt-oss, within the chip's limits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.compile_kernels import known

ROOT = Path(__file__).resolve().parents[3]
SHARED_LIMIT = 232448  # bytes a block


@pytest.mark.parametrize("op", known())
def test_compiles_for_hopper(op):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tools.compile_kernels", op, "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    launches = json.loads(done.stdout)
    assert launches
    for launch in launches:
        assert launch["shared"] <= SHARED_LIMIT, launch
        assert launch["stack"] == 0, f"registers spill to memory: {launch}"


def test_kernels_compiled_ahead_are_found_when_they_are_launched(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "tests.kernels.fused.compiled_ahead"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    ahead, late, launches = json.loads(done.stdout)
    assert ahead > 10
    assert late == 0
    assert launches > ahead

"""Steps that run before an engine serves compile all that its requests will need."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("quantization", ["mxfp4", "fp8"])
def test_no_request_waits_for_a_compiler(quantization, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.worker.rehearsed_engine", quantization, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rehearsed, late = json.loads(done.stdout)
    assert late == []
    kernels = {each.partition("[")[0] for each in rehearsed}
    assert {f"_experts_{quantization}_kernel", "_attention_chunk_kernel"} <= kernels
    assert ("experts_mxfp4.cu" in kernels) == (quantization == "mxfp4")

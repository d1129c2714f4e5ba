"""Every fused kernel compiles for Hopper at the shapes of gpt-oss, within the chip's limits."""

import json

import pytest

from tests.kernels.fused.uninterpreted import run_python
from tools.compile_kernels import known
from tools.sm90 import SHARED_LIMIT


@pytest.mark.parametrize("op", known())
def test_compiles_for_hopper(op):
    launches = json.loads(run_python("-m", "tools.compile_kernels", op, "--json"))
    assert launches
    for launch in launches:
        assert launch["shared"] <= SHARED_LIMIT, launch
        assert launch["stack"] == 0, f"registers spill to memory: {launch}"


def test_kernels_compiled_ahead_are_found_when_they_are_launched(tmp_path):
    module = "tests.kernels.fused.compiled_ahead"
    printed = run_python("-m", module, TRITON_CACHE_DIR=str(tmp_path))
    ahead, late, launches = json.loads(printed)
    assert ahead > 10
    assert late == 0
    assert launches > ahead

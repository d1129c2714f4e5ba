"""Steps of the rehearsal meet every row of the tables that choose kernels by the number of rows.

`test_rehearsal.py` sees all kernels of an engine, of one number of experts.
"""

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from rose.config import EngineConfig, ModelConfig, SchedulerConfig
from rose.kernels import experts
from rose.kernels.cuda import nvrtc
from rose.kernels.dispatch import Implementation, Shape, choose, force
from rose.kernels.fused import experts_bf16, experts_fp8, experts_mxfp4
from rose.worker.largest_step import rehearsal
from tools.make_tiny_checkpoint import Sizes, make_config

MODEL = ModelConfig.from_dicts(make_config(Sizes()), {}, source="test")
FORMATS = {"bf16": experts_bf16, "fp8": experts_fp8, "mxfp4": experts_mxfp4}
MOST = 8192
OPERAND = torch.empty(0, dtype=torch.bfloat16)

USUAL = [(8, 4), (32, 4), (128, 4), (128, 8), (256, 8)]
"""Experts, and those of a token."""
BETWEEN = [(24, 4), (48, 4), (96, 8), (128, 6), (64, 6)]
"""No power of two of tokens gives each expert more than 24 and less than 40 rows."""


@pytest.fixture(params=[False, True], ids=["", "nvrtc"])
def compiler(request, monkeypatch):
    """Whether NVRTC is installed."""
    monkeypatch.setattr(nvrtc, "available", lambda: request.param)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("count", "k"), USUAL + BETWEEN)
def test_every_tiling_of_experts_is_rehearsed(name, count, k, compiler):
    def chosen(tokens):
        rows = tokens * k
        shape = Shape(rows=rows, experts=count, widths=(64, 64)) if name == "mxfp4" else None
        if choose(experts.OP, OPERAND, shape) is Implementation.CUDA:
            return {Implementation.CUDA}
        tables = (FORMATS[name].GATE_UP_TILINGS, FORMATS[name].DOWN_TILINGS)
        return {(place, table.choose(rows, count)) for place, table in enumerate(tables)}

    scheduler = SchedulerConfig(max_num_seqs=4, max_batched_tokens=MOST, chunk_size=MOST)
    config = EngineConfig(model=MODEL, path=None, served_name="x", scheduler=scheduler)
    with force(Implementation.TRITON, Implementation.CUDA):
        rehearsed = set().union(*(chosen(step.num_tokens) for step in rehearsal(config)))
        assert set().union(*map(chosen, range(1, MOST + 1))) == rehearsed

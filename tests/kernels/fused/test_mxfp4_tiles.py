"""The form of MXFP4 that fused kernels read: there and back, and what they make of it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rose.kernels.dispatch import Implementation, force
from rose.kernels.fused import experts_mxfp4
from rose.kernels.matrices import Mxfp4Matrices
from rose.kernels.mxfp4_tiles import MAX_TILED_SCALE, tile_scales
from rose.kernels.quantize import dequantize_mxfp4
from rose.quant import quant_scheme
from tests.kernels.fused.expert_inputs import route_counts
from tests.kernels.fused.fused_checks import poisoned

EXACT_SCALES = (67, MAX_TILED_SCALE + 1)
"""Scale bytes from 2^-60 on: weights down to 2^-61 stay normal numbers inside the kernel."""


def random_matrices(rows, groups, seed=0, scales=(0, MAX_TILED_SCALE + 1)):
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (1, 1, rows, groups, 16), generator=generator)
    exponents = torch.randint(*scales, (1, 1, rows, groups), generator=generator)
    return Mxfp4Matrices(blocks.to(torch.uint8), exponents.to(torch.uint8), tiled=False)


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(1, 9), groups=st.integers(1, 9), seed=st.integers(0, 99))
def test_there_and_back(rows, groups, seed):
    matrices = random_matrices(rows, groups, seed)
    tiled = matrices.as_tiled()
    assert tiled.tiled
    assert tiled.blocks.shape == matrices.blocks.shape
    assert not torch.equal(tiled.blocks, matrices.blocks)
    back = tiled.as_published()
    assert torch.equal(back.blocks, matrices.blocks)
    assert torch.equal(back.scales, matrices.scales)


@pytest.mark.parametrize("groups", [2, 5])
def test_every_weight_is_read_exactly_and_in_its_place(groups, device):
    """Rows of the identity: what comes out is the matrix itself, every code under many scales."""
    width = 32 * groups
    matrices = random_matrices(48, groups, scales=EXACT_SCALES)
    wanted = dequantize_mxfp4(matrices.blocks, matrices.scales, torch.bfloat16)[0, 0]
    assert len(matrices.blocks.unique()) == 256
    matrices = Mxfp4Matrices(matrices.blocks.to(device), matrices.scales.to(device), tiled=False)
    routing = route_counts([width], 1, device)
    bias = torch.zeros(1, 48, dtype=torch.bfloat16, device=device)
    x = torch.eye(width, dtype=torch.bfloat16, device=device)
    with poisoned():
        found = experts_mxfp4.down(x, routing, matrices.as_tiled(), bias)
    # Zero has a sign, which a sum with other zeros drops.
    assert torch.equal(found.t().cpu() + 0, wanted + 0)


def test_scales_beyond_the_kernels_range_saturate():
    scales = torch.tensor([[0, 192, 193, 255]], dtype=torch.uint8)
    assert tile_scales(scales).flatten().tolist() == [0, 192, 192, 192]


@pytest.mark.parametrize("width", [32, 160, 288])
def test_a_tiled_weight_holds_what_was_put(width, device):
    options = {"dtype": torch.bfloat16, "device": device}
    with force(Implementation.TRITON):
        weight = quant_scheme("mxfp4").create_weights((1, 1), 48, width, **options)
        dense = quant_scheme("mxfp4").create_weights((), 48, width, **options)
    assert weight.tiled
    assert not dense.tiled
    matrices = random_matrices(48, width // 32)
    weight.put_mxfp4((0, 0), matrices.blocks[0, 0], matrices.scales[0, 0])
    wanted = dequantize_mxfp4(matrices.blocks, matrices.scales, torch.float32)[0, 0]
    assert torch.equal(weight.dequantize((0, 0)).cpu(), wanted)

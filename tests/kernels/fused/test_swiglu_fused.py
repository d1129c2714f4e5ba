"""Clamped SwiGLU in Triton against float64."""

import pytest
import torch

from rose.kernels.reference import SWIGLU_TOLERANCE
from rose.kernels.swiglu import swiglu
from tests.kernels.fused.fused_checks import assert_near, fused, random

SHAPES = [(1, 2), (5, 66), (3, 2050), (2, 5760), (0, 8)]
if torch.cuda.is_available():
    # The last has more than 2^31 values.
    SHAPES += [(1024, 5760), (32768, 5760), (400000, 5760)]


def truth_of(gate_up, limit):
    gate, up = gate_up.double().chunk(2, -1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate / (1 + torch.exp(-1.702 * gate)) * (up + 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_swiglu(shape, device):
    gate_up = random(*shape, device=device, scale=6)
    (found,) = fused(lambda: swiglu(gate_up, 7.0))
    for rows, result in zip(gate_up.split(32768), found.split(32768), strict=True):
        assert_near(result, truth_of(rows, 7.0), SWIGLU_TOLERANCE)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # of exp, to infinity
def test_extremes(device):
    gate = torch.tensor([1e30, -1e30, 100.0, -100.0, 0.0, -0.0])
    gate_up = torch.cat((gate, gate.flip(0))).bfloat16().to(device)[None]
    (found,) = fused(lambda: swiglu(gate_up, 7.0))
    assert_near(found, truth_of(gate_up, 7.0), SWIGLU_TOLERANCE)


def test_a_nan_comes_out(device):
    gate_up = torch.ones(1, 8, dtype=torch.bfloat16, device=device)
    gate_up[0, 1] = gate_up[0, 6] = torch.nan
    (found,) = fused(lambda: swiglu(gate_up, 7.0))
    assert found.isnan().tolist() == [[False, True, True, False]]

"""RMSNorm in Triton against float64."""

import pytest
import torch

from rose.kernels.norm import add_rms_norm, add_rms_norm_quantize, rms_norm
from rose.kernels.quantize import quantize_fp8_activations
from rose.kernels.reference import NORM_TOLERANCE
from tests.kernels.fused.fused_checks import assert_near, fused, random, same_bytes

EPSILON = 1e-5
SHAPES = [(1, 1), (3, 65), (2, 128), (1, 288), (2, 2880), (0, 32)]
if torch.cuda.is_available():
    SHAPES += [(256, 2880), (8191, 2880), (131072, 2880), (5, 16384)]


def truth_of(x, weight):
    wide = x.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + EPSILON).sqrt() * weight.double()


@pytest.fixture(params=SHAPES, ids=str)
def tensors(request, device):
    """Residual, x and weight."""
    rows, width = request.param
    residual, x = (random(rows, width, device=device, seed=seed, scale=3) for seed in (0, 1))
    return residual, x, random(width, device=device, seed=2, scale=0.1) + 1


def test_rms_norm(tensors):
    _, x, weight = tensors
    (normed,) = fused(lambda: rms_norm(x, weight, EPSILON))
    assert_near(normed, truth_of(x, weight), NORM_TOLERANCE)


def test_the_sum_is_rounded_before_it_is_normalised(tensors):
    residual, x, weight = tensors
    total, normed = fused(lambda: add_rms_norm(residual, x, weight, EPSILON))
    assert same_bytes(total, residual + x)
    assert_near(normed, truth_of(total, weight), NORM_TOLERANCE)


def test_quantised_rows_are_those_of_the_norm(tensors):
    residual, x, weight = tensors
    total, normed, *quantised = fused(lambda: add_rms_norm_quantize(residual, x, weight, EPSILON))
    assert same_bytes(total, residual + x)
    # Compiled apart from the norm alone, it may sum a row's squares in another order.
    assert_near(normed, truth_of(total, weight), NORM_TOLERANCE)
    wanted = quantize_fp8_activations(normed.cpu())
    assert all(same_bytes(*pair) for pair in zip(quantised, wanted, strict=True))


def test_a_column_of_another_tensor_may_be_normalised(device):
    wide = random(3, 64, device=device)
    weight = random(32, device=device)
    (normed,) = fused(lambda: rms_norm(wide[:, 16:48], weight, EPSILON))
    assert_near(normed, truth_of(wide[:, 16:48], weight), NORM_TOLERANCE)

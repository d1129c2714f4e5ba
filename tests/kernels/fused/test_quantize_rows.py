"""Rows to FP8 in Triton: the codec's bytes."""

import pytest
import torch

from rose.kernels.activation_quant import quantize_fp8_rows
from rose.kernels.quantize import ACTIVATION_AMAX_FLOOR, quantize_fp8_activations
from tests.kernels.fused.fused_checks import fused, random, same_bytes

SHAPES = [(1, 1), (3, 127), (2, 128), (2, 129), (1, 2880), (0, 256)]
if torch.cuda.is_available():
    SHAPES += [(256, 2880), (32768, 2880), (131072, 2880), (7, 4096)]


def assert_codecs_bytes(x):
    results = fused(lambda: quantize_fp8_rows(x))
    # On the CPU, where the codec is the definition of the bytes.
    wanted = quantize_fp8_activations(x.cpu())
    assert all(same_bytes(*pair) for pair in zip(results, wanted, strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bytes_are_the_codecs(shape, device):
    assert_codecs_bytes(random(*shape, device=device, scale=3))


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e-3, 1e30])
def test_scales_of_any_size(scale, device):
    assert_codecs_bytes(random(4, 300, device=device, scale=scale))


def test_zeros_keep_their_sign_and_a_run_of_zeros_has_the_least_scale(device):
    x = torch.zeros(1, 256, dtype=torch.bfloat16, device=device)
    x[0, :128] = -0.0
    x[0, 200] = 1
    assert_codecs_bytes(x)
    values, scales = fused(lambda: quantize_fp8_rows(x))
    assert values.view(torch.uint8)[0, 0] == 0x80
    least = torch.tensor(ACTIVATION_AMAX_FLOOR) / torch.tensor(448.0)
    assert scales[0, 0].item() == least.item()


def test_a_value_on_a_midpoint_goes_to_the_even_code(device):
    # With 448 in the run the scale is 1; 17 lies between 16 and 18, 19 between 18 and 20.
    x = torch.tensor([[448.0, 17.0, 19.0, -17.0]], dtype=torch.bfloat16, device=device)
    values, _ = fused(lambda: quantize_fp8_rows(x))
    assert values.float().tolist() == [[448.0, 16.0, 20.0, -16.0]]


def test_every_quotient_of_mantissas(device):
    # A row has one greatest value, and in runs of 128 every value down to where codes are zero.
    mantissas = torch.arange(128, 256)
    powers = torch.exp2(-torch.arange(21.0))
    smaller = (mantissas * powers[:, None]).flatten()
    x = smaller.repeat(128, 1).view(128, 21, 128).clamp(max=mantissas[:, None, None])
    x = torch.cat((x, mantissas[:, None, None].expand(128, 21, 1)), dim=-1)
    # 129 values do not fit a run: the greatest takes the place of one, then of another.
    halves = torch.cat((x[:, :, 1:], x[:, :, [*range(127), 128]]), dim=-1)
    assert_codecs_bytes(halves.flatten(1).bfloat16().to(device))

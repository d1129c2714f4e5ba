"""The fused dense FP8 product against float64."""

import pytest
import torch

from rose.kernels.fused import linear_fp8 as fused_linear_fp8
from rose.kernels.fused.linear_fp8 import multiply, multiply_few
from rose.kernels.fused.skinny_tiles import SkinnyTiling
from rose.kernels.gemm import linear_fp8
from rose.kernels.quantize import (
    dequantize_fp8_activations,
    dequantize_fp8_block,
    quantize_fp8_activations,
    quantize_fp8_block,
)
from rose.kernels.reference import GEMM_TOLERANCE
from tests.kernels.fused.expert_inputs import before_nan
from tests.kernels.fused.fused_checks import assert_near, fused, random

# Rows choose each tiling; output and input widths: whole tiles and ragged ones.
SHAPES = [
    (1, 64, 128),
    (5, 40, 528),
    (8, 17, 1168),
    (9, 272, 256),
    (16, 130, 144),
    (17, 224, 288),
    (130, 96, 160),
    (513, 160, 144),
]
if torch.cuda.is_available():
    SHAPES += [
        (1, 5120, 2880),
        (16, 2880, 4096),
        (1, 201_088, 2880),
        (200, 2880, 4096),
        (8192, 5120, 2880),
        (131_072, 2880, 4096),
    ]


def _operands(rows, out, width, device):
    """x and the weight in FP8 with their scales, the bias."""
    x = random(rows, width, device=device)
    codes, x_scales = (before_nan(part) for part in quantize_fp8_activations(x))
    values, scales = quantize_fp8_block(random(out, width, device=device, seed=1).float())
    return codes, x_scales, before_nan(values), scales, random(out, device=device, seed=2)


def _check(found, codes, x_scales, values, scales, bias):
    checked = slice(max(len(codes) - 300, 0), None)
    seen = dequantize_fp8_activations(codes[checked], x_scales[checked]).double()
    truth = seen @ dequantize_fp8_block(values, scales).double().t()
    assert_near(found[checked], truth if bias is None else truth + bias.double(), GEMM_TOLERANCE)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("rows", "out", "width"), SHAPES)
def test_multiply(rows, out, width, with_bias, device):
    *operands, bias = _operands(rows, out, width, device)
    bias = bias if with_bias else None
    found = fused(lambda: multiply(*operands, bias))[0]
    assert found.isfinite().all()
    _check(found, *operands, bias)


def test_few_rows_of_many_columns(device, monkeypatch):
    operands = _operands(3, 130, 272, device)
    monkeypatch.setattr(fused_linear_fp8, "MOST_COLUMNS", 100)
    _check(fused(lambda: multiply(*operands))[0], *operands)


@pytest.mark.parametrize(
    "tiling",
    [
        SkinnyTiling(block_m=8, block_n=32, parts=8, step=128, depth=2),
        SkinnyTiling(block_m=8, block_n=128, parts=1, step=128, depth=9),
    ],
)
def test_other_tilings(tiling, device):
    operands = _operands(3, 200, 528, device)
    _check(fused(lambda: multiply_few(tiling, *operands))[0], *operands)


@pytest.mark.parametrize("width", [144, 40])
def test_x_is_quantised_first(width, device):
    """Also where TMA cannot read the weight's rows, and the reference serves."""
    values, scales = quantize_fp8_block(random(64, width, device=device).float())
    x = random(3, width, device=device, seed=1)
    found = fused(lambda: linear_fp8(x, values, scales, None))[0]
    seen = dequantize_fp8_activations(*quantize_fp8_activations(x)).double()
    truth = seen @ dequantize_fp8_block(values, scales).double().t()
    assert_near(found, truth, GEMM_TOLERANCE)


def test_no_rows(device):
    values, scales = quantize_fp8_block(random(64, 32, device=device).float())
    x = torch.empty(0, 32, dtype=torch.bfloat16, device=device)
    assert fused(lambda: linear_fp8(x, values, scales, None))[0].shape == (0, 64)

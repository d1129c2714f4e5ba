"""Dense and grouped products against float64, in all storage formats."""

import pytest
import torch

from rose.kernels.gemm import linear, linear_fp8, linear_mxfp4
from rose.kernels.grouped_gemm import grouped_linear, grouped_linear_fp8, grouped_linear_mxfp4
from rose.kernels.quantize import (
    dequantize_fp8_activations,
    dequantize_fp8_block,
    dequantize_mxfp4,
    quantize_fp8_activations,
    quantize_fp8_block,
    quantize_mxfp4,
)
from rose.kernels.reference import GEMM_TOLERANCE

DTYPES = [torch.float32, torch.bfloat16]
EXPERTS = 5
COUNTS = {
    "one token": [0, 0, 1, 0, 0],
    "empty experts": [3, 0, 0, 4, 1],
    "one gets all": [0, 0, 0, 0, 9],
    "all": [1, 2, 3, 2, 1],
    "nothing": [0, 0, 0, 0, 0],
}


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(found, truth, dtype):
    assert found.dtype == dtype
    assert found.shape == truth.shape
    bound = GEMM_TOLERANCE.float32 if dtype == torch.float32 else GEMM_TOLERANCE.bfloat16
    if truth.numel():
        assert (found.double() - truth).abs().max() <= bound * truth.abs().max()


def through_fp8(x):
    return dequantize_fp8_activations(*quantize_fp8_activations(x)).double()


def grouped_truth(x, weight, bias, counts):
    """Each row by hand; weight float64 [experts, parts, out, in]."""
    rows = []
    experts = [expert for expert, count in enumerate(counts) for _ in range(count)]
    for row, expert in zip(x, experts, strict=True):
        parts = [part @ row for part in weight[expert]]
        rows.append(torch.cat(parts) + bias[expert].double())
    return torch.stack(rows) if rows else x.new_zeros(0, bias.shape[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS.keys())
@pytest.mark.parametrize(("parts", "out", "width"), [(2, 24, 64), (1, 130, 160)])
def test_grouped_linear(dtype, counts, parts, out, width):
    total = sum(counts)
    x = random(total, width, dtype=dtype)
    weight = random(EXPERTS, parts, out, width, seed=1)
    bias = random(EXPERTS, parts * out, seed=2, dtype=dtype) * 3
    tokens_per_expert = torch.tensor(counts)

    stored = weight.to(dtype)
    found = grouped_linear(x, stored, bias, tokens_per_expert)
    assert_near(found, grouped_truth(x.double(), stored.double(), bias, counts), dtype)

    blocks, scales = quantize_mxfp4(weight)
    stored = dequantize_mxfp4(blocks, scales, torch.float32).double()
    found = grouped_linear_mxfp4(x, blocks, scales, bias, tokens_per_expert)
    assert_near(found, grouped_truth(x.double(), stored, bias, counts), dtype)

    pairs = [quantize_fp8_block(matrix) for matrix in weight.flatten(0, 1)]
    values = torch.stack([v for v, _ in pairs]).view(weight.shape)
    grids = torch.stack([s for _, s in pairs]).view(EXPERTS, parts, *pairs[0][1].shape)
    stored = dequantize_fp8_block(values, grids).double()
    found = grouped_linear_fp8(x, values, grids, bias, tokens_per_expert)
    assert_near(found, grouped_truth(through_fp8(x), stored, bias, counts), dtype)


def test_only_experts_with_rows_are_read():
    weight = torch.full((3, 1, 8, 8), torch.nan)
    weight[1] = random(1, 8, 8)
    bias = torch.full((3, 8), torch.nan)
    bias[1] = 0
    found = grouped_linear(random(2, 8), weight, bias, torch.tensor([0, 2, 0]))
    assert found.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("rows", "out", "width"), [(1, 1, 32), (3, 130, 288)])
def test_linear(dtype, with_bias, rows, out, width):
    x, weight = random(rows, width, dtype=dtype), random(out, width, seed=1)
    bias = random(out, seed=2, dtype=dtype) if with_bias else None
    added = bias.double() if with_bias else 0

    truth = x.double() @ weight.to(dtype).double().t() + added
    assert_near(linear(x, weight.to(dtype), bias), truth, dtype)

    blocks, scales = quantize_mxfp4(weight)
    truth = x.double() @ dequantize_mxfp4(blocks, scales, torch.float32).double().t() + added
    assert_near(linear_mxfp4(x, blocks, scales, bias), truth, dtype)

    values, grid = quantize_fp8_block(weight)
    truth = through_fp8(x) @ dequantize_fp8_block(values, grid).double().t() + added
    assert_near(linear_fp8(x, values, grid, bias), truth, dtype)


@pytest.mark.parametrize("rows", [1, 40])
def test_the_bias_is_not_rounded_apart(rows):
    """A product near -bias: rounding it to bfloat16 before the sum would leave rubbish."""
    x = torch.full((rows, 64), 1.0, dtype=torch.bfloat16)
    weight = torch.full((1, 1, 16, 64), 1.0, dtype=torch.bfloat16)
    weight[..., 0] = 3.015625  # the sum is 66.015625, which bfloat16 would round to 66
    bias = torch.full((1, 16), -66.0, dtype=torch.bfloat16)
    counts = torch.tensor([rows])
    assert (grouped_linear(x, weight, bias, counts) == 0.015625).all()
    assert (linear(x, weight[0, 0], bias[0]) == 0.015625).all()

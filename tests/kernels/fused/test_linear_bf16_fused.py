"""The fused dense bfloat16 product of few rows against float64."""

import pytest
import torch
import torch.nn.functional as F

from rose.kernels import gemm
from rose.kernels.fused import linear_bf16, skinny_tiles
from rose.kernels.fused.skinny_tiles import SkinnyTiling
from rose.kernels.reference import GEMM_TOLERANCE
from tests.kernels.fused.expert_inputs import before_nan
from tests.kernels.fused.fused_checks import assert_near, fused, random, same_bytes

# Rows choose each tiling; output and input widths: whole tiles and ragged ones.
SHAPES = [(1, 64, 256), (5, 40, 272), (8, 17, 48), (9, 32, 288), (16, 16, 144), (17, 50, 272)]
SHAPES += [(40, 32, 512), (70, 48, 80)]
if torch.cuda.is_available():
    SHAPES += [(rows, *shape) for shape in ((5120, 2880), (2880, 4096)) for rows in (1, 8, 16, 64)]


def _operands(rows, out, width, device):
    """x and the weight with NaN behind them, the bias."""
    x = before_nan(random(rows, width, device=device))
    weight = before_nan(random(out, width, device=device, seed=1))
    return x, weight, random(out, device=device, seed=2)


def _check(found, x, weight, bias):
    truth = x.double() @ weight.double().t()
    assert_near(found, truth if bias is None else truth + bias.double(), GEMM_TOLERANCE)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("rows", "out", "width"), SHAPES)
def test_linear(rows, out, width, with_bias, device):
    x, weight, bias = _operands(rows, out, width, device)
    bias = bias if with_bias else None
    _check(fused(lambda: linear_bf16.linear(x, weight, bias))[0], x, weight, bias)


@pytest.mark.parametrize(
    "tiling",
    [
        SkinnyTiling(block_m=8, block_n=32, parts=8, step=16, depth=2),
        SkinnyTiling(block_m=8, block_n=16, parts=1, step=128, depth=9),
    ],
)
def test_other_tilings(tiling, device):
    x, weight, bias = _operands(3, 70, 400, device)
    run = lambda: linear_bf16.multiply_with(tiling, x, weight, bias)  # noqa: E731
    _check(fused(run)[0], x, weight, bias)


def test_a_row_does_not_depend_on_the_rows_beside_it(device):
    x, weight, bias = _operands(16, 48, 528, device)
    whole = linear_bf16.linear(x, weight, bias)
    for rows in (1, 7, 8, 9):
        part = fused(lambda: linear_bf16.linear(x[:rows], weight, bias))[0]  # noqa: B023
        assert same_bytes(part, whole[:rows])


@pytest.mark.parametrize(
    ("rows", "width", "served"), [(0, 32, False), (1, 32, True), (1, 40, False), (17, 32, False)]
)
def test_who_serves(rows, width, served, device, monkeypatch):
    called = []
    linear = linear_bf16.linear
    monkeypatch.setattr(linear_bf16, "linear", lambda *args: called.append(1) or linear(*args))
    x, weight, bias = _operands(rows, 24, width, device)
    found = fused(lambda: gemm.linear(x, weight, bias))[0]
    assert bool(called) == served
    assert_near(found, F.linear(x.double(), weight.double(), bias.double()), GEMM_TOLERANCE)


@pytest.mark.parametrize("columns", [16, 2880, 5120, 16_384])
@pytest.mark.parametrize("rows", [1, 16])
def test_all_programs_fit_the_chip_at_once(columns, rows):
    """Up to four on an SM."""
    most = min(most for most in linear_bf16.TILINGS if rows <= most)
    tiling = linear_bf16.TILINGS[most]
    buffers = tiling.stages(columns, 2880, rows, 2) - 1
    shared = buffers * tiling.parts * tiling.step * (tiling.block_n + tiling.block_m) * 2 + 1024
    programs = -(-columns // tiling.block_n)
    resident = min(-(-programs // skinny_tiles.SMS), 4)
    assert buffers >= 2
    assert shared * resident <= 228 * 1024

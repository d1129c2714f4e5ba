"""The experts' products in CUDA C++ against float64: all widths of tiles, ragged and empty ones."""

import pytest
import torch

from rose.kernels.cuda import experts_mxfp4
from rose.kernels.reference import GEMM_TOLERANCE
from tests.kernels.cuda.test_launch import hopper
from tests.kernels.cuda.test_nvrtc import needs_nvrtc
from tests.kernels.fused.expert_inputs import (
    LIMIT,
    activated,
    before_nan,
    random_weights,
    route_counts,
    sums,
)
from tests.kernels.fused.fused_checks import assert_near, fused, random
from tests.kernels.fused.test_experts_fused import ACTIVATED_TOLERANCE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper(), reason="needs an NVIDIA Hopper GPU"),
    needs_nvrtc,
]

K = 2
CHECKED = 512
"""Rows that float64 checks, at most."""

CASES = {
    "one row": ([0, 1, 0, 1], 64, 64),
    "few rows": ([1, 8, 15, 16, 17, 31, 32, 34], 128, 192),
    "borders of tiles": ([64, 65, 96, 97, 128, 129, 144, 145], 128, 192),
    "two and three tiles": ([273, 288, 289, 290, 432, 433, 0, 1], 192, 320),
    "one gets all": ([0] * 30 + [1000] + [0], 256, 128),
    "one column block": ([300, 20, 0, 14], 1024, 64),
    "most experts": ([3, 0, 150, 1] * 128, 64, 64),
    "gpt-oss 20b, 1024 tokens": (None, 2880, 2880, 1024, 32),
    "gpt-oss 120b, 8192 tokens": (None, 2880, 2880, 8192, 128),
    "131072 tokens": ([0] * 16 + [262_144 // 16] * 16, 2880, 2880),
}
"""Rows an expert, hidden size, intermediate size; or tokens and experts, by chance."""


def counts_of(case):
    counts, *sizes = CASES[case]
    if counts is None:
        *sizes, tokens, experts = sizes
        generator = torch.Generator().manual_seed(0)
        chosen = torch.randint(0, experts, (K * tokens,), generator=generator)
        counts = chosen.bincount(minlength=experts).tolist()
    return counts, *sizes


@pytest.fixture(scope="module")
def device():
    return torch.device("cuda")


@pytest.mark.parametrize("case", CASES)
def test_both_products(case, device):
    counts, hidden, intermediate = counts_of(case)
    routing = route_counts(counts, K, device)
    rows = sum(counts)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(6))
    checked = order[:CHECKED].sort().values.to(device)

    weights = random_weights(len(counts), 2, intermediate, hidden, device, seed=1)
    x = before_nan(random(rows // K, hidden, device=device))
    tiled = weights.mxfp4.as_tiled()
    found = fused(lambda: experts_mxfp4.gate_up(x, routing, tiled, weights.bias, LIMIT))[0]
    assert found.isfinite().all()
    mine = x[routing.token_of_row.long()[checked]]
    truth = activated(sums(weights, "mxfp4", mine, routing, checked))
    assert_near(found[checked], truth, ACTIVATED_TOLERANCE)

    weights = random_weights(len(counts), 1, hidden, intermediate, device, seed=2)
    x = before_nan(random(rows, intermediate, device=device, seed=5))
    tiled = weights.mxfp4.as_tiled()
    found = fused(lambda: experts_mxfp4.down(x, routing, tiled, weights.bias))[0]
    assert found.isfinite().all()
    truth = sums(weights, "mxfp4", x[checked], routing, checked)
    assert_near(found[checked], truth, GEMM_TOLERANCE)

"""The experts' fused products against float64, in all storage formats."""

import pytest
import torch

from rose.kernels import experts
from rose.kernels.dispatch import Implementation, force
from rose.kernels.fused import experts_bf16, experts_fp8, experts_mxfp4, experts_mxfp4_stream
from rose.kernels.fused.expert_tiles import Tiling, TilingTable
from rose.kernels.quantize import dequantize_fp8_activations, quantize_fp8_activations
from rose.kernels.reference import GEMM_TOLERANCE, Tolerance
from rose.kernels.routing import route_linear
from tests.kernels.fused.expert_inputs import (
    LIMIT,
    activated,
    before_nan,
    random_weights,
    route_counts,
    sums,
)
from tests.kernels.fused.fused_checks import assert_near, fused, poisoned, random, same_bytes

NAMES = ["bf16", "fp8", "mxfp4"]
K = 2
CHECKED = 256
"""Rows that float64 checks, at most."""

FP8_SUM_ERROR = 2**-8
"""Relative to the largest result: FP8 tensor cores keep some 14 bits of a sum of 128 products."""

ACTIVATED_TOLERANCE = Tolerance(1e-5, 2**-7)
"""Gate, up and their product are each rounded, and each may fall to either side of a midpoint."""

# Widths: whole steps and ragged ones, of columns as well; counts choose each tiling of the tables.
CASES = {
    "one token": ([0, 1] + [0] * 13 + [1], 160, 96),
    "empty experts, several tiles of columns": ([3, 0, 0, 4, 1], 288, 224),
    "one gets all": ([0, 0, 0, 0, 34], 128, 64),
    "borders of tiles": ([16, 17, 31, 0, 0], 64, 160),
    "tiles of 64": ([65, 3], 160, 96),
    "tiles of 128": ([130], 160, 160),
}
STREAMED = [(8, 4, 1, 1), (8, 4, 4, 2), (16, 4, 2, 3), (32, 2, 1, 2), (8, 1, 1, 4)]
"""Rows a tile, warps, parts of the inner dimension and depth of the streaming kernel for MXFP4."""

if torch.cuda.is_available():
    for tokens, count in ((1, 32), (7, 128), (64, 32), (256, 128), (4096, 32), (4096, 128)):
        chosen = torch.randint(0, count, (4 * tokens,), generator=torch.Generator().manual_seed(0))
        CASES[f"gpt-oss {tokens} x {count}"] = (
            chosen.bincount(minlength=count).tolist(),
            2880,
            2880,
        )
    CASES["131072 tokens"] = ([0] * 16 + [262_144 // 16] * 16, 2880, 2880)


class Layer:
    """Both products of one case."""

    def __init__(self, case, device, *, listed=False):
        counts, self.hidden, self.intermediate = CASES[case]
        self.routing = route_counts(counts, K, device, listed=listed)
        tokens = sum(counts) // K
        self.x = before_nan(random(tokens, self.hidden, device=device))
        size = (len(counts), 2, self.intermediate, self.hidden)
        self.gate_up = random_weights(*size, device, seed=1)
        size = (len(counts), 1, self.hidden, self.intermediate)
        self.down = random_weights(*size, device, seed=2)
        rows = random(K * tokens, self.intermediate, device=device, seed=5)
        self.rows = before_nan(rows)
        order = torch.randperm(K * tokens, generator=torch.Generator().manual_seed(6))
        self.checked = order[:CHECKED].sort().values.to(device)

    def gate_up_truth(self, name, x):
        rows = x[self.routing.token_of_row.long()[self.checked]]
        return activated(sums(self.gate_up, name, rows, self.routing, self.checked))

    def down_truth(self, name, rows):
        return sums(self.down, name, rows[self.checked], self.routing, self.checked)


@pytest.fixture(scope="module", params=CASES)
def layer(request, device):
    return Layer(request.param, device)


@pytest.mark.parametrize("name", ["bf16", "mxfp4"])
def test_gate_up(layer, name):
    weight = layer.gate_up.bf16 if name == "bf16" else layer.gate_up.mxfp4.as_tiled()
    kernel = experts_bf16 if name == "bf16" else experts_mxfp4
    found = fused(
        lambda: kernel.gate_up(layer.x, layer.routing, weight, layer.gate_up.bias, LIMIT)
    )[0]
    assert found.isfinite().all()
    assert_near(found[layer.checked], layer.gate_up_truth(name, layer.x), ACTIVATED_TOLERANCE)


@pytest.mark.parametrize("name", ["bf16", "mxfp4"])
def test_down(layer, name):
    weight = layer.down.bf16 if name == "bf16" else layer.down.mxfp4.as_tiled()
    kernel = experts_bf16 if name == "bf16" else experts_mxfp4
    found = fused(lambda: kernel.down(layer.rows, layer.routing, weight, layer.down.bias))[0]
    assert found.isfinite().all()
    assert_near(found[layer.checked], layer.down_truth(name, layer.rows), GEMM_TOLERANCE)


LISTED_CASES = ["one token", "tiles of 64", "empty experts, several tiles of columns"]


@pytest.mark.parametrize("case", LISTED_CASES)
@pytest.mark.parametrize("early", [True, False])
def test_tiles_from_the_list(case, early, monkeypatch, device):
    monkeypatch.setattr(experts_mxfp4_stream, "EARLY_DOWN", early)
    for table, block_n in (("GATE_UP_TILINGS", 32), ("DOWN_TILINGS", 16)):
        tiling = Tiling(8, block_n, 1, 4, 2, 4)
        monkeypatch.setattr(experts_mxfp4, table, TilingTable((), tiling))
    layer = Layer(case, device, listed=True)
    # What the list replaces is not read.
    layer.routing.tokens_per_expert.fill_(-1)
    test_gate_up(layer, "mxfp4")
    test_down(layer, "mxfp4")


@pytest.mark.parametrize("case", ["one token", "tiles of 64"])
@pytest.mark.parametrize(("block_m", "warps", "split", "depth"), STREAMED)
def test_streaming_tilings(case, block_m, warps, split, depth, monkeypatch, device):
    layer = Layer(case, device)
    for width, table in ((8, "GATE_UP_TILINGS"), (16, "DOWN_TILINGS")):
        block_n = width * warps // split * (2 if depth == 1 else 1)
        tiling = Tiling(block_m, block_n, 1, warps, depth, split)
        monkeypatch.setattr(experts_mxfp4, table, TilingTable((), tiling))
    test_gate_up(layer, "mxfp4")
    test_down(layer, "mxfp4")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("tokens", [1, 16, 40])
def test_down_that_starts_early_sees_its_own_routing(tokens, device):
    """Layers follow each other in a graph, whose routings share memory; none waits in between."""
    count, width = 32, 1024
    gate_up = random_weights(count, 2, width, width, device, seed=1)
    down = random_weights(count, 1, width, width, device, seed=2)
    first, second = gate_up.mxfp4.as_tiled(), down.mxfp4.as_tiled()
    router, bias = random(count, width, device=device, seed=3), random(count, device=device)
    inputs = [random(tokens, width, device=device, seed=10 + n) for n in range(20)]
    arrivals = torch.zeros(1, dtype=torch.int32, device=device)

    def layer(x):
        routing = route_linear(x, router, bias, 4, arrivals)
        hidden = experts_mxfp4.gate_up(x, routing, first, gate_up.bias, LIMIT)
        return experts_mxfp4.down(hidden, routing, second, down.bias)

    wanted = []
    with force(Implementation.TRITON):
        for x in inputs:
            wanted.append(layer(x))
            torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = [layer(x) for x in inputs]
    for _ in range(20):
        for rows in found:
            rows.zero_()
        graph.replay()
        assert all(same_bytes(*pair) for pair in zip(found, wanted, strict=True))


def test_fp8_gate_up(layer):
    codes, scales = (before_nan(part) for part in quantize_fp8_activations(layer.x))
    found, found_scales = fused(
        lambda: experts_fp8.gate_up(
            codes, scales, layer.routing, layer.gate_up.fp8, layer.gate_up.bias, LIMIT
        )
    )
    seen = dequantize_fp8_activations(codes, scales)
    truth = layer.gate_up_truth("fp8", seen)
    wanted, wanted_scales = quantize_fp8_activations(truth.bfloat16())
    assert found.float().isfinite().all()
    found, found_scales = found[layer.checked], found_scales[layer.checked]
    torch.testing.assert_close(found_scales, wanted_scales, rtol=2**-7, atol=0)
    assert (found.float() != wanted.float()).float().mean() < 0.02
    # A sum near the border between two codes may go to either.
    error = (dequantize_fp8_activations(found, found_scales).double() - truth).abs()
    least = found_scales.repeat_interleave(128, dim=-1)[:, : truth.shape[1]] / 512
    beyond = (error - truth.abs() / 8 - least).max() / truth.abs().max()
    assert beyond <= FP8_SUM_ERROR


def test_fp8_down(layer):
    codes, scales = (before_nan(part) for part in quantize_fp8_activations(layer.rows))
    found = fused(
        lambda: experts_fp8.down(codes, scales, layer.routing, layer.down.fp8, layer.down.bias)
    )[0]
    assert found.isfinite().all()
    seen = dequantize_fp8_activations(codes, scales)
    assert_near(found[layer.checked], layer.down_truth("fp8", seen), GEMM_TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_no_tokens(name, device):
    routing = route_counts([0, 0], K, device)
    gate_up = random_weights(2, 2, 32, 64, device, seed=1)
    down = random_weights(2, 1, 64, 32, device, seed=2)
    x = torch.empty(0, 64, dtype=torch.bfloat16, device=device)
    run = getattr(experts, f"experts_{name}")
    pair = getattr(gate_up, name), getattr(down, name)
    found = fused(lambda: run(x, routing, *pair, gate_up.bias, down.bias, LIMIT))[0]
    assert found.shape == (0, 64)


def test_only_experts_with_rows_are_read(device):
    routing = route_counts([0, 6, 0], K, device)
    down = random_weights(3, 1, 64, 64, device, seed=2)
    weight, bias = down.bf16.clone(), down.bias.clone()
    weight[[0, 2]], bias[[0, 2]] = torch.nan, torch.nan
    x = random(6, 64, device=device)
    with poisoned():
        found = experts_bf16.down(x, routing, weight, bias)
    assert_near(
        found, sums(down, "bf16", x, routing, torch.arange(6, device=device)), GEMM_TOLERANCE
    )

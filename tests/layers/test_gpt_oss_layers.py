"""Layers: the names and shapes that loaders fill, and the experts as a dense mixture."""

import pytest
import torch

from rose.layers.embedding import Embedding
from rose.layers.linear import Head, Linear
from rose.layers.moe import MoE
from rose.quant import quant_scheme

CPU = torch.device("cpu")


def random_fill(module, scale=0.5):
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return module


def moe(experts=5, k=2, limit=7.0, dtype=torch.float32):
    return MoE(
        12,
        9,
        experts,
        experts_per_token=k,
        swiglu_limit=limit,
        scheme=quant_scheme("bf16"),
        dtype=dtype,
        device=CPU,
    )


def dense_mixture(layer, x):
    """Every expert on every token in float64, weighted by zero where it was not chosen."""
    wide = x.double()
    logits = wide @ layer.router.weight.double().t() + layer.router.bias.double()
    best = logits.topk(layer.router.experts_per_token).indices
    weights = torch.zeros_like(logits)
    weights.scatter_(1, best, logits.gather(1, best).softmax(-1))
    total = torch.zeros_like(wide)
    for expert in range(logits.shape[1]):
        gate_weight, up_weight = (layer.gate_up.dequantize((expert, p)).double() for p in (0, 1))
        gate_bias, up_bias = layer.gate_up_bias[expert].double().chunk(2)
        gate = (wide @ gate_weight.t() + gate_bias).clamp(max=layer.swiglu_limit)
        up = (wide @ up_weight.t() + up_bias).clamp(-layer.swiglu_limit, layer.swiglu_limit)
        hidden = gate * torch.sigmoid(1.702 * gate) * (up + 1)
        down = layer.down.dequantize((expert, 0)).double()
        out = hidden @ down.t() + layer.down_bias[expert].double()
        total += weights[:, expert, None] * out
    return total


@pytest.mark.parametrize("tokens", [1, 2, 33])
@pytest.mark.parametrize(("experts", "k", "limit"), [(5, 2, 7.0), (3, 3, 0.5), (4, 1, 7.0)])
def test_moe_is_a_sparse_mixture(tokens, experts, k, limit):
    layer = random_fill(moe(experts, k, limit))
    x = torch.randn(tokens, 12, generator=torch.Generator().manual_seed(1))
    found = layer(x)
    assert found.dtype == x.dtype
    torch.testing.assert_close(found.double(), dense_mixture(layer, x), atol=2e-5, rtol=0)


def test_moe_treats_each_token_alone():
    layer = random_fill(moe())
    x = torch.randn(8, 12, generator=torch.Generator().manual_seed(1))
    apart = torch.cat([layer(row) for row in x.split(1)])
    torch.testing.assert_close(layer(x), apart, atol=1e-5, rtol=0)


def test_moe_keeps_bfloat16():
    layer = random_fill(moe(dtype=torch.bfloat16))
    x = torch.randn(4, 12, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert layer(x).dtype == torch.bfloat16


def test_linear_without_bias_has_no_such_parameter():
    options = {"scheme": quant_scheme("bf16"), "dtype": torch.float32, "device": CPU}
    assert set(Linear(4, 3, bias=False, **options).state_dict()) == {"weight.values"}
    assert set(Linear(4, 3, bias=True, **options).state_dict()) == {"weight.values", "bias"}


def test_logits_are_float32():
    options = {"scheme": quant_scheme("bf16"), "dtype": torch.bfloat16, "device": CPU}
    head = random_fill(Head(6, 10, **options))
    x = torch.randn(2, 6).bfloat16()
    found = head(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, x.float() @ head.weight.values.float().t(), atol=0.05, rtol=0)


def test_embedding_is_a_row():
    layer = random_fill(Embedding(7, 4, dtype=torch.float32, device=CPU))
    assert torch.equal(layer(torch.tensor([6, 0])), layer.weight[[6, 0]])

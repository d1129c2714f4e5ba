"""The mixture of experts by fused kernels against the same layer by the reference."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from rose.kernels.dispatch import Implementation, force
from rose.layers.moe import MoE
from rose.layers.norm import RMSNorm
from rose.quant import quant_scheme

HIDDEN, INTERMEDIATE, EXPERTS, K = 160, 96, 6, 2
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

BOUNDS = {"bf16": 2**-6, "mxfp4": 2**-6, "fp8": 2**-4}
"""Of the largest output: roundings between the products fall to either side of a border, in FP8 of
one of 16."""


def random_layer(name: str) -> MoE:
    with force(Implementation.TRITON):
        layer = MoE(
            HIDDEN,
            INTERMEDIATE,
            EXPERTS,
            experts_per_token=K,
            swiglu_limit=7.0,
            scheme=quant_scheme(name),
            dtype=torch.bfloat16,
            device=DEVICE,
        )
    generator = torch.Generator(DEVICE).manual_seed(0)
    layer.gate_up.randomize(generator, HIDDEN**-0.5)
    layer.down.randomize(generator, INTERMEDIATE**-0.5)
    for parameter in (layer.gate_up_bias, layer.down_bias, *layer.router.parameters()):
        parameter.normal_(0, 0.3, generator=generator)
    return layer


@pytest.mark.parametrize("tokens", [1, 37])
@pytest.mark.parametrize("name", BOUNDS)
def test_a_layer_computes_the_same_either_way(name, tokens):
    layer = random_layer(name)
    x = torch.randn(tokens, HIDDEN, generator=torch.Generator().manual_seed(1))
    x = x.bfloat16().to(DEVICE)
    norm = RMSNorm(HIDDEN, 1e-5, dtype=torch.bfloat16, device=DEVICE)
    norm.weight.fill_(0.5)
    with force(Implementation.REFERENCE):
        wanted = (layer(x), *layer.add(x, x, norm))
    with force(Implementation.TRITON):
        found = (layer(x), *layer.add(x, x, norm))
    for each, truth in zip(found, wanted, strict=True):
        assert (each.float() - truth.float()).abs().max() <= BOUNDS[name] * truth.abs().max()

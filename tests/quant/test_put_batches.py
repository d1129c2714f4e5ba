"""Several matrices stored in one call are those that are stored one by one."""

import itertools

import pytest
import torch

from rose.kernels.quantize import quantize_fp8_block, quantize_mxfp4
from rose.quant import quant_scheme

EXPERTS, OUT, IN = 5, 130, 160
NAMES = ["bf16", "fp8", "mxfp4"]


def create(name):
    return quant_scheme(name).create_weights(
        (EXPERTS, 2), OUT, IN, dtype=torch.bfloat16, device=torch.device("cpu")
    )


@pytest.fixture
def matrices():
    generator = torch.Generator().manual_seed(0)
    # Each expert has a size of its own, so that scales shared by mistake would show.
    sizes = torch.tensor([1e-3, 1.0, 50.0, 0.1, 7.0]).view(-1, 1, 1, 1)
    return torch.randn(EXPERTS, 2, OUT, IN, generator=generator) * sizes


def encoded(kind, matrices):
    """The arguments of one of the `put`s."""
    if kind == "put_mxfp4":
        return quantize_mxfp4(matrices)
    return quantize_fp8_block(matrices) if kind == "put_fp8" else (matrices,)


@pytest.mark.parametrize("kind", ["put", "put_mxfp4", "put_fp8"])
@pytest.mark.parametrize("name", NAMES)
def test_runs_of_experts_are_the_same_as_single_ones(name, kind, matrices):
    single, batched, everything = create(name), create(name), create(name)
    for index in itertools.product(range(EXPERTS), range(2)):
        getattr(single, kind)(index, *encoded(kind, matrices[index]))
    for first, end in ((0, 2), (2, 5)):
        for part in range(2):
            values = encoded(kind, matrices[first:end, part])
            getattr(batched, kind)((slice(first, end), part), *values)
    getattr(everything, kind)((), *encoded(kind, matrices))
    for key, value in single.state_dict().items():
        for other in (batched, everything):
            assert torch.equal(other.state_dict()[key].view(torch.uint8), value.view(torch.uint8))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_another_length_is_refused(name, matrices):
    weight = create(name)
    where = (slice(3, None), 1)
    with pytest.raises(ValueError, match=r"shape \[2, 130, 160\]; got \[1, 130, 160\]"):
        weight.put(where, matrices[4:, 1])
    with pytest.raises(ValueError, match=r"blocks must have shape \[2, 130, 5, 16\]; got \[3, "):
        weight.put_mxfp4(where, *quantize_mxfp4(matrices[2:, 1]))
    with pytest.raises(ValueError, match=r"shape \[5, 2, 130, 160\]; got \[5, 130, 160\]"):
        weight.put_fp8((), *quantize_fp8_block(matrices[:, 0]))

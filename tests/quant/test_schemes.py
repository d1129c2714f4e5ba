"""Storage of each scheme: what goes in comes out, as exactly as the format can."""

import pytest
import torch

from rose.kernels.quantize import (
    dequantize_fp8_activations,
    dequantize_fp8_block,
    dequantize_mxfp4,
    quantize_fp8_activations,
    quantize_fp8_block,
    quantize_mxfp4,
)
from rose.kernels.reference import sort_by_expert, swiglu
from rose.kernels.routing import Routing
from rose.quant import quant_scheme

CPU = torch.device("cpu")
NAMES = ["bf16", "fp8", "mxfp4"]
OUT, IN = 130, 160


def create(name, batch=(), out=OUT, width=IN, dtype=torch.float32):
    return quant_scheme(name).create_weights(batch, out, width, dtype=dtype, device=CPU)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rounded(name, value, dtype=torch.float32):
    """What a scheme makes of a matrix, by the codecs alone."""
    if name == "bf16":
        return value.to(dtype).float()
    if name == "fp8":
        return dequantize_fp8_block(*quantize_fp8_block(value))
    return dequantize_mxfp4(*quantize_mxfp4(value), torch.float32)


def seen_by(name, x):
    """Activations as a scheme's products see them."""
    if name == "fp8":
        return dequantize_fp8_activations(*quantize_fp8_activations(x))
    return x


def test_unknown_scheme():
    with pytest.raises(ValueError, match=r"unknown quantization 'int8'.*bf16, fp8, mxfp4"):
        quant_scheme("int8")


@pytest.mark.parametrize("name", NAMES)
def test_schemes_know_their_names(name):
    assert quant_scheme(name).name == name


def test_mxfp4_refuses_a_ragged_width_at_creation():
    with pytest.raises(ValueError, match="multiple of 32; got 40"):
        create("mxfp4", width=40)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_put_stores_the_rounded_matrix_in_its_place(name, dtype):
    weight = create(name, (2, 2), dtype=dtype)
    matrices = {(e, p): random(OUT, IN, seed=2 * e + p) for e in range(2) for p in range(2)}
    for index, value in matrices.items():
        weight.put(index, value)
    for index, value in matrices.items():
        assert torch.equal(weight.dequantize(index), rounded(name, value, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_mxfp4_goes_in_exactly(name, dtype):
    blocks, scales = quantize_mxfp4(random(OUT, IN))
    weight = create(name, dtype=dtype)
    weight.put_mxfp4((), blocks, scales)
    assert torch.equal(weight.dequantize(()), dequantize_mxfp4(blocks, scales, torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_fp8_that_came_from_mxfp4_goes_in_exactly(name, dtype):
    value = rounded("mxfp4", random(OUT, IN))
    weight = create(name, dtype=dtype)
    weight.put_fp8((), *quantize_fp8_block(value))
    assert torch.equal(weight.dequantize(()), value)


def test_fp8_keeps_foreign_scales():
    values, scales = quantize_fp8_block(random(OUT, IN))
    scales = scales * 0.7
    weight = create("fp8")
    weight.put_fp8((), values, scales)
    assert torch.equal(weight.scales, scales)
    assert torch.equal(weight.dequantize(()), dequantize_fp8_block(values, scales))


@pytest.mark.parametrize("name", NAMES)
def test_wrong_shapes_and_dtypes_are_refused(name):
    weight = create(name, (2, 1))
    blocks, scales = quantize_mxfp4(random(OUT, IN))
    values, grid = quantize_fp8_block(random(OUT, IN))
    with pytest.raises(ValueError, match=r"weight must have shape \[130, 160\]; got \[160\]"):
        weight.put((0, 0), random(IN))
    with pytest.raises(ValueError, match="MXFP4 blocks must have shape"):
        weight.put_mxfp4((0, 0), blocks[:1], scales)
    with pytest.raises(ValueError, match="MXFP4 scales must have shape"):
        weight.put_mxfp4((0, 0), blocks, scales[:, :1])
    with pytest.raises(ValueError, match=r"MXFP4 scales must be torch.uint8"):
        weight.put_mxfp4((0, 0), blocks, scales.float())
    with pytest.raises(ValueError, match=r"FP8 scales must have shape \[2, 2\]; got \[1, 2\]"):
        weight.put_fp8((0, 0), values, grid[:1])
    with pytest.raises(ValueError, match=r"FP8 values must be torch.float8_e4m3fn"):
        weight.put_fp8((0, 0), values.float(), grid)


@pytest.mark.parametrize("name", NAMES)
def test_dense_products_use_what_is_stored(name):
    weight = create(name)
    weight.put((), random(OUT, IN))
    x = random(3, IN, seed=1)
    wanted = seen_by(name, x) @ weight.dequantize(()).t()
    torch.testing.assert_close(weight.linear(x, None), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_experts_use_what_is_stored(name):
    gate_up, down = create(name, (2, 2), out=32), create(name, (2, 1), out=IN, width=32)
    for expert in range(2):
        for part in range(2):
            gate_up.put((expert, part), random(32, IN, seed=5 + 2 * expert + part))
        down.put((expert, 0), random(IN, 32, seed=9 + expert))
    x, bias, down_bias = random(3, IN, seed=1), random(2, 64, seed=2), random(2, IN, seed=3)
    chosen = torch.tensor([[1], [0], [1]])
    routing = Routing(torch.ones(3, 1), *sort_by_expert(chosen, 2))
    found = gate_up.expert_mlp(down, x, routing, bias, down_bias, 7.0)
    for row, (token, expert) in enumerate(((1, 0), (0, 1), (2, 1))):
        matrix = torch.cat([gate_up.dequantize((expert, part)) for part in range(2)])
        sums = matrix @ seen_by(name, x)[token] + bias[expert]
        hidden = seen_by(name, swiglu(sums[None], 7.0))
        wanted = down.dequantize((expert, 0)) @ hidden[0] + down_bias[expert]
        # In FP8 a sum on the border between two codes may go to the other one.
        torch.testing.assert_close(found[row], wanted, atol=0.3 if name == "fp8" else 1e-3, rtol=0)


@pytest.mark.parametrize("std", [0.02, 1.5])
@pytest.mark.parametrize("name", NAMES)
def test_random_weights_have_about_the_wanted_spread(name, std):
    weight = create(name, (2, 2))
    weight.randomize(torch.Generator().manual_seed(0), std)
    parts = [weight.dequantize((e, p)) for e in range(2) for p in range(2)]
    values = torch.stack(parts)
    assert std / 1.5 < values.std() < std * 1.5
    assert values.mean().abs() < std / 20
    assert not torch.equal(parts[0], parts[3])
    again = create(name, (2, 2))
    again.randomize(torch.Generator().manual_seed(0), std)
    assert torch.equal(again.dequantize((1, 1)), parts[3])


@pytest.mark.parametrize(("name", "bytes_per_weight"), [("fp8", 1.0), ("mxfp4", 0.53125)])
def test_storage_is_as_small_as_promised(name, bytes_per_weight):
    weight = create(name, (1, 1), out=256, width=256)
    stored = sum(p.numel() * p.element_size() for p in weight.parameters())
    assert stored / 256**2 == pytest.approx(bytes_per_weight, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_state_and_need_no_gradient(name):
    weight = create(name, (1, 1))
    assert weight.state_dict()
    assert not any(p.requires_grad for p in weight.parameters())

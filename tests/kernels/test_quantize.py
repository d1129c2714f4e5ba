"""Codecs against definitions written out value by value."""

import math

import pytest
import torch

from rose.kernels.quantize import (
    ACTIVATION_AMAX_FLOOR,
    dequantize_fp8_activations,
    dequantize_fp8_block,
    dequantize_mxfp4,
    quantize_fp8_activations,
    quantize_fp8_block,
    quantize_mxfp4,
)

MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def e4m3_values() -> list[float]:
    """Every finite magnitude, from the format's definition, in the order of codes."""
    values = []
    for code in range(0x7F):
        exponent, mantissa = code >> 3, code & 7
        values.append(
            mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
        )
    return values


def nearest_even(x: float, values: list[float]) -> float:
    """The nearest value; ties to the even code."""
    best = min(range(len(values)), key=lambda code: (abs(abs(x) - values[code]), code % 2))
    return math.copysign(values[best], x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_mxfp4_byte_at_every_scale_is_exact(dtype):
    byte = torch.arange(256, dtype=torch.uint8)
    blocks = byte.view(1, 16, 16).expand(255, 16, 16).contiguous()
    scales = torch.arange(255, dtype=torch.uint8).view(255, 1).expand(255, 16).contiguous()
    found = dequantize_mxfp4(blocks, scales, dtype).view(255, 256, 2)
    for scale in (0, 1, 100, 127, 253, 254):
        for value in range(256):
            for place, code in enumerate((value & 15, value >> 4)):
                wanted = MAGNITUDES[code & 7] * (-1 if code & 8 else 1) * 2.0 ** (scale - 127)
                largest = 2.0**128
                wanted = math.copysign(math.inf, wanted) if abs(wanted) >= largest else wanted
                assert found[scale, value, place].item() == wanted


def test_mxfp4_scale_255_is_nan():
    blocks = torch.full((1, 1, 16), 0x22, dtype=torch.uint8)
    scales = torch.full((1, 1), 255, dtype=torch.uint8)
    assert dequantize_mxfp4(blocks, scales, torch.bfloat16).isnan().all()


def test_mxfp4_rounds_to_nearest_even():
    # 6 fixes the group's scale at 1; the rest sweeps all midpoints and their neighbours.
    values = [6.0]
    for midpoint in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0):
        values += [midpoint, -midpoint, midpoint + 2**-10, midpoint - 2**-10]
    values += [7.9, 0.0, -0.0]
    x = torch.tensor([values])
    assert x.shape == (1, 32)
    blocks, scales = quantize_mxfp4(x)
    assert scales.item() == 127
    found = dequantize_mxfp4(blocks, scales, torch.float32)[0].tolist()
    assert found == [nearest_even(v, MAGNITUDES) for v in values]


def test_mxfp4_groups_have_scales_of_their_own():
    x = torch.cat((torch.full((32,), 2.0**-20), torch.zeros(32), torch.full((32,), 3e38)))
    blocks, scales = quantize_mxfp4(x.view(1, 96))
    assert scales[0, [0, 2]].tolist() == [127 - 22, 127 + 125]
    found = dequantize_mxfp4(blocks, scales, torch.float32)[0]
    assert found[0] == 2.0**-20
    assert found[40] == 0
    assert found[70] == 6 * 2.0**125


def test_mxfp4_survives_another_round():
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(256, (2, 5, 3, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(60, 200, (2, 5, 3), generator=generator, dtype=torch.uint8)
    value = dequantize_mxfp4(blocks, scales, torch.float32)
    again = dequantize_mxfp4(*quantize_mxfp4(value), torch.float32)
    assert torch.equal(value, again)


def test_mxfp4_needs_whole_groups():
    with pytest.raises(ValueError, match=r"multiple of 32; got 48"):
        quantize_mxfp4(torch.zeros(2, 48))


@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (130, 300), (3, 257), (256, 127)])
def test_fp8_blocks_against_the_definition(shape):
    generator = torch.Generator().manual_seed(1)
    value = torch.randn(shape, generator=generator)
    value[0] *= 1000
    values, scales = quantize_fp8_block(value)
    assert values.dtype == torch.float8_e4m3fn
    assert scales.shape == (-(-shape[0] // 128), -(-shape[1] // 128))
    table = e4m3_values()
    stored = values.float()
    for row in range(scales.shape[0]):
        for column in range(scales.shape[1]):
            part = (slice(row * 128, row * 128 + 128), slice(column * 128, column * 128 + 128))
            amax = value[part].abs().max().item()
            scale = scales[row, column].item()
            assert math.log2(scale).is_integer()
            assert amax / scale <= 448 < amax / scale * 2
            x, q = value[part].flatten()[:40], stored[part].flatten()[:40]
            assert q.tolist() == [nearest_even(v / scale, table) for v in x.tolist()]
    whole = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    wanted = stored.double() * whole[: shape[0], : shape[1]].double()
    assert torch.equal(dequantize_fp8_block(values, scales).double(), wanted)


def test_fp8_block_of_zeros_has_scale_one():
    values, scales = quantize_fp8_block(torch.zeros(2, 2))
    assert scales.item() == 1
    assert values.float().abs().max() == 0


@pytest.mark.parametrize("amax", [448.0, 448.1, 1e-37, 3e38, 0.875, 0.8751])
def test_fp8_block_scale_neither_saturates_nor_wastes(amax):
    _, scales = quantize_fp8_block(torch.tensor([[amax]]))
    assert 224 < amax / scales.item() <= 448 or scales.item() == 2.0**-126


@pytest.mark.parametrize("leading", [(), (3,), (2, 2)])
def test_fp8_blocks_dequantise_in_batches(leading):
    generator = torch.Generator().manual_seed(2)
    values = torch.randn((*leading, 140, 200), generator=generator).to(torch.float8_e4m3fn)
    scales = torch.rand((*leading, 2, 2), generator=generator)
    found = dequantize_fp8_block(values, scales).view(-1, 140, 200)
    flat, grid = values.view(-1, 140, 200), scales.view(-1, 2, 2)
    for index in range(flat.shape[0]):
        assert torch.equal(found[index], dequantize_fp8_block(flat[index], grid[index]))


@pytest.mark.parametrize(("span", "exact"), [(0, True), (14, True), (16, False)])
def test_mxfp4_to_fp8_is_exact_while_scales_span_2_to_the_14(span, exact):
    generator = torch.Generator().manual_seed(3)
    blocks = torch.randint(256, (128, 4, 16), generator=generator, dtype=torch.uint8)
    blocks[0, 0, 0], blocks[1, 0, 0] = 0x77, 0x31  # 6 at the top, 1.5 and 0.5 at the bottom
    scales = torch.randint(100, 101 + span, (128, 4), generator=generator, dtype=torch.uint8)
    scales[0, 0], scales[1, 0] = 100 + span, 100
    value = dequantize_mxfp4(blocks, scales, torch.float32)
    again = dequantize_fp8_block(*quantize_fp8_block(value))
    assert torch.equal(value, again) is exact


@pytest.mark.parametrize("shape", [(1, 1), (2, 128), (3, 129), (5, 300), (0, 64)])
def test_fp8_activations_against_the_definition(shape):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(shape, generator=generator) * 30
    values, scales = quantize_fp8_activations(x)
    assert scales.shape == (shape[0], -(-shape[1] // 128))
    table = e4m3_values()
    for row in range(shape[0]):
        for run in range(scales.shape[1]):
            part = x[row, run * 128 : run * 128 + 128]
            scale = torch.tensor(part.abs().max().item(), dtype=torch.float32) / 448
            assert scales[row, run] == scale
            wanted = [nearest_even(v.item(), table) for v in part / scale]
            assert values[row, run * 128 : run * 128 + 128].float().tolist() == wanted
    error = (dequantize_fp8_activations(values, scales) - x).abs()
    assert (error <= x.abs() / 16 + scales.repeat_interleave(128, 1)[:, : shape[1]] / 512).all()


def test_fp8_activations_of_nothing_are_nothing():
    x = torch.tensor([[0.0, 0.0], [1e-20, -1e-20]])
    values, scales = quantize_fp8_activations(x)
    assert scales.isfinite().all()
    assert (scales >= ACTIVATION_AMAX_FLOOR / 449).all()
    assert dequantize_fp8_activations(values, scales).abs().max() == 0


def test_all_e4m3_bytes_read_as_torch_reads_them():
    codes = torch.arange(256, dtype=torch.uint8).view(1, 256).view(torch.float8_e4m3fn)
    found = dequantize_fp8_block(codes, torch.ones(1, 2))
    table = e4m3_values()
    assert found[0, :127].tolist() == table
    assert found[0, 128:255].tolist() == [-v for v in table]
    assert found[0, [127, 255]].isnan().all()

"""Experts' matrices to FP8: the table against arithmetic, and that no difference goes unseen."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rose.convert.matrices import (
    FloatMatrix,
    Mxfp4Matrix,
    NotFiniteError,
    compare_with_source,
    group_maxima,
    stripes,
)
from rose.kernels.quantize import quantize_fp8_block
from tests.convert.converted import decode_fp8
from tests.models.checkpoint_layouts import decode_mxfp4


def random_matrix(rows, groups, least, most, seed=0):
    """Uniform codes under scale bytes in [least, most]; a quarter of the groups are zeros."""
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (2 * rows, groups, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(least, most + 1, (2 * rows, groups), generator=generator)
    zero = torch.rand(2 * rows, groups, generator=generator) < 0.25
    blocks[zero] &= 0x88  # of either sign
    # As gate and up lie in a checkpoint: rows in turn.
    return Mxfp4Matrix(blocks[1::2], scales.to(torch.uint8)[1::2])


def to_fp8(matrix):
    values = torch.empty(matrix.shape, dtype=torch.float8_e4m3fn)
    return values, *matrix.to_fp8(values)


def changes(matrix, values, scales):
    old = decode_mxfp4(matrix.blocks, matrix.scales)
    return int((decode_fp8(values, scales) != old).sum())


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 300),
    groups=st.integers(1, 9),
    least=st.integers(0, 250),
    span=st.integers(0, 40),
    seed=st.integers(0, 2**20),
)
def test_the_table_gives_the_bytes_of_arithmetic(rows, groups, least, span, seed):
    matrix = random_matrix(rows, groups, least, min(least + span, 251), seed)
    values, scales, exact = to_fp8(matrix)
    wanted, wanted_scales = quantize_fp8_block(matrix.numbers(0, rows))
    assert torch.equal(values.view(torch.uint8), wanted.view(torch.uint8))
    assert torch.equal(scales, wanted_scales)
    changed = changes(matrix, values, scales)
    assert not (exact and changed)
    assert compare_with_source("w", matrix, values, scales).changed == changed


def test_what_e4m3_holds_is_known_to_be_exact_and_what_it_rounds_is_not():
    # The largest lands on 2^6 to 2^8.5; 14 octaves of scales fit above e4m3's least step.
    for span, fits in ((0, True), (13, True), (40, False)):
        matrix = random_matrix(256, 8, 100, 100 + span)
        values, scales, exact = to_fp8(matrix)
        assert exact == fits
        assert (changes(matrix, values, scales) == 0) == fits


def test_zeros_under_any_scale_do_not_count():
    matrix = random_matrix(130, 5, 120, 123)
    matrix.blocks[7, 2], matrix.scales[7, 2] = 0x80, 254
    matrix.blocks[9, 3], matrix.scales[9, 3] = 0x08, 0
    values, scales, exact = to_fp8(matrix)
    assert exact
    assert changes(matrix, values, scales) == 0
    assert float(scales.max()) < 1


def test_float_matrices_are_rounded_as_the_codec_rounds():
    weight = torch.randn(300, 200).to(torch.bfloat16)
    matrix = FloatMatrix(weight)
    values, scales, exact = to_fp8(matrix)
    wanted, wanted_scales = quantize_fp8_block(weight.float())
    assert torch.equal(values.view(torch.uint8), wanted.view(torch.uint8))
    assert torch.equal(scales, wanted_scales)
    assert not exact
    found = compare_with_source("w", matrix, values, scales)
    assert found.values == 60_000
    assert found.changed == int((decode_fp8(values, scales) != weight.float()).sum()) > 0


@pytest.mark.parametrize(("row", "column"), [(0, 0), (128, 127), (299, 287), (150, 256)])
def test_no_flipped_bit_goes_unseen(row, column):
    matrix = random_matrix(300, 9, 118, 124)
    values, scales, _ = to_fp8(matrix)
    assert compare_with_source("w", matrix, values, scales).changed == 0
    for bit in range(7):  # the sign of a zero is no difference
        damaged = values.clone()
        damaged.view(torch.uint8)[row, column] ^= 1 << bit
        assert compare_with_source("w", matrix, damaged, scales).changed == 1
    doubled = scales.clone()
    doubled[row // 128, column // 128] *= 2
    assert compare_with_source("w", matrix, values, doubled).changed > 1


@pytest.mark.parametrize(("code", "scale"), [(0x00, 255), (0x05, 254), (0x0D, 254), (0x70, 254)])
def test_weights_that_are_not_finite(code, scale):
    matrix = random_matrix(140, 3, 120, 124)
    matrix.blocks[139, 2, 5], matrix.scales[139, 2] = code, scale
    with pytest.raises(NotFiniteError):
        to_fp8(matrix)
    weight = decode_mxfp4(matrix.blocks, matrix.scales)
    weight[5, 5] = torch.nan
    with pytest.raises(NotFiniteError):
        to_fp8(FloatMatrix(weight))


def test_the_largest_finite_weights_are_kept():
    matrix = random_matrix(3, 2, 0, 5)
    matrix.blocks[0, 0], matrix.scales[0, 0] = 0x31, 254  # 0.5 and 1.5 times 2^127
    values, scales, exact = to_fp8(matrix)
    assert float(scales[0, 0]) == 2.0**119
    assert not exact
    assert torch.equal(decode_fp8(values, scales)[0, :32], matrix.numbers(0, 1)[0, :32])


def test_group_maxima():
    matrix = random_matrix(50, 4, 0, 250)
    numbers = decode_mxfp4(matrix.blocks, matrix.scales)
    wanted = numbers.view(50, 4, 32).abs().amax(-1)
    assert torch.equal(group_maxima(matrix.blocks, matrix.scales), wanted)


@pytest.mark.parametrize("columns", [32, 2880, 100_000])
def test_stripes_are_whole_blocks_and_cover_all(columns):
    cuts = list(stripes(1000, columns))
    assert [first for first, _ in cuts] == [0, *[last for _, last in cuts[:-1]]]
    assert cuts[-1][1] == 1000
    assert all(first % 128 == 0 for first, _ in cuts)
    assert columns != 2880 or all(last - first <= 128 for first, last in cuts)

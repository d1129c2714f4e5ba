"""One matrix of one expert: from the bytes of its source to FP8, and held against what was written.

MXFP4 becomes FP8 by table, two values at a time, with no numbers in between: under a power-of-two
multiplier, an e2m1 code and the distance of two exponents decide the e4m3 byte. What was written is
checked by another way, the decoders by which the engine reads both formats.

The work goes in stripes of whole blocks, small enough for a core's own cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from rose.convert.report import TensorChange, compare
from rose.kernels.quantize import (
    E2M1_VALUES,
    FP8_BLOCK,
    MXFP4_GROUP,
    ceil_div,
    dequantize_fp8_block,
    dequantize_mxfp4,
    power_of_two_scale,
    quantize_fp8_block,
)

STRIPE_VALUES = 2**19

_GROUPS = FP8_BLOCK // MXFP4_GROUP
_E8M0_BIAS = 127

LEAST_SHIFT, MOST_SHIFT = -13, 10
"""Beyond these powers of two every e2m1 code falls to zero in e4m3, or only zero fits."""

LEAST_EXACT_SHIFT = -8
"""From here on 0.5, the finest code, is a multiple of e4m3's least step, 2^-9."""


class NotFiniteError(ValueError):
    """A matrix holds infinities or NaNs, which have no place in a weight."""


class SourceMatrix(Protocol):
    """A matrix [rows, columns] as its source stores it."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...

    def numbers(self, first: int, last: int) -> Tensor:
        """Rows [first, last) as float32."""
        ...

    def to_fp8(self, values: Tensor) -> tuple[Tensor, bool]:
        """Convert as `quantize_fp8_block` does.

        Args:
            values: float8_e4m3fn [rows, columns], contiguous, to be filled.

        Returns:
            The multipliers, and whether it is sure without a comparison that all is exact.

        Raises:
            NotFiniteError: it holds infinities or NaNs.
        """
        ...


@dataclass(frozen=True, slots=True)
class FloatMatrix:
    """An unquantised matrix: any float dtype, [rows, columns]."""

    weight: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.weight.shape
        return rows, columns

    def numbers(self, first: int, last: int) -> Tensor:
        """Rows [first, last) as float32."""
        return self.weight[first:last].float()

    def to_fp8(self, values: Tensor) -> tuple[Tensor, bool]:
        """See SourceMatrix."""
        # What is not finite shows in the extremes, at a fraction of the cost of asking each value.
        if not bool(torch.stack(self.weight.aminmax()).isfinite().all()):
            raise NotFiniteError
        multipliers = []
        for first, last in stripes(*self.shape):
            values[first:last], scale = quantize_fp8_block(self.numbers(first, last))
            multipliers.append(scale)
        return torch.cat(multipliers), False


@dataclass(frozen=True, slots=True)
class Mxfp4Matrix:
    """An MXFP4 matrix: uint8 blocks [rows, groups, 16] and scales [rows, groups]."""

    blocks: Tensor
    scales: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, groups = self.scales.shape
        return rows, groups * MXFP4_GROUP

    def numbers(self, first: int, last: int) -> Tensor:
        """Rows [first, last) as float32."""
        return dequantize_mxfp4(self.blocks[first:last], self.scales[first:last], torch.float32)

    def to_fp8(self, values: Tensor) -> tuple[Tensor, bool]:
        """See SourceMatrix; the bytes are those of `quantize_fp8_block(numbers)`."""
        rows, columns = self.shape
        pairs = values.view(torch.int16)
        multipliers, exact = [], True
        for first, last in stripes(rows, columns):
            blocks, scales = self.blocks[first:last], self.scales[first:last]
            maxima = group_maxima(blocks, scales)
            scale = power_of_two_scale(_block_maxima(maxima))
            shift = _shifts(scales, scale)
            exact = exact and not bool(((shift < LEAST_EXACT_SHIFT) & (maxima > 0)).any())
            table_row = shift.clamp_(LEAST_SHIFT, MOST_SHIFT).sub_(LEAST_SHIFT).mul_(256)
            index = torch.add(blocks, table_row.unsqueeze(-1)).flatten()
            torch.index_select(_byte_table(), 0, index, out=pairs[first:last].view(-1))
            multipliers.append(scale)
        return torch.cat(multipliers), exact


def stripes(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Cut a matrix into [first, last) rows: whole FP8 blocks, about STRIPE_VALUES values."""
    step = max(1, STRIPE_VALUES // (FP8_BLOCK * columns)) * FP8_BLOCK
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def compare_with_source(
    name: str, source: SourceMatrix, values: Tensor, scales: Tensor
) -> TensorChange:
    """How an FP8 matrix differs from its source, every value decoded.

    Args:
        name: of the tensor.
        source: float or MXFP4.
        values: float8_e4m3fn [rows, columns].
        scales: float32, one a block.
    """
    change = TensorChange(name, 0)
    for first, last in stripes(*source.shape):
        grid = scales[first // FP8_BLOCK : ceil_div(last, FP8_BLOCK)]
        new = dequantize_fp8_block(values[first:last], grid)
        change += compare(name, source.numbers(first, last), new)
    return change


def group_maxima(blocks: Tensor, scales: Tensor) -> Tensor:
    """The largest magnitude in each MXFP4 group: float32 [rows, groups].

    Raises:
        NotFiniteError: one is infinite or NaN.
    """
    # Magnitudes grow with their codes.
    codes = torch.maximum(blocks & 7, (blocks >> 4) & 7).amax(-1)
    magnitude = torch.tensor(E2M1_VALUES)[codes.int()]
    maxima = torch.ldexp(magnitude, scales.int() - _E8M0_BIAS)
    if not bool((maxima.isfinite() & (scales != 255)).all()):
        raise NotFiniteError
    return maxima


def _block_maxima(maxima: Tensor) -> Tensor:
    """From [rows, groups] to [rows / 128, groups / 4], ragged edges included."""
    rows, groups = maxima.shape
    grid = ceil_div(rows, FP8_BLOCK), ceil_div(groups, _GROUPS)
    padded = maxima.new_zeros(grid[0] * FP8_BLOCK, grid[1] * _GROUPS)
    padded[:rows, :groups] = maxima
    return padded.view(grid[0], FP8_BLOCK, grid[1], _GROUPS).amax(dim=(1, 3))


def _shifts(scales: Tensor, multipliers: Tensor) -> Tensor:
    """By which power of two each group's codes move: int32 [rows, groups]."""
    rows, groups = scales.shape
    # frexp writes a power of two as 0.5 * 2^(n + 1).
    exponent = torch.frexp(multipliers).exponent - 1 + _E8M0_BIAS
    exponent = exponent.repeat_interleave(FP8_BLOCK, 0)[:rows]
    return scales.int() - exponent.repeat_interleave(_GROUPS, 1)[:, :groups]


@cache
def _byte_table() -> Tensor:
    """For each shift and each byte of two codes, the two e4m3 bytes: int16 [shifts * 256]."""
    magnitudes = torch.tensor(E2M1_VALUES)
    values = torch.cat((magnitudes, -magnitudes))
    byte = torch.arange(256)
    pairs = torch.stack((values[byte & 15], values[byte >> 4]), dim=-1)
    factors = torch.exp2(torch.arange(LEAST_SHIFT, MOST_SHIFT + 1, dtype=torch.float32))
    table = (pairs * factors[:, None, None]).to(torch.float8_e4m3fn)
    return table.view(torch.int16).flatten()

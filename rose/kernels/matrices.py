"""Stored weights as kernels take them: the tensors of one format, together."""

from dataclasses import dataclass

from torch import Tensor

from rose.kernels.mxfp4_tiles import tile_blocks, tile_scales, untile_blocks, untile_scales


@dataclass(frozen=True, slots=True)
class Fp8Matrices:
    """Matrices [rows, width] in FP8 blocks of 128 x 128, edges ragged.

    Attributes:
        values: float8_e4m3fn [*batch, rows, width].
        scales: float32 [*batch, ceil(rows / 128), ceil(width / 128)], multipliers.
    """

    values: Tensor
    scales: Tensor


@dataclass(frozen=True, slots=True)
class Mxfp4Matrices:
    """Matrices [rows, width] in MXFP4.

    Attributes:
        blocks: uint8 [*batch, rows, width / 32, 16].
        scales: uint8, E8M0: [*batch, rows, width / 32] as published, or [*batch, ceil(width / 128),
            rows, 4] if tiled.
        tiled: whether they are as `mxfp4_tiles` says.
    """

    blocks: Tensor
    scales: Tensor
    tiled: bool

    def as_tiled(self) -> "Mxfp4Matrices":
        """The same matrices, tiled."""
        if self.tiled:
            return self
        return Mxfp4Matrices(tile_blocks(self.blocks), tile_scales(self.scales), True)

    def as_published(self) -> "Mxfp4Matrices":
        """The same matrices in the published form."""
        if not self.tiled:
            return self
        groups = self.blocks.shape[-2]
        scales = untile_scales(self.scales, groups)
        return Mxfp4Matrices(untile_blocks(self.blocks), scales, False)

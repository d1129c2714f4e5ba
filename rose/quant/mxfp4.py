"""Weights packed in MXFP4, as the published checkpoints store the experts."""

import math
from typing import Self

import torch
from torch import Tensor, nn

from rose.kernels.dispatch import use_triton
from rose.kernels.experts import OP as EXPERTS_OP
from rose.kernels.experts import experts_mxfp4
from rose.kernels.gemm import linear_mxfp4
from rose.kernels.matrices import Mxfp4Matrices
from rose.kernels.mxfp4_tiles import tile_blocks, tile_scales, tiled_scales_shape
from rose.kernels.quantize import (
    E2M1_VALUES,
    MXFP4_GROUP,
    dequantize_fp8_block,
    dequantize_mxfp4,
    quantize_mxfp4,
    require_mxfp4_width,
)
from rose.kernels.routing import Routing
from rose.quant.checks import require_fp8, require_matrix, require_mxfp4
from rose.quant.scheme import Index, QuantWeight


class Mxfp4Weight(QuantWeight):
    """Matrices in MXFP4; activations keep the model's dtype.

    Experts that the fused kernels will serve are stored in the tiled form, see `mxfp4_tiles`: it is
    the same bytes in another order.

    Attributes:
        tiled: whether they are.
        blocks: uint8 [*batch, out_features, in_features / 32, 16].
        scales: uint8 [*batch, out_features, in_features / 32], or if tiled
            [*batch, ceil(in_features / 128), out_features, 4].
    """

    def __init__(
        self,
        batch: tuple[int, ...],
        out_features: int,
        in_features: int,
        *,
        tiled: bool,
        device: torch.device,
    ) -> None:
        require_mxfp4_width(in_features)
        super().__init__(batch, out_features, in_features)
        self.tiled = tiled
        shape: tuple[int, ...] = (out_features, in_features // MXFP4_GROUP)
        blocks = torch.empty((*batch, *shape, MXFP4_GROUP // 2), dtype=torch.uint8, device=device)
        shape = tiled_scales_shape(*shape) if tiled else shape
        scales = torch.empty((*batch, *shape), dtype=torch.uint8, device=device)
        self.blocks = nn.Parameter(blocks, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)

    def put(self, index: Index, value: Tensor) -> None:
        """Round to the nearest codes."""
        require_matrix(self, index, value)
        self.put_mxfp4(index, *quantize_mxfp4(value.to(self.blocks.device)))

    def put_mxfp4(self, index: Index, blocks: Tensor, scales: Tensor) -> None:
        """Store the bytes, in another order if tiled.

        Raises:
            ValueError: a shape or a dtype does not fit.
        """
        require_mxfp4(self, index, blocks, scales)
        if self.tiled:
            blocks = tile_blocks(blocks.to(self.blocks.device))
            scales = tile_scales(scales)
        self.blocks[index].copy_(blocks)
        self.scales[index].copy_(scales)

    def put_fp8(self, index: Index, values: Tensor, scales: Tensor) -> None:
        """Round to the nearest codes; exact if the values came from MXFP4."""
        require_fp8(self, index, values, scales)
        self.put(index, dequantize_fp8_block(values, scales))

    def dequantize(self, index: tuple[int, ...]) -> Tensor:
        """Code times scale."""
        stored = Mxfp4Matrices(self.blocks[index], self.scales[index], self.tiled).as_published()
        return dequantize_mxfp4(stored.blocks, stored.scales, torch.float32)

    def randomize(self, generator: torch.Generator, std: float) -> None:
        """Uniform codes under one scale: the standard deviation is right to a factor of 2^0.5."""
        self.blocks.random_(0, 256, generator=generator)
        spread = math.sqrt(sum(v * v for v in E2M1_VALUES) / len(E2M1_VALUES))
        exponent = round(math.log2(std / spread)) if std > 0 else -127
        self.scales.fill_(min(max(exponent + 127, 0), 254))

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """See QuantWeight."""
        return linear_mxfp4(x, self.blocks, self.scales, bias)

    def expert_mlp(
        self,
        down: Self,
        x: Tensor,
        routing: Routing,
        gate_up_bias: Tensor,
        down_bias: Tensor,
        limit: float,
    ) -> Tensor:
        """See QuantWeight."""
        return experts_mxfp4(
            x, routing, self.matrices(), down.matrices(), gate_up_bias, down_bias, limit
        )

    def matrices(self) -> Mxfp4Matrices:
        """The storage as kernels take it."""
        return Mxfp4Matrices(self.blocks, self.scales, self.tiled)


class Mxfp4Scheme:
    """Stores weights packed in four bits, whatever the model's dtype."""

    name = "mxfp4"

    def create_weights(
        self,
        batch: tuple[int, ...],
        out_features: int,
        in_features: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> QuantWeight:
        """See QuantScheme."""
        # Dense products read the published form.
        operand = torch.empty(0, dtype=dtype, device=device)
        tiled = bool(batch) and use_triton(EXPERTS_OP, operand)
        return Mxfp4Weight(batch, out_features, in_features, tiled=tiled, device=device)

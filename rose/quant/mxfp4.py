"""Weights packed in MXFP4, as the published checkpoints store the experts."""

import math

import torch
from torch import Tensor, nn

from rose.kernels.gemm import linear_mxfp4
from rose.kernels.grouped_gemm import grouped_linear_mxfp4
from rose.kernels.quantize import (
    E2M1_VALUES,
    MXFP4_GROUP,
    dequantize_fp8_block,
    dequantize_mxfp4,
    quantize_mxfp4,
    require_mxfp4_width,
)
from rose.quant.checks import require_fp8, require_matrix, require_mxfp4
from rose.quant.scheme import Index, QuantWeight


class Mxfp4Weight(QuantWeight):
    """Matrices in MXFP4; activations keep the model's dtype.

    Attributes:
        blocks: uint8 [*batch, out_features, in_features / 32, 16].
        scales: uint8 [*batch, out_features, in_features / 32].
    """

    def __init__(
        self,
        batch: tuple[int, ...],
        out_features: int,
        in_features: int,
        device: torch.device,
    ) -> None:
        require_mxfp4_width(in_features)
        super().__init__(batch, out_features, in_features)
        shape = (*batch, out_features, in_features // MXFP4_GROUP)
        blocks = torch.empty((*shape, MXFP4_GROUP // 2), dtype=torch.uint8, device=device)
        scales = torch.empty(shape, dtype=torch.uint8, device=device)
        self.blocks = nn.Parameter(blocks, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)

    def put(self, index: Index, value: Tensor) -> None:
        """Round to the nearest codes."""
        require_matrix(self, index, value)
        self.put_mxfp4(index, *quantize_mxfp4(value.to(self.blocks.device)))

    def put_mxfp4(self, index: Index, blocks: Tensor, scales: Tensor) -> None:
        """Store the bytes as they are."""
        require_mxfp4(self, index, blocks, scales)
        self.blocks[index].copy_(blocks)
        self.scales[index].copy_(scales)

    def put_fp8(self, index: Index, values: Tensor, scales: Tensor) -> None:
        """Round to the nearest codes; exact if the values came from MXFP4."""
        require_fp8(self, index, values, scales)
        self.put(index, dequantize_fp8_block(values, scales))

    def dequantize(self, index: tuple[int, ...]) -> Tensor:
        """Code times scale."""
        return dequantize_mxfp4(self.blocks[index], self.scales[index], torch.float32)

    def randomize(self, generator: torch.Generator, std: float) -> None:
        """Uniform codes under one scale: the standard deviation is right to a factor of 2^0.5."""
        self.blocks.random_(0, 256, generator=generator)
        spread = math.sqrt(sum(v * v for v in E2M1_VALUES) / len(E2M1_VALUES))
        exponent = round(math.log2(std / spread)) if std > 0 else -127
        self.scales.fill_(min(max(exponent + 127, 0), 254))

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """See QuantWeight."""
        return linear_mxfp4(x, self.blocks, self.scales, bias)

    def grouped_linear(self, x: Tensor, bias: Tensor, tokens_per_expert: Tensor) -> Tensor:
        """See QuantWeight."""
        return grouped_linear_mxfp4(x, self.blocks, self.scales, bias, tokens_per_expert)


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
        return Mxfp4Weight(batch, out_features, in_features, device)

"""Weights in FP8 e4m3 with a power-of-two scale for each 128 x 128 block."""

import itertools
from typing import Self

import torch
from torch import Tensor, nn

from rose.kernels.experts import experts_fp8
from rose.kernels.gemm import linear_fp8
from rose.kernels.matrices import Fp8Matrices
from rose.kernels.quantize import (
    FP8_BLOCK,
    ceil_div,
    dequantize_fp8_block,
    dequantize_mxfp4,
    quantize_fp8_block,
)
from rose.kernels.routing import Routing
from rose.quant.checks import require_fp8, require_matrix, require_mxfp4
from rose.quant.scheme import Index, QuantWeight


class Fp8BlockWeight(QuantWeight):
    """Matrices in FP8; activations are quantised on the fly, in runs of 128.

    Attributes:
        values: float8_e4m3fn [*batch, out_features, in_features].
        scales: float32 [*batch, ceil(out_features / 128), ceil(in_features / 128)], multipliers.
    """

    def __init__(
        self,
        batch: tuple[int, ...],
        out_features: int,
        in_features: int,
        device: torch.device,
    ) -> None:
        super().__init__(batch, out_features, in_features)
        grid = (ceil_div(out_features, FP8_BLOCK), ceil_div(in_features, FP8_BLOCK))
        shape = (*batch, out_features, in_features)
        values = torch.empty(shape, dtype=torch.float8_e4m3fn, device=device)
        scales = torch.empty((*batch, *grid), dtype=torch.float32, device=device)
        self.values = nn.Parameter(values, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)

    def put(self, index: Index, value: Tensor) -> None:
        """Round to e4m3 under the least scales that do not saturate."""
        require_matrix(self, index, value)
        values, scales = quantize_fp8_block(value.to(self.values.device))
        self.values[index].copy_(values)
        self.scales[index].copy_(scales)

    def put_mxfp4(self, index: Index, blocks: Tensor, scales: Tensor) -> None:
        """Exact where the E8M0 scales of a block span no more than 2^14."""
        require_mxfp4(self, index, blocks, scales)
        self.put(index, dequantize_mxfp4(blocks, scales, torch.float32))

    def put_fp8(self, index: Index, values: Tensor, scales: Tensor) -> None:
        """Store the bytes as they are."""
        require_fp8(self, index, values, scales)
        self.values[index].copy_(values)
        self.scales[index].copy_(scales)

    def dequantize(self, index: tuple[int, ...]) -> Tensor:
        """Value times scale."""
        return dequantize_fp8_block(self.values[index], self.scales[index])

    def randomize(self, generator: torch.Generator, std: float) -> None:
        """Normal values, one matrix at a time: float8 tensors have no random fill."""
        shape = (self.out_features, self.in_features)
        for index in itertools.product(*(range(n) for n in self.batch)):
            value = torch.randn(shape, generator=generator, device=self.values.device)
            self.put(index, value.mul_(std))

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """See QuantWeight."""
        return linear_fp8(x, self.values, self.scales, bias)

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
        return experts_fp8(
            x, routing, self.matrices(), down.matrices(), gate_up_bias, down_bias, limit
        )

    def matrices(self) -> Fp8Matrices:
        """The storage as kernels take it."""
        return Fp8Matrices(self.values, self.scales)


class Fp8BlockScheme:
    """Stores weights in FP8, whatever the model's dtype."""

    name = "fp8"

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
        return Fp8BlockWeight(batch, out_features, in_features, device)

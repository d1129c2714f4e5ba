"""Weights in the model's own dtype."""

from typing import Self

import torch
from torch import Tensor, nn

from rose.kernels.experts import experts_bf16
from rose.kernels.gemm import linear
from rose.kernels.paged_kv import LayerKV
from rose.kernels.qkv import linear_qkv
from rose.kernels.quantize import dequantize_fp8_block, dequantize_mxfp4
from rose.kernels.routing import Routing
from rose.quant.checks import require_fp8, require_matrix, require_mxfp4
from rose.quant.scheme import Index, QuantWeight


class Bf16Weight(QuantWeight):
    """Matrices in bfloat16, or in float32 for oracles.

    Attributes:
        values: dtype [*batch, out_features, in_features].
    """

    def __init__(
        self,
        batch: tuple[int, ...],
        out_features: int,
        in_features: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__(batch, out_features, in_features)
        storage = torch.empty(*batch, out_features, in_features, dtype=dtype, device=device)
        self.values = nn.Parameter(storage, requires_grad=False)

    def put(self, index: Index, value: Tensor) -> None:
        """Round to the storage dtype."""
        require_matrix(self, index, value)
        self.values[index].copy_(value)

    def put_mxfp4(self, index: Index, blocks: Tensor, scales: Tensor) -> None:
        """Exact in either dtype."""
        require_mxfp4(self, index, blocks, scales)
        self.put(index, dequantize_mxfp4(blocks, scales, self.values.dtype))

    def put_fp8(self, index: Index, values: Tensor, scales: Tensor) -> None:
        """Exact if the scales are powers of two."""
        require_fp8(self, index, values, scales)
        self.put(index, dequantize_fp8_block(values, scales))

    def dequantize(self, index: tuple[int, ...]) -> Tensor:
        """The stored values."""
        return self.values[index].float()

    def randomize(self, generator: torch.Generator, std: float) -> None:
        """Normal values."""
        self.values.normal_(0, std, generator=generator)

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """See QuantWeight."""
        return linear(x, self.values, bias)

    def linear_qkv(
        self,
        x: Tensor,
        bias: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        slot_mapping: Tensor,
        kv: LayerKV,
        num_heads: int,
    ) -> Tensor:
        """See QuantWeight."""
        return linear_qkv(x, self.values, bias, cos, sin, slot_mapping, kv, num_heads)

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
        return experts_bf16(x, routing, self.values, down.values, gate_up_bias, down_bias, limit)


class Bf16Scheme:
    """Stores weights in the model's dtype."""

    name = "bf16"

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
        return Bf16Weight(batch, out_features, in_features, dtype, device)

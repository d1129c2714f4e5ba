"""What a layer asks of a quantization: storage for weights, and products with them."""

from abc import ABC, abstractmethod
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from rose.kernels.paged_kv import LayerKV
from rose.kernels.rope_kv import rope_write_kv
from rose.kernels.routing import Routing

Index = tuple[int | slice, ...]
"""Which matrices of a batch: a number picks one along its dimension, a slice keeps a run of them.

What is stored under an index has the dimensions that its slices keep before those of a matrix.
"""


class QuantWeight(nn.Module, ABC):
    """Matrices [out_features, in_features] of one layer, stored by one scheme.

    `batch` counts them: () for a dense layer, (experts, parts) for a mixture of experts, where
    the parts of one expert are stacked along its output (gate and up are two parts: each keeps a
    block grid of its own, so that a ragged edge never makes them share a scale). What the `put`s
    are given may be strided.
    """

    def __init__(self, batch: tuple[int, ...], out_features: int, in_features: int) -> None:
        super().__init__()
        self.batch = batch
        self.out_features = out_features
        self.in_features = in_features

    @abstractmethod
    def put(self, index: Index, value: Tensor) -> None:
        """Quantise and store matrices: `value` is float [..., out_features, in_features]."""

    @abstractmethod
    def put_mxfp4(self, index: Index, blocks: Tensor, scales: Tensor) -> None:
        """Store matrices given as MXFP4.

        Args:
            index: which matrices.
            blocks: uint8 [..., out_features, in_features / 32, 16], low nibble first.
            scales: uint8 [..., out_features, in_features / 32], E8M0.
        """

    @abstractmethod
    def put_fp8(self, index: Index, values: Tensor, scales: Tensor) -> None:
        """Store matrices given as FP8.

        Args:
            index: which matrices.
            values: float8_e4m3fn [..., out_features, in_features].
            scales: float32 [..., ceil(out_features / 128), ceil(in_features / 128)], multipliers.
        """

    @abstractmethod
    def dequantize(self, index: tuple[int, ...]) -> Tensor:
        """One stored matrix as float32 [out_features, in_features], exactly."""

    @abstractmethod
    def randomize(self, generator: torch.Generator, std: float) -> None:
        """Fill the storage in place with random weights of about this standard deviation."""

    @abstractmethod
    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Map x [tokens, in_features] to x W^T + bias in x's dtype; batch ()."""

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
        """`linear` to queries, keys and values, then `rope_kv.rope_write_kv`, which see.

        Returns:
            The rotated queries, x's dtype [tokens, num_heads, head_dim].
        """
        return rope_write_kv(self.linear(x, bias), cos, sin, slot_mapping, kv, num_heads)

    @abstractmethod
    def expert_mlp(
        self,
        down: Self,
        x: Tensor,
        routing: Routing,
        gate_up_bias: Tensor,
        down_bias: Tensor,
        limit: float,
    ) -> Tensor:
        """Each token through its experts: gate and up (self), the activation, down.

        Args:
            down: batch (experts, 1), [hidden, intermediate] each; self has batch (experts, 2),
                [intermediate, hidden] each, gate then up.
            x: [tokens, hidden].
            routing: which expert computes which token, k experts a token.
            gate_up_bias: x's dtype [experts, 2 * intermediate].
            down_bias: x's dtype [experts, hidden].
            limit: of the activation, see `swiglu.swiglu`.

        Returns:
            x's dtype [tokens * k, hidden], in the routing's order of rows.
        """


class QuantScheme(Protocol):
    """A way to store weights."""

    name: str

    def create_weights(
        self,
        batch: tuple[int, ...],
        out_features: int,
        in_features: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> QuantWeight:
        """Uninitialised storage; `dtype` is the model's compute dtype."""
        ...

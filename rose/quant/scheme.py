"""What a layer asks of a quantization: storage for weights, and products with them."""

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn

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

    @abstractmethod
    def grouped_linear(self, x: Tensor, bias: Tensor, tokens_per_expert: Tensor) -> Tensor:
        """The product of each expert with its own rows; batch (experts, parts).

        Args:
            x: [rows, in_features], sorted by expert.
            bias: [experts, parts * out_features], added in the accumulators (float32).
            tokens_per_expert: int32 [experts], adding up to rows.

        Returns:
            [rows, parts * out_features] in x's dtype.
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

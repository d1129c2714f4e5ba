"""Training on the numbers that will be shipped: experts rounded to MXFP4, straight through.

Forward and backward see the rounded weights; the optimiser moves the exact ones with the gradients
found there (the straight-through estimator, Bengio et al. 2013).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rose.kernels.quantize import MXFP4_GROUP, dequantize_mxfp4, quantize_mxfp4


def expert_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are shipped as MXFP4: rows along the last dimension."""
    names = ("experts.gate_up", "experts.down")
    return [p for name, p in model.named_parameters() if name.endswith(names)]


def through_mxfp4(value: Tensor) -> Tensor:
    """What reading back the stored bytes of `value` gives; float32 of the same shape."""
    blocks, scales = quantize_mxfp4(value)
    return dequantize_mxfp4(blocks, scales, torch.float32)


class ExpertRounding:
    """Swaps a model's expert matrices for their rounded selves and back.

    In place, so that a compiled forward pass needs no second form.
    """

    def __init__(self, model: nn.Module) -> None:
        self._matrices = expert_matrices(model)

    @contextmanager
    def rounded(self) -> Iterator[None]:
        """Within, the experts are what a checkpoint in MXFP4 would hold."""
        exact = [matrix.detach().clone() for matrix in self._matrices]
        # One pass over all groups of 32 rather than one a matrix: a GPU counts the calls.
        groups = torch.cat([matrix.view(-1, MXFP4_GROUP) for matrix in exact])
        sizes = [matrix.numel() // MXFP4_GROUP for matrix in exact]
        self._set(through_mxfp4(groups).split(sizes))
        try:
            yield
        finally:
            self._set(exact)

    @torch.no_grad()
    def _set(self, values: Iterable[Tensor]) -> None:
        for matrix, value in zip(self._matrices, values, strict=True):
            matrix.copy_(value.view_as(matrix))

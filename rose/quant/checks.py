"""Checks of what is stored: a wrong shape must not broadcast silently."""

import torch
from torch import Tensor

from rose.kernels.quantize import FP8_BLOCK, MXFP4_GROUP, ceil_div
from rose.quant.scheme import Index, QuantWeight


def require_matrix(weight: QuantWeight, index: Index, value: Tensor) -> None:
    """Check float matrices to be stored under an index.

    Raises:
        ValueError: the shape is not [..., out_features, in_features].
    """
    shape = (*_selected(weight, index), weight.out_features, weight.in_features)
    _require("weight", value, shape, None)


def require_mxfp4(weight: QuantWeight, index: Index, blocks: Tensor, scales: Tensor) -> None:
    """Check MXFP4 matrices to be stored under an index.

    Raises:
        ValueError: a shape or a dtype does not fit.
    """
    groups = ceil_div(weight.in_features, MXFP4_GROUP)
    shape = (*_selected(weight, index), weight.out_features, groups)
    _require("MXFP4 blocks", blocks, (*shape, MXFP4_GROUP // 2), torch.uint8)
    _require("MXFP4 scales", scales, shape, torch.uint8)


def require_fp8(weight: QuantWeight, index: Index, values: Tensor, scales: Tensor) -> None:
    """Check FP8 matrices to be stored under an index.

    Raises:
        ValueError: a shape or a dtype does not fit.
    """
    batch, rows, columns = _selected(weight, index), weight.out_features, weight.in_features
    grid = (ceil_div(rows, FP8_BLOCK), ceil_div(columns, FP8_BLOCK))
    _require("FP8 values", values, (*batch, rows, columns), torch.float8_e4m3fn)
    _require("FP8 scales", scales, (*batch, *grid), torch.float32)


def _selected(weight: QuantWeight, index: Index) -> tuple[int, ...]:
    """The batch dimensions that an index keeps."""
    picked = zip(weight.batch, index, strict=False)
    runs = [len(range(*part.indices(size))) for size, part in picked if isinstance(part, slice)]
    return (*runs, *weight.batch[len(index) :])


def _require(what: str, found: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None) -> None:
    if tuple(found.shape) != shape:
        raise ValueError(f"{what} must have shape {list(shape)}; got {list(found.shape)}")
    if dtype is not None and found.dtype != dtype:
        raise ValueError(f"{what} must be {dtype}; got {found.dtype}")

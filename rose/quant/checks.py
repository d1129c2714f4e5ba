"""Checks of what is stored: a wrong shape must not broadcast silently."""

import torch
from torch import Tensor

from rose.kernels.quantize import FP8_BLOCK, MXFP4_GROUP, ceil_div
from rose.quant.scheme import QuantWeight


def require_matrix(weight: QuantWeight, value: Tensor) -> None:
    """Check a float matrix to be stored.

    Raises:
        ValueError: its shape is not [out_features, in_features].
    """
    _require("weight", value, (weight.out_features, weight.in_features), None)


def require_mxfp4(weight: QuantWeight, blocks: Tensor, scales: Tensor) -> None:
    """Check an MXFP4 matrix to be stored.

    Raises:
        ValueError: a shape or a dtype does not fit.
    """
    groups = ceil_div(weight.in_features, MXFP4_GROUP)
    shape = (weight.out_features, groups)
    _require("MXFP4 blocks", blocks, (*shape, MXFP4_GROUP // 2), torch.uint8)
    _require("MXFP4 scales", scales, shape, torch.uint8)


def require_fp8(weight: QuantWeight, values: Tensor, scales: Tensor) -> None:
    """Check an FP8 matrix to be stored.

    Raises:
        ValueError: a shape or a dtype does not fit.
    """
    shape = (weight.out_features, weight.in_features)
    grid = (ceil_div(shape[0], FP8_BLOCK), ceil_div(shape[1], FP8_BLOCK))
    _require("FP8 values", values, shape, torch.float8_e4m3fn)
    _require("FP8 scales", scales, grid, torch.float32)


def _require(what: str, found: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None) -> None:
    if tuple(found.shape) != shape:
        raise ValueError(f"{what} must have shape {list(shape)}; got {list(found.shape)}")
    if dtype is not None and found.dtype != dtype:
        raise ValueError(f"{what} must be {dtype}; got {found.dtype}")

"""Dense bfloat16 products of few rows at the shapes of gpt-oss, for the compiler."""

import torch

from rose.kernels.fused.linear_bf16 import TILINGS, linear

SHAPES = ((5120, 2880), (2880, 4096))
"""Output and input widths: QKV and output projection."""


def launches() -> None:
    """Call the wrapper for each number of rows that has a tiling."""
    for rows in TILINGS:
        for out, width in SHAPES:
            shapes = ((rows, width), (out, width), (out,))
            linear(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))

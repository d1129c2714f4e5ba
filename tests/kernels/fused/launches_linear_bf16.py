"""Dense bfloat16 products of few rows at the shapes of gpt-oss, for the compiler."""

import torch

from rose.kernels.dispatch import Implementation, force
from rose.kernels.fused.linear_bf16 import FEW_ROWS, TILINGS, linear
from rose.kernels.paged_kv import LayerKV
from rose.kernels.qkv import linear_qkv

SHAPES = ((5120, 2880), (2880, 4096))
"""Output and input widths: QKV and output projection."""


def _qkv(rows: int) -> None:
    shapes = ((rows, 2880), (5120, 2880), (5120,))
    operands = (torch.empty(shape, dtype=torch.bfloat16) for shape in shapes)
    kv = LayerKV(*(torch.empty((2, 128, 8, 64), dtype=torch.bfloat16) for _ in range(2)))
    slots = torch.empty(rows, dtype=torch.int64)
    linear_qkv(*operands, torch.empty(rows, 32), torch.empty(rows, 32), slots, kv, 64)


def launches() -> None:
    """Call the wrappers for each number of rows that has a tiling."""
    with force(Implementation.TRITON):
        for rows in TILINGS:
            if rows <= FEW_ROWS:
                _qkv(rows)
    for rows in TILINGS:
        for out, width in SHAPES:
            shapes = ((rows, width), (out, width), (out,))
            linear(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))

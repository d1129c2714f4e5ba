"""Dense FP8 products at the shapes of gpt-oss, for the compiler."""

import torch

from rose.kernels.dispatch import Implementation, force
from rose.kernels.gemm import linear_fp8
from rose.kernels.quantize import FP8_BLOCK, ceil_div

SHAPES = ((5120, 2880), (2880, 4096), (201_088, 2880))
"""Output and input widths: QKV, output projection, head."""
ROWS = (1, 256, 8192)


def _call(rows: int, out: int, width: int) -> None:
    x, bias = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((rows, width), (out,)))
    values = torch.empty((out, width), dtype=torch.float8_e4m3fn)
    scales = torch.empty((ceil_div(out, FP8_BLOCK), ceil_div(width, FP8_BLOCK)))
    linear_fp8(x, values, scales, bias)


def launches() -> None:
    """Call the wrapper as an engine would."""
    with force(Implementation.TRITON):
        for rows in ROWS:
            for out, width in SHAPES:
                _call(rows, out, width)

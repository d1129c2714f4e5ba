"""The experts' two products with packed MXFP4 weights, for prefill, by `experts_mxfp4.cu`.

The same as `fused.experts_mxfp4`, for many rows an expert and widths that are multiples of 64. Of
8192 tokens on an H200, gate and up take 1.8 ms (600 TFLOP/s), down 0.95 ms.
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from rose.kernels.cuda import nvrtc
from rose.kernels.cuda.kernel import Kernel
from rose.kernels.matrices import Mxfp4Matrices
from rose.kernels.quantize import MXFP4_GROUP
from rose.kernels.routing import Routing

LEAST_ROWS = 40
"""Rows an expert, on average, from which on it serves. On an H200 it took 12 to 37% less time than
Triton's at 64 rows; at 32 an earlier form of it was level with Triton's, at 16 slower."""

GRAIN = 64
"""What widths must be multiples of."""

MOST_EXPERTS = 512
"""What the source has room for."""

_SOURCE = Path(__file__).with_suffix(".cu")
_PARAMETERS = "PPPPPPPPfiii"
_THREADS = 384
_SHARED = 213_108
_ALIGNMENT = 16
"""Of what it fetches, in bytes; rows that are multiples of GRAIN keep it."""

_HOPPER = 9
_H200_MULTIPROCESSORS = 132


def _kernel(name: str) -> Kernel:
    return Kernel(
        _SOURCE,
        name,
        _PARAMETERS,
        threads=_THREADS,
        shared=_SHARED,
        # The source checks them against what it uses.
        defines={"ROSE_THREADS": _THREADS, "ROSE_SHARED_BYTES": _SHARED},
        dependent=True,
    )


_GATE_UP, _DOWN = _kernel("gate_up"), _kernel("down")


def available() -> bool:
    """Whether it can be compiled, and the current GPU, if there is one, is a Hopper."""
    if torch.cuda.is_available() and not _is_hopper(torch.cuda.current_device()):
        return False
    return nvrtc.available()


@cache
def _is_hopper(device: int) -> bool:
    return torch.cuda.get_device_capability(device)[0] == _HOPPER


def serves(rows: int, experts: int, widths: tuple[int, ...]) -> bool:
    """Whether it can compute these products, and is the fastest.

    Args:
        rows: of all experts.
        experts: that share them.
        widths: of their matrices.
    """
    fits = experts <= MOST_EXPERTS and all(width % GRAIN == 0 for width in widths)
    return fits and rows >= LEAST_ROWS * experts and available()


@cache
def _programs(device: torch.device) -> int:
    """As many as stay on the GPU at a time; without a GPU nothing is launched."""
    if device.type != "cuda":
        return _H200_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def gate_up(
    x: Tensor, routing: Routing, weight: Mxfp4Matrices, bias: Tensor, limit: float
) -> Tensor:
    """See `fused.experts_mxfp4.gate_up`."""
    return _launch(_GATE_UP, x, routing, weight, bias, limit)


def down(hidden: Tensor, routing: Routing, weight: Mxfp4Matrices, bias: Tensor) -> Tensor:
    """See `fused.experts_mxfp4.down`; it reads the routing when the kernel before has ended."""
    return _launch(_DOWN, hidden, routing, weight, bias, 0.0)


def _launch(
    kernel: Kernel, x: Tensor, routing: Routing, weight: Mxfp4Matrices, bias: Tensor, limit: float
) -> Tensor:
    experts, _, columns, groups, _ = weight.blocks.shape
    x = x.contiguous()
    if x.data_ptr() % _ALIGNMENT:
        x = x.clone()
    out = torch.empty((routing.token_of_row.shape[0], columns), dtype=x.dtype, device=x.device)
    kernel.launch(
        (_programs(x.device), 1, 1),
        x,
        weight.blocks,
        weight.scales,
        bias,
        routing.token_of_row,
        routing.tokens_per_expert,
        routing.first_row,
        out,
        limit,
        experts,
        columns,
        groups * MXFP4_GROUP,
    )
    return out

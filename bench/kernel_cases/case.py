"""What a bench of a kernel consists of."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One call to time.

    Attributes:
        name: op, shape and format; unique. One that holds "fp8" is held against the FP8 peak.
        run: makes its tensors on "cuda" when first called; later calls only compute, as a CUDA
            graph can replay it.
        bytes: that a perfect implementation moves.
        flops: that it computes; 0 if no tensor core could.
    """

    name: str
    run: Callable[[], object]
    bytes: float
    flops: float

"""What tests of fused kernels share: inputs, and poison where outputs go."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor

from rose.kernels.dispatch import Implementation, force
from rose.kernels.quantize import ceil_div
from rose.kernels.reference import Tolerance

LARGE = 2**24


def random(*shape: int, device: torch.device, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normal bfloat16 values [rows, width] or [width], the same on every device.

    A CPU takes seconds to draw millions: large tensors repeat their first rows.
    """
    drawn = shape if len(shape) == 1 else (min(shape[0], LARGE // shape[1]), shape[1])
    values = torch.randn(drawn, generator=torch.Generator().manual_seed(seed)) * scale
    values = values.bfloat16().to(device)
    if drawn == shape:
        return values
    return values.repeat(ceil_div(shape[0], drawn[0]), 1)[: shape[0]].contiguous()


@contextmanager
def poisoned() -> Iterator[None]:
    """Fresh memory holds NaN, or a large integer: what a kernel fails to write shows."""

    def fill(out: Tensor) -> Tensor:
        if out.dtype.itemsize == 1:
            out.view(torch.uint8).fill_(0x7F)
        else:
            out.fill_(torch.nan if out.is_floating_point() else 0x7F7F7F7F)
        return out

    def filled(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *args, **kwargs: fill(make(*args, **kwargs))

    with (
        mock.patch.object(torch, "empty", filled(torch.empty)),
        mock.patch.object(torch, "empty_like", filled(torch.empty_like)),
    ):
        yield


def fused(call: Callable[[], object]) -> list[Tensor]:
    """The tensors that the Triton kernel gives, in poisoned memory; twice the same bytes."""
    runs = []
    for _ in range(2):
        with force(Implementation.TRITON), poisoned():
            result = call()
        runs.append([result] if isinstance(result, Tensor) else list(result))
    for first, second in zip(*runs, strict=True):
        assert same_bytes(first, second), "two runs differ"
    return runs[0]


def same_bytes(found: Tensor, wanted: Tensor) -> bool:
    """Equal shapes, dtypes and bytes, wherever they lie."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    pair = (found, wanted.to(found.device))
    as_bytes = (each.contiguous().view(torch.uint8) for each in pair)
    return torch.equal(*as_bytes)


def assert_near(found: Tensor, truth: Tensor, tolerance: Tolerance) -> None:
    """Check bfloat16 against float64, by the op's tolerance."""
    assert found.dtype == torch.bfloat16
    assert found.shape == truth.shape
    assert found.isfinite().all()
    if truth.numel():
        error = (found.double() - truth).abs().max()
        assert error <= tolerance.bfloat16 * truth.abs().max(), error

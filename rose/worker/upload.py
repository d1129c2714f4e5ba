"""Between host and device without waiting: how a worker sends numbers and gets results."""

from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Number = TypeVar("Number", bound=np.generic)


def upload(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy to the device, in order with the work enqueued there.

    On CUDA the copy starts from a fresh pinned buffer, which torch's host allocator keeps until
    the copy is done. On the CPU the tensor shares `array`'s memory: don't write to it again.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def upload_into(target: Tensor, array: npt.NDArray[np.generic]) -> None:
    """Copy into `target`, of array's shape and type, in order with the work enqueued there."""
    source = torch.from_numpy(array)
    if target.is_cuda:
        source = source.pin_memory()
    target.copy_(source, non_blocking=True)


class Staging(Generic[Number]):
    """Arrays of one type that travel in one copy."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[Number]] = []

    def add(self, part: npt.NDArray[Number]) -> None:
        """Queue an array."""
        self._parts.append(part)

    def upload(self, device: torch.device) -> list[Tensor]:
        """All arrays on the device, in the order and the shapes in which they were added."""
        packed = upload(np.concatenate([part.reshape(-1) for part in self._parts]), device)
        tensors, start = [], 0
        for part in self._parts:
            tensors.append(packed[start : start + part.size].view(part.shape))
            start += part.size
        return tensors


class Download:
    """Device tensors on their way to the host; `wait` before reading them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event: torch.cuda.Event | None = None

    def add(self, tensor: Tensor) -> Tensor:
        """Start the copy; the answer's content is valid after `wait`."""
        if self._device.type == "cpu":
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return host.copy_(tensor, non_blocking=True)

    def close(self) -> None:
        """No more copies follow."""
        if self._device.type == "cuda":
            self._event = torch.cuda.current_stream(self._device).record_event()

    def wait(self) -> None:
        """Return once every copy is done. Raises what the device raised."""
        if self._event is not None:
            self._event.synchronize()

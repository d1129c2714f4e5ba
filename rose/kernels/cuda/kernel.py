"""A kernel of a CUDA C++ source: compiled, loaded once a device, launched on torch's stream."""

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from rose.kernels.cuda import driver, nvrtc

Grid = tuple[int, int, int]


class Kernel:
    """One kernel with its constants. Make it once, since the first launch loads it.

    Launches cost a few microseconds: what they fill in is laid out here. The first one on a device
    must not be under graph capture.

    Attributes:
        name: of the kernel in its source.
        threads: of a block.
        shared: bytes of dynamic shared memory of a block.
    """

    def __init__(
        self,
        source: Path,
        name: str,
        parameters: str,
        *,
        threads: int,
        defines: Mapping[str, int] | None = None,
        shared: int = 0,
        dependent: bool = False,
    ) -> None:
        """Nothing is compiled yet.

        Args:
            source: the `.cu` file.
            name: of the kernel in it, which is `extern "C"`.
            parameters: the kernel's, a letter each: P a pointer, i int, f float, q long long.
            threads: of a block.
            defines: macros of the source by name.
            shared: bytes of dynamic shared memory of a block.
            dependent: launch it as a programmatic dependent of the kernel before, as
                rose/kernels/fused/dependent.py tells; it waits by `griddepcontrol.wait` itself.
        """
        self.name, self.threads, self.shared = name, threads, shared
        self._source = source
        self._defines = dict(defines or {})
        self._functions: dict[int, int] = {}  # by device
        self._lock = Lock()
        self._config = driver.launch_config(threads, shared, dependent)
        self._config_address = ctypes.addressof(self._config)
        layout = struct.Struct(parameters)  # aligned as C aligns
        self._storage = ctypes.create_string_buffer(layout.size)
        self._pack = layout.pack_into
        self._parameters = _addresses(self._storage, parameters)

    def cubin(self) -> bytes:
        """Compile it, or find it in the cache.

        Raises:
            CompileError: NVRTC does not take the source.
        """
        return nvrtc.cubin(self._source, self._defines)

    def launch(self, grid: Grid, *arguments: Tensor | float) -> None:
        """Enqueue it on the current stream of the current device.

        Args:
            grid: blocks in each dimension.
            arguments: one a parameter: a tensor, or 0 for none, for a pointer; whoever calls this
                sees to their device, dtype and layout.

        Raises:
            CompileError: NVRTC does not take the source.
            DriverError: the driver refuses it.
            struct.error: an argument does not fit its parameter.
        """
        if _instead is not None:
            _instead(self, grid)
            return
        device = torch.cuda.current_device()
        values = [each.data_ptr() if isinstance(each, Tensor) else each for each in arguments]
        with self._lock:  # the driver copies the arguments before it returns
            function = self._functions.get(device) or self._load(device)
            config = self._config
            config.grid_x, config.grid_y, config.grid_z = grid
            config.stream = torch._C._cuda_getCurrentRawStream(device)
            self._pack(self._storage, 0, *values)
            status = driver.libcuda().cuLaunchKernelEx(
                self._config_address, function, self._parameters, None
            )
        if status:
            driver.check(status, f"launch {self.name} with a grid of {grid}")

    def _load(self, device: int) -> int:
        function = driver.load_function(self.cubin(), self.name, self.shared)
        self._functions[device] = function
        return function


def _addresses(
    storage: ctypes.Array[ctypes.c_char], parameters: str
) -> ctypes.Array[ctypes.c_void_p]:
    """Where each parameter lies, as the driver wants them."""
    ends = [struct.calcsize(parameters[: n + 1]) for n in range(len(parameters))]
    sizes = [struct.calcsize(each) for each in parameters]
    start = ctypes.addressof(storage)
    places = [start + end - size for end, size in zip(ends, sizes, strict=True)]
    return (ctypes.c_void_p * len(places))(*places)


_instead: Callable[[Kernel, Grid], object] | None = None


@contextmanager
def instead_of_launching(take: Callable[[Kernel, Grid], object]) -> Iterator[None]:
    """In this block, `take` gets each kernel and its grid, and nothing is launched."""
    global _instead
    before, _instead = _instead, take
    try:
        yield
    finally:
        _instead = before

"""Compile kernels in Triton and in CUDA C++ for Hopper on a machine without a GPU.

Inside `compile_only()` a kernel's own Python wrapper, called on CPU tensors of true shapes,
compiles what it would launch on an H100 or H200, specialised in the same way, and launches nothing.
TRITON_INTERPRET must not be set.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime._async_compile import FutureKernel
from triton.runtime.jit import JITFunction

from rose.kernels.cuda.kernel import Grid, Kernel, instead_of_launching

HOPPER = GPUTarget("cuda", 90, 32)

SHARED_LIMIT = 232448
"""The most bytes of shared memory that a block may have on Hopper."""

_SYSTEM_SHARED = 1024
"""Bytes that the system keeps of each block's shared memory, beyond that limit."""

_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


@dataclass(frozen=True, slots=True)
class CompiledLaunch:
    """One launch as it was compiled.

    Attributes:
        kernel: its name.
        grid: programs in each dimension.
        warps, stages: launch options; a kernel in CUDA C++ has 0 stages.
        shared: bytes of shared memory a block.
        registers: of a thread.
        stack: bytes of a thread's stack frame, which is where registers spill to.
        wgmma: whether it uses Hopper's own tensor core instructions.
        ptx: the code before assembly; of a kernel in CUDA C++ none is kept.
        cubin: the machine code; of a kernel in CUDA C++ it holds all of its source's.
    """

    kernel: str
    grid: tuple[int, ...]
    warps: int
    stages: int
    shared: int
    registers: int
    stack: int
    wgmma: bool
    ptx: str
    cubin: bytes = field(repr=False)


class _HopperWithoutDevice(DriverBase):
    """Knows the target; anything that needs a device is an error."""

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return HOPPER

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_active_torch_device(self) -> object:
        raise NotImplementedError

    def get_benchmarker(self) -> object:
        raise NotImplementedError


@contextmanager
def compile_only() -> Iterator[list[CompiledLaunch]]:
    """Compile every launch in this block instead of running it; the list fills as they come."""
    launches: list[CompiledLaunch] = []
    original = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:  # noqa: ANN401
        kernel = original(self, *args, grid=grid, warmup=True, **options)
        if not isinstance(kernel, FutureKernel):  # it is being compiled, for a later launch
            launches.append(_describe(kernel, tuple(grid)))
        return kernel

    described: dict[Kernel, CompiledLaunch] = {}  # disassembling takes seconds

    def compile_cubin(kernel: Kernel, grid: Grid) -> None:
        if kernel not in described:
            described[kernel] = _describe_cuda(kernel, grid)
        launches.append(replace(described[kernel], grid=grid))

    triton.runtime.driver.set_active(_HopperWithoutDevice())
    with mock.patch.object(JITFunction, "run", run), instead_of_launching(compile_cubin):
        yield launches


def _describe(kernel: Any, grid: tuple[int, ...]) -> CompiledLaunch:  # noqa: ANN401
    metadata = kernel.metadata
    usage = _resource_usage(kernel.asm["cubin"], metadata.name)
    return CompiledLaunch(
        kernel=metadata.name,
        grid=grid,
        warps=metadata.num_warps,
        stages=metadata.num_stages,
        shared=metadata.shared,
        registers=usage["REG"],
        stack=usage["STACK"],
        wgmma="wgmma.mma_async" in kernel.asm["ptx"],
        ptx=kernel.asm["ptx"],
        cubin=kernel.asm["cubin"],
    )


def _describe_cuda(kernel: Kernel, grid: Grid) -> CompiledLaunch:
    cubin = kernel.cubin()
    usage = _resource_usage(cubin, kernel.name)
    return CompiledLaunch(
        kernel=kernel.name,
        grid=grid,
        warps=kernel.threads // 32,
        stages=0,
        shared=usage["SHARED"] - _SYSTEM_SHARED + kernel.shared,
        registers=usage["REG"],
        stack=usage["STACK"],
        wgmma="GMMA" in cuobjdump(cubin, "--dump-sass", "--function", kernel.name),
        ptx="",
        cubin=cubin,
    )


def _resource_usage(cubin: bytes, name: str) -> dict[str, int]:
    """Of one of a cubin's kernels."""
    text = cuobjdump(cubin, "--dump-resource-usage")
    usage = text.partition(f"Function {name}:")[2].splitlines()[1]
    return {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", usage)}


def cuobjdump(cubin: bytes, *options: str) -> str:
    """What cuobjdump, as Triton brings it, prints of a cubin with these options."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [_CUOBJDUMP, *options, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

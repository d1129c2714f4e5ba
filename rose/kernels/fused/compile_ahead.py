"""Compiling many kernels at once: one is compiled when it is launched, and the caller waits."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import triton
from triton.runtime.jit import JITFunction

from rose.kernels.cuda.kernel import Grid, Kernel, instead_of_launching


@contextmanager
def compile_ahead(threads: int) -> Iterator[None]:
    """Compile what this block launches, in several threads, and launch none of it.

    Triton and NVRTC let go of Python's lock while they compile. Outputs of kernels stay as they
    were allocated, so nothing may follow that depends on them. All that was asked for is compiled
    when the block ends.

    Args:
        threads: compilers at work at a time.

    Raises:
        CompileError: a kernel in CUDA C++ does not compile; Triton has errors of its own.
    """
    launch = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:  # noqa: ANN401
        return launch(self, *args, grid=grid, warmup=True, **options)

    cubins: dict[Kernel, Future[bytes]] = {}

    def compile_cubin(kernel: Kernel, grid: Grid) -> None:
        if kernel not in cubins:
            cubins[kernel] = executor.submit(kernel.cubin)

    with ThreadPoolExecutor(threads, thread_name_prefix="compile") as executor:
        # Triton has a warm-up for each kernel, but wrappers launch; this reaches all of them.
        JITFunction.run = compile_only
        try:
            with triton.AsyncCompileMode(executor), instead_of_launching(compile_cubin):
                yield
            for each in cubins.values():
                each.result()
        finally:
            JITFunction.run = launch

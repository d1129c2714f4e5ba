"""Compiling many kernels at once: Triton compiles one when it is launched, and the caller waits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import triton
from triton.runtime.jit import JITFunction


@contextmanager
def compile_ahead(threads: int) -> Iterator[None]:
    """Compile what this block launches, in several threads, and launch none of it.

    Triton lets go of Python's lock while it compiles. Outputs of kernels stay as they were
    allocated, so nothing may follow that depends on them. All that was asked for is compiled when
    the block ends.

    Args:
        threads: compilers at work at a time.
    """
    launch = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:  # noqa: ANN401
        return launch(self, *args, grid=grid, warmup=True, **options)

    with ThreadPoolExecutor(threads, thread_name_prefix="compile") as executor:
        # Triton has a warm-up for each kernel, but wrappers launch; this reaches all of them.
        JITFunction.run = compile_only
        try:
            with triton.AsyncCompileMode(executor):
                yield
        finally:
            JITFunction.run = launch

"""Programmatic dependent launch: a kernel comes to the SMs while the one before it still ends.

A decode step is some hundreds of kernels, each of a few microseconds, of which about one passes
between the end of one and the start of the next. A kernel launched with `LAUNCH` may start as soon
as all programs of the one before have called `start` or ended; its own `start` then waits until
that one is complete and what it wrote can be read. So every kernel that is launched so calls
`start` in each program, before it writes anything or reads what the kernel before may write. What
the kernels before that one wrote can be read even earlier: they were complete when it let this one
come. CUDA graphs keep these launches.
"""

# mypy: disable-error-code="untyped-decorator"

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from rose.kernels.fused.interpret import INTERPRETED

LAUNCH: dict[str, bool] = {} if INTERPRETED else {"launch_pdl": True}
"""Keyword arguments of a launch. Without them, `start` does nothing."""

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def start() -> None:
    """Wait for the kernel before; then the next one may come."""
    if not _INTERPRETED:
        gdc_wait()
        gdc_launch_dependents()

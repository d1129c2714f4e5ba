"""Python without Triton's interpreter, in a process of its own: kernels are compiled there."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run_python(*arguments: str, **environment: str) -> str:
    """Run Python on these arguments, from the repository's root; what it printed.

    Args:
        arguments: of the interpreter, such as "-m" and a module.
        environment: set besides this process's own.
    """
    inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout

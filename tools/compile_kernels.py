"""Compile the fused kernels at their full-size launches for Hopper; needs no GPU.

`python -m tools.compile_kernels [OP ...] [--json]`: OP names tests/kernels/fused/launches_OP.py.
Its `launches()` calls the kernels' wrappers as an engine would.
"""

import argparse
import importlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.sm90 import CompiledLaunch

FOLDER = Path(__file__).resolve().parents[1] / "tests/kernels/fused"
COLUMNS = ("kernel", "grid", "warps", "stages", "shared", "registers", "stack", "wgmma")


def known() -> list[str]:
    """The ops that have launches."""
    return sorted(path.stem.removeprefix("launches_") for path in FOLDER.glob("launches_*.py"))


def compile_ops(ops: Iterable[str]) -> list["CompiledLaunch"]:
    """Compile the launches of these ops. Triton must not have been imported before.

    Args:
        ops: each in `known()`.
    """
    os.environ.pop("TRITON_INTERPRET", None)

    from tools.sm90 import compile_only

    with compile_only() as launches:
        for op in ops:
            importlib.import_module(f"tests.kernels.fused.launches_{op}").launches()
    return launches


def main() -> None:
    """Print a line a launch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", metavar="OP", help=f"of {', '.join(known())}; all")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    unknown = set(arguments.ops) - set(known())
    if unknown:
        parser.error(f"no launches of {', '.join(sorted(unknown))}; there are {', '.join(known())}")
    launches = compile_ops(arguments.ops or known())
    if arguments.json:
        print(json.dumps([{k: getattr(each, k) for k in COLUMNS} for each in launches]))
        return
    print(" ".join(COLUMNS))
    for each in launches:
        print(*(getattr(each, column) for column in COLUMNS))


if __name__ == "__main__":
    main()

"""Fixtures shared by all tests."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    # Before the first kernel is imported: Triton decides by it when a kernel is defined.
    os.environ["TRITON_INTERPRET"] = "1"
    if find_spec("triton"):
        importlib.import_module("tests.triton_interpreter")

ROOT = Path(__file__).resolve().parents[1]
ORACLES = (ROOT.parent / "shared" / "oracle", ROOT / "build" / "oracle")
"""Where the oracle checkpoints may be: beside the checkout, or copied into its build folder."""


# Whether a test passes is a matter of the code: not of the machine's speed, nor of the day's luck.
settings.register_profile(
    "rose", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("rose")


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """What a test draws does not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Small models gain nothing from threads, and tests that run side by side lose."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def oracle_dir() -> Path:
    """Checkpoints with transformers' logits, where they are laid."""
    for folder in ORACLES:
        if folder.is_dir():
            return folder
    pytest.skip(f"no oracle checkpoints at {' or '.join(map(str, ORACLES))}")


@pytest.fixture(scope="session")
def make_checkpoint(
    oracle_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """A factory of random MXFP4 checkpoints with reference logits, one a set of flags.

    `make_checkpoint(layers=2, kv_heads=1)` passes `--layers 2 --kv-heads 1` to the oracle's script.
    """
    made: dict[tuple[tuple[str, int], ...], Path] = {}

    def make(**flags: int) -> Path:
        key = tuple(sorted(flags.items()))
        if key not in made:
            out = tmp_path_factory.mktemp("checkpoint")
            words = [w for k, v in key for w in (f"--{k.replace('_', '-')}", str(v))]
            script = str(oracle_dir / "make_checkpoint.py")
            subprocess.run([sys.executable, script, str(out), *words], check=True, timeout=240)
            made[key] = out
        return made[key]

    return make

"""What a measurement ran on and with: read from the system, without torch."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from rose.bench.results import Machine, Software
from rose.version import __version__

PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "tokenspeed-fa3",
    "vllm",
    "sglang",
    "flashinfer-python",
    "humming-kernels",
    "nvidia-nccl-cu13",
)
"""Distributions whose release may change a number."""

_TIMEOUT_S = 10.0


class _Gpu(NamedTuple):
    """What the driver tells of a GPU."""

    name: str
    memory_mib: str
    driver: str
    uuid: str


def detect_machine() -> Machine:
    """This host. GPUs are those that the driver shows, whether this process may use them or not."""
    gpus = _gpus()
    first = gpus[0] if gpus else None
    pages, page_size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _all_cores(),
        memory_bytes=pages * page_size,
        gpu=first.name if first else None,
        gpus=len(gpus),
        gpu_memory_bytes=int(float(first.memory_mib) * 2**20) if first else 0,
        driver=first.driver if first else None,
        gpu_uuids=[gpu.uuid for gpu in gpus],
    )


def detect_software(engine: str | None = None) -> Software:
    """This installation.

    Args:
        engine: what is measured, as "vllm 0.26.0"; None: Rose itself.
    """
    return Software(
        engine=engine or f"rose {__version__}",
        rose=__version__,
        commit=_commit(Path(__file__).resolve().parents[2]),
        python=platform.python_version(),
        packages={name: found for name in PACKAGES if (found := package_version(name))},
    )


def package_version(name: str) -> str | None:
    """The installed release of a distribution; None if there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _all_cores() -> int:
    return os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _gpus() -> list[_Gpu]:
    fields = "--query-gpu=name,memory.total,driver_version,uuid"
    text = _output("nvidia-smi", fields, "--format=csv,noheader,nounits") or ""
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    return [_Gpu(*row) for row in rows if len(row) == len(_Gpu._fields)]


def _commit(folder: Path) -> str | None:
    """The commit of a checkout, marked where files differ from it; None elsewhere."""
    if not (folder / ".git").exists():
        return None
    head = _output("git", "-C", str(folder), "rev-parse", "HEAD")
    changed = _output("git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no")
    if head is None or changed is None:
        return None
    return head.strip() + (" (modified)" if changed.strip() else "")


def _output(*command: str) -> str | None:
    """What a program prints; None if it is not there, fails or hangs."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout

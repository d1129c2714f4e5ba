"""Every source compiles with nvcc, without a warning and without spilling registers."""

import shutil
import subprocess

import pytest

from tests.kernels.cuda.sources import ADD, NVCC, SOURCES

COMMAND = [*NVCC, "-Werror", "all-warnings", "-Xptxas", "-v"]

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc on the path")


def compile_(source, tmp_path):
    command = [*COMMAND, "-o", str(tmp_path / "out.cubin"), str(source)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("source", [*SOURCES, ADD], ids=lambda file: file.name)
def test_no_warnings_no_spills(source, tmp_path):
    done = compile_(source, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    used = [line.strip() for line in done.stderr.splitlines() if "spill stores" in line]
    assert used
    nothing = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    assert set(used) == {nothing}, done.stderr[-3000:]
    # A register of wgmma that is read too early serialises them all, and ptxas only says so.
    assert "wgmma" not in done.stderr, done.stderr[-3000:]


def test_a_warning_is_an_error(tmp_path):
    source = tmp_path / "unused.cu"
    source.write_text('extern "C" __global__ void k() { int unused; }\n')
    assert compile_(source, tmp_path).returncode != 0

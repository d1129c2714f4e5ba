"""bench/kernels.py: the cases are there, the arithmetic is right, and without a GPU it says so."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.kernel_cases.case import Case
from bench.kernels import HEADER, Ceilings, Timer, collect, row

ROOT = Path(__file__).resolve().parents[2]
CEILINGS = Ceilings(copy_rate=4.0, bf16=700.0, fp8=1400.0)


def run(*words):
    command = [sys.executable, "-m", "bench.kernels", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_names_are_unique_and_amounts_positive():
    cases = list(collect())
    assert len({case.name for case in cases}) == len(cases) > 0
    assert all(case.bytes > 0 or case.flops > 0 for case in cases)


def table(name, us, *cells):
    """A line in the columns of the header."""
    ends = [74, 81, 86, 95, 100]
    assert [HEADER[end - 1] for end in ends] == list("ss%s%")
    line = name.ljust(64)
    for cell, end in zip((us, *cells), ends, strict=True):
        line += cell.rjust(end - len(line))
    return line


def test_a_row_holds_rates_and_shares_of_the_ceilings():
    case = Case("product bf16", lambda: None, bytes=2e6, flops=3.5e8)
    assert row(case, 1e-6, CEILINGS) == table("product bf16", "1.0", "2.00", "50%", "350.0", "50%")
    case = Case("product fp8", lambda: None, bytes=0, flops=3.5e8)
    assert row(case, 1e-6, CEILINGS) == table("product fp8", "1.0", "-", "-", "350.0", "25%")
    case = Case("copy", lambda: None, bytes=4e6, flops=0)
    assert row(case, 2e-6, CEILINGS) == table("copy", "2.0", "2.00", "50%", "-", "-")


def test_list_runs_nothing_and_only_chooses():
    done = run("--list", "--only", "sampling draw rows=(1|32)$")
    assert done.returncode == 0
    assert [line.split("rows=")[1].split()[0] for line in done.stdout.splitlines()] == ["1", "32"]
    assert "0.804 MB" in done.stdout


def test_no_match_is_one_line():
    done = run("--list", "--only", "no such kernel")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so():
    done = run()
    assert done.returncode == 1
    assert done.stderr.startswith("bench.kernels: needs an NVIDIA GPU")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="times on a GPU")
def test_there_is_a_time_a_sample():
    x = torch.zeros(64 << 20, device="cuda")
    seconds = Timer(samples=5).measure(lambda: x.add_(1))
    assert len(seconds) == 5
    assert all(each > 0 for each in seconds)

"""Rates of this machine: every case that a CPU has, and all-reduce over two processes."""

import pytest
import torch

from rose.bench import roofline
from rose.bench.ceiling import rates_from
from rose.bench.collective import HIDDEN, measure_all_reduce
from rose.bench.results import RooflineCell, median
from rose.bench.roofline import Case, UnsupportedCaseError, cases, measure

GEMMS = ["gemm fp32 512x512x512", "gemm bf16 512x512x512"]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setitem(roofline.COPY_BYTES, "cpu", 2**20)


def test_a_cpu_has_memory_and_both_products(small):
    cells = list(measure("cpu", repeat=3))
    assert [c.name for c in cells] == ["copy", "read", *GEMMS]
    assert all(len(c.samples) == 3 and min(c.samples) > 0 for c in cells)
    assert [c.amount for c in cells] == [2**21, 2**20, 2 * 512**3, 2 * 512**3]
    fastest = max(c.amount / median(c.samples) for c in cells[2:])
    assert rates_from(cells, "here").matmul == fastest


def test_quick_is_what_ceilings_need(small):
    assert [c.name for c in measure("cpu", repeat=1, quick=True)] == ["read", *GEMMS]


def test_a_gpus_cases_are_the_models_shapes():
    names = [case.name for case in cases("cuda")]
    assert "gemm fp8 8192x5120x2944" in names
    assert "grouped gemm fp8 32x1024x5760x2880" in names
    assert names[-2:] == ["launch eager", "launch graph"]
    assert len(names) == len(set(names))


def test_a_case_that_cannot_run_is_told_and_the_rest_goes_on(small, monkeypatch):
    def refuse():
        raise UnsupportedCaseError("no such unit")

    bad = Case("gemm fp8 1x1x1", "FLOP", 2.0, refuse)
    monkeypatch.setattr(roofline, "cases", lambda device: [bad, *cases(device)])
    found = list(measure("cpu", repeat=1))
    assert found[0] == "gemm fp8 1x1x1: cannot run here: no such unit"
    assert [type(c) for c in found[1:]] == [RooflineCell] * 4


def test_samples_are_as_long_as_the_work(small, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(roofline.time, "perf_counter", lambda: next(clock) * 0.5)
    assert [c.samples for c in measure("cpu", repeat=2)] == [[0.5, 0.5]] * 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="gloo on a machine without a GPU")
def test_all_reduce_over_two_processes():
    [cell] = measure_all_reduce("cpu", 2, repeat=2, rows=(4,))
    assert cell.name == f"all-reduce 4x{HIDDEN} bf16 over 2"
    assert len(cell.samples) == 2
    assert min(cell.samples) > 0

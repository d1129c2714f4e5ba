"""Rates measured before a run: the best sample, and a warning where the machine was busy."""

import pytest

from rose.bench import roofline
from rose.bench.quick_rates import REPEAT, measure_rates
from rose.bench.results import BenchError, RooflineCell


def case(name, *samples, unit="FLOP"):
    return RooflineCell(name=name, unit=unit, amount=8e9, samples=list(samples))


@pytest.fixture
def found(monkeypatch):
    """What the machine gives; the test fills it."""
    cells = []

    def measure(device, repeat, *, quick):
        assert (device, repeat, quick) == ("cpu", REPEAT, True)
        yield from cells

    monkeypatch.setattr(roofline, "measure", measure)
    return cells


def test_the_ceiling_is_the_best_sample(found):
    found += [case("read", 1.3, 1.0, 1.2, unit="B"), case("gemm fp32 1x1x1", 2.0, 2.1, 2.5)]
    lines = []
    rates = measure_rates("cpu", lines.append)
    assert (rates.read, rates.matmul) == (8e9, 4e9)
    assert lines == []


def test_a_round_that_was_disturbed_from_end_to_end_does_not_count(monkeypatch):
    rounds = iter([9.0, 9.0, 1.0, 1.0, 1.0])

    def measure(device, repeat, *, quick):
        slow = next(rounds)
        yield case("read", slow, slow, unit="B")
        yield case("gemm fp32 1x1x1", slow, slow)

    monkeypatch.setattr(roofline, "measure", measure)
    lines = []
    assert measure_rates("cpu", lines.append).matmul == 8e9
    assert lines == []  # most samples were not disturbed


def test_samples_that_scatter_are_told_with_their_rates(found):
    found += [case("read", 1.0, 1.1, 1.2, unit="B"), case("gemm fp32 1x1x1", 50.0, 2.0, 40.0)]
    lines = []
    assert measure_rates("cpu", lines.append).matmul == 4e9
    [line] = lines
    assert line.startswith("warning: this machine is busy")
    assert "gemm fp32 1x1x1 200 MFLOP/s in the median, 4 GFLOP/s at best" in line
    assert "read" not in line


def test_what_cannot_run_is_told(found):
    found += ["gemm fp32: cannot run here: why", case("read", 1.0, unit="B")]
    lines = []
    with pytest.raises(BenchError, match="no bf16 or fp32 GEMM"):
        measure_rates("cpu", lines.append)
    assert lines == ["gemm fp32: cannot run here: why"]

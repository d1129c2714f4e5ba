"""rose bench on a GPU: every roofline case runs, rates are plausible, an engine is measured."""

import pytest
import torch

from rose.bench.ceiling import rates_from
from rose.bench.collective import measure_links
from rose.bench.measure import Identity, measure_decode, measure_prefill
from rose.bench.own import OwnEngine
from rose.bench.results import EngineCell, RooflineCell, Sharding, median
from rose.bench.roofline import cases, measure
from rose.options import EngineOptions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(scope="module")
def cells():
    return list(measure("cuda", repeat=10))


def test_every_case_runs(cells):
    assert [c for c in cells if isinstance(c, str)] == []
    assert len(cells) == len(cases("cuda"))
    for cell in cells:
        print(f"{cell.name}: {cell.amount / median(cell.samples):.4g} {cell.unit}/s")


def test_rates_are_those_of_the_chip_and_not_of_the_host(cells):
    found = {c.name: c.amount / median(c.samples) for c in cells}
    assert found["launch graph"] > 2 * found["launch eager"]
    assert found["gemm fp8 8192x8192x8192"] > 1.3 * found["gemm bf16 8192x8192x8192"]
    if "H200" in torch.cuda.get_device_name():
        rates = rates_from(cells, "here")
        assert rates.read == pytest.approx(4.2e12, rel=0.08)
        assert found["gemm bf16 8192x8192x8192"] == pytest.approx(701e12, rel=0.15)
        assert rates.matmul == pytest.approx(1.09e15, rel=0.2)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_all_reduce():
    found = list(measure_links("cuda", repeat=5))
    assert found
    for cell in found:
        assert isinstance(cell, RooflineCell), cell
        print(f"{cell.name}: {median(cell.samples) / cell.amount * 1e6:.1f} us")


def test_an_engine_is_measured():
    options = EngineOptions(model="nano", device="cuda", max_num_seqs=16)
    config = options.resolve()
    who = Identity("rose-nano", config.quantization, Sharding(), config.model.vocab_size)
    engine = OwnEngine(config)
    try:
        found = list(
            measure_prefill(engine, who, inputs=(1000,), batches=(1, 4), runs=2, warmup=1, seed=0)
        )
        found += measure_decode(
            engine, who, contexts=(1000,), batches=(1, 16), steps=32, warmup=4, seed=0
        )
    finally:
        engine.close()
    measured = [cell for cell in found if isinstance(cell, EngineCell)]
    assert [(c.phase, c.batch) for c in measured] == [
        ("prefill", 1),
        ("prefill", 4),
        ("decode", 16),
        ("decode", 1),
    ]
    for cell in measured:
        print(f"{cell.phase} batch {cell.batch}: {median(cell.samples) * 1e3:.3f} ms")

"""Ceilings, against figures worked out apart for the published models."""

import pytest

from rose.bench.ceiling import (
    H200,
    attention_flop,
    decode_bytes,
    decode_seconds,
    matrix_flop,
    prefill_seconds,
    rates_from,
    rates_from_result,
)
from rose.bench.recorder import new_result
from rose.bench.results import BenchError, RooflineCell
from rose.config import ModelConfig
from rose.models.builtin import builtin_checkpoint, builtin_shape


def shape(name):
    return ModelConfig.load(builtin_shape(f"gpt-oss-{name}"))


@pytest.mark.parametrize(("name", "gflop"), [("120b", 9.1), ("20b", 6.1)])
def test_products_of_a_token(name, gflop):
    assert matrix_flop(shape(name)) / 1e9 == pytest.approx(gflop, rel=0.01)


@pytest.mark.parametrize(("name", "full_layers"), [("120b", 18), ("20b", 12)])
def test_attention_of_a_long_prompt_is_that_of_the_full_layers(name, full_layers):
    tokens = 128000
    full = 4 * tokens**2 / 2 * 4096 * full_layers
    assert attention_flop(shape(name), tokens) == pytest.approx(full, rel=0.005)


def test_a_prompt_within_the_window_costs_all_layers_alike():
    model = shape("20b")
    pairs = 100 * 101 / 2
    assert attention_flop(model, 100) == pytest.approx(4 * 4096 * 24 * pairs)


@pytest.mark.parametrize(
    ("name", "tokens", "seconds"),
    [
        ("120b", 8192, 0.098),
        ("120b", 32768, 0.634),
        ("120b", 65536, 1.913),
        ("120b", 128000, 6.138),
        ("20b", 8192, 0.065),
        ("20b", 128000, 4.092),
    ],
)
def test_prefill_on_an_h200(name, tokens, seconds):
    found = prefill_seconds(shape(name), tokens, 1, H200)
    assert found == pytest.approx(seconds, rel=0.03)
    assert prefill_seconds(shape(name), tokens, 3, H200, gpus=2) == pytest.approx(found * 1.5)


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("120b", [796, 566, 363, 219, 130, 81, 56, 41]),
        ("20b", [1076, 805, 564, 391, 287, 221, 164, 108]),
    ],
)
def test_decode_on_an_h200(name, rates):
    for power, expected in enumerate(rates):
        seconds = decode_seconds(shape(name), "mxfp4", 8192, 2**power, H200)
        assert 1 / seconds == pytest.approx(expected, rel=0.02), 2**power


def test_bytes_of_a_step_at_batch_1_without_context():
    assert decode_bytes(shape("120b"), "mxfp4", 1, 1) / 1e9 == pytest.approx(5.0, rel=0.01)
    assert decode_bytes(shape("120b"), "fp8", 1, 1) / 1e9 == pytest.approx(6.7, rel=0.01)
    assert decode_bytes(shape("20b"), "mxfp4", 1, 1) / 1e9 == pytest.approx(3.7, rel=0.01)
    assert decode_bytes(shape("20b"), "fp8", 1, 1) / 1e9 == pytest.approx(4.8, rel=0.02)


def test_a_huge_batch_of_a_small_model_is_bound_by_arithmetic():
    nano = ModelConfig.load(builtin_checkpoint("nano"))
    slow = decode_seconds(nano, "mxfp4", 1, 10**6, H200)
    products = 10**6 * (matrix_flop(nano) + 2 * nano.vocab_size * nano.hidden_size)
    assert slow == pytest.approx(products / H200.matmul)


def cell(name, amount, unit="FLOP", samples=(1.0, 2.0, 3.0)):
    return RooflineCell(name=name, unit=unit, amount=amount, samples=list(samples))


def test_rates_out_of_a_roofline():
    cells = [
        cell("read", 8.0, "B"),
        cell("copy", 99.0, "B"),
        cell("gemm bf16 8192x8192x8192", 200.0),
        cell("gemm fp8 8192x5120x2944", 400.0),
    ]
    found = rates_from(cells, "a file")
    assert (found.read, found.matmul, found.attention) == (4.0, 200.0, pytest.approx(77.0))
    # The experts are grouped GEMMs, which are slower than one large one.
    found = rates_from([*cells, cell("grouped gemm fp8 32x1024x5760x2880", 300.0)], "a file")
    assert found.matmul == 150.0
    assert rates_from([cell("read", 8.0, "B"), cell("gemm fp32 64x64x64", 2.0)], "").matmul == 1.0


def test_a_result_without_rates():
    with pytest.raises(BenchError, match="make it with rose bench roofline"):
        rates_from_result(new_result(flags={}), "r.json")


def test_dense_layers_in_fp8_leave_less_to_read():
    model = shape("120b")
    saved = decode_bytes(model, "mxfp4", 8192, 1) - decode_bytes(model, "mxfp4+fp8", 8192, 1)
    head = model.vocab_size * model.hidden_size
    attention = 36 * (2 * 4096 + 2 * 512) * 2880
    assert saved == pytest.approx(head + attention, rel=1e-3)
    with pytest.raises(ValueError, match="int3"):
        decode_bytes(model, "int3", 1, 1)

"""The tables that prefill and decode print."""

import msgspec
import pytest

from rose.bench.ceiling import H200, decode_seconds, prefill_seconds
from rose.bench.console import (
    DECODE_COLUMNS,
    PREFILL_COLUMNS,
    Context,
    header,
    percentile,
    roofline_row,
    row,
    skipped_row,
)
from rose.bench.results import EngineCell, RooflineCell, Sharding, SkippedCell
from rose.config import ModelConfig
from rose.models.builtin import builtin_shape

MODEL = ModelConfig.load(builtin_shape("gpt-oss-120b"))
CONTEXT = Context(MODEL, H200, usd_per_gpu_hour=3.0)


def cell(phase, samples, **changes):
    made = EngineCell(
        phase=phase,
        model="gpt-oss-120b",
        quantization="mxfp4",
        sharding=Sharding(),
        batch=1,
        tokens=8192,
        samples=samples,
    )
    return msgspec.structs.replace(made, **changes)


def values(text):
    return [part.strip() for part in text.strip("| ").split("|")]


def titled(columns, text):
    titles = [title for title, _ in columns]
    assert len(values(text)) == len(titles)
    return list(zip(titles, values(text), strict=True))


def test_a_prefill_beside_the_published_table_the_peer_and_the_ceiling():
    found = titled(PREFILL_COLUMNS, row(cell("prefill", [0.180, 0.182, 0.189]), CONTEXT))
    ceiling = prefill_seconds(MODEL, 8192, 1, H200)
    assert found == [
        ("sharding", "tp1"),
        ("batch", "1"),
        ("input", "8192"),
        ("seconds", "0.1820"),
        ("spread", "4.9%"),
        ("tokens/s", "45011"),
        ("$/M input", "0.019"),
        ("published s", "0.3640"),
        ("faster", "2.00x"),
        ("peer s", "0.2037"),
        ("faster", "1.12x"),
        ("ceiling s", f"{ceiling:.4f}"),
        ("reached", f"{ceiling / 0.182:.0%}"),
    ]


def test_only_batch_1_was_published():
    found = dict(titled(PREFILL_COLUMNS, row(cell("prefill", [0.4], batch=2), CONTEXT)))
    assert found["published s"] == "-"
    assert found["tokens/s"] == "40960"


def test_a_decode_beside_the_peer_and_the_ceiling():
    samples = [0.004] * 99 + [0.010]
    found = titled(DECODE_COLUMNS, row(cell("decode", samples, batch=8), CONTEXT))
    ceiling = decode_seconds(MODEL, "mxfp4", 8192, 8, H200)
    assert found == [
        ("sharding", "tp1"),
        ("context", "8192"),
        ("batch", "8"),
        ("ms/step", "4.000"),
        ("p99 ms", "4.000"),
        ("tok/s/user", "250.0"),
        ("tok/s/GPU", "2000"),
        ("$/M output", "0.417"),
        ("peer t/s/u", "109.7"),
        ("faster", "2.28x"),
        ("ceiling", f"{1 / ceiling:.1f}"),
        ("reached", f"{ceiling / 0.004:.0%}"),
    ]


def test_gpus_share_the_tokens_and_add_to_the_price():
    two = cell("decode", [0.004], batch=8, sharding=Sharding(tp=2))
    found = dict(titled(DECODE_COLUMNS, row(two, CONTEXT)))
    assert (found["tok/s/GPU"], found["$/M output"]) == ("1000", "0.833")


def test_a_model_that_nobody_else_measured_on_an_unknown_machine():
    unknown = Context(MODEL, None, 3.0)
    for phase in ("prefill", "decode"):
        text = row(cell(phase, [0.1], model="nano"), unknown)
        assert values(text).count("-") == {"prefill": 6, "decode": 4}[phase]


@pytest.mark.parametrize("columns", [PREFILL_COLUMNS, DECODE_COLUMNS])
def test_columns_are_as_wide_as_their_titles(columns):
    assert all(len(title) <= width for title, width in columns)
    titles, rule = header(columns).splitlines()
    assert len(titles) == len(rule)


def test_what_does_not_fit_stands_in_its_place():
    skipped = SkippedCell(
        phase="decode", model="m", sharding=Sharding(), batch=128, tokens=32768, reason="too large"
    )
    assert values(skipped_row(skipped)) == ["tp1", "32768", "128", "does not fit: too large"]
    skipped = msgspec.structs.replace(skipped, phase="prefill")
    assert values(skipped_row(skipped)) == ["tp1", "128", "32768", "does not fit: too large"]


def test_a_rate():
    copy = RooflineCell(name="copy", unit="B", amount=4e12, samples=[1.0, 1.0, 1.1])
    assert values(roofline_row(copy)) == ["copy", "4 TB/s", "10.0%"]


def test_percentiles_are_samples():
    samples = [float(i) for i in range(100, 0, -1)]
    assert percentile(samples, 0.99) == 99.0
    assert percentile(samples, 1.0) == 100.0
    assert percentile([5.0], 0.01) == 5.0

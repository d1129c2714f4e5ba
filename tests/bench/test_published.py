"""The published table and the peers' numbers that ship with Rose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rose.bench.published import (
    find_peer,
    find_published,
    peer_rows,
    peer_source,
    plain_model,
    prefill_rows,
    prefill_source,
    prefill_usd_per_gpu_hour,
)
from rose.bench.results import BenchError, Sharding, usd_per_million_tokens

PRINTED = 0.001
"""The published costs have three decimals, and so have the seconds."""


@pytest.mark.parametrize(
    "cell", prefill_rows(), ids=lambda cell: f"{cell.model} {cell.sharding.name} {cell.tokens}"
)
def test_a_published_cost_is_seconds_times_gpus_times_price(cell):
    price = prefill_usd_per_gpu_hour()
    cost = usd_per_million_tokens(
        cell.seconds, cell.tokens, gpus=cell.sharding.gpus, usd_per_gpu_hour=price
    )
    slack = usd_per_million_tokens(
        PRINTED / 2, cell.tokens, gpus=cell.sharding.gpus, usd_per_gpu_hour=price
    )
    assert cost == pytest.approx(cell.usd_per_million, abs=PRINTED / 2 + slack)


def test_the_table_is_whole():
    keys = {(cell.model, cell.sharding.name, cell.tokens) for cell in prefill_rows()}
    assert len(keys) == 32
    assert {cell.sharding.gpus for cell in prefill_rows()} == {1, 2, 4, 8}
    assert prefill_source().date == "2025-08-08"


def test_peers_are_dated_and_no_cell_is_there_twice():
    keys = [(c.engine, c.model, c.sharding.name, c.phase, c.batch, c.tokens) for c in peer_rows()]
    assert len(keys) == len(set(keys)) == 80
    assert peer_source().date > "2026"
    assert "apart from its own numbers, on GPUs of the same kind" in peer_source().text


def test_finding_a_cell():
    assert find_published("gpt-oss-120b", Sharding(), 8192).seconds == 0.364
    # One row for each count of GPUs: TP alone stands beside EP2 TP2.
    assert find_published("gpt-oss-120b", Sharding(tp=2), 8192).sharding.name == "ep2tp2"
    assert find_published("gpt-oss-120b", Sharding(), 8193) is None
    assert find_published("nano", Sharding(), 8192) is None
    # Of several peers the fastest.
    assert find_peer("prefill", "gpt-oss-20b", Sharding(), 1, 8192).engine == "vllm 0.26.0"
    decode = find_peer("decode", "gpt-oss-120b", Sharding(), 1, 8192)
    assert (decode.engine, 1 / decode.seconds) == (
        "vllm 0.33.0, Humming MoE",
        pytest.approx(232.11),
    )
    assert find_peer("decode", "gpt-oss-120b", Sharding(), 1, 32768) is None


def test_plain_names():
    assert plain_model("openai/gpt-oss-20b") == plain_model("gpt-oss-20b") == "gpt-oss-20b"


@pytest.mark.parametrize("name", ["tp1", "tp2", "ep2tp2", "dp2", "dp2ep2", "dp2ep8tp4"])
def test_shardings_by_name(name):
    assert Sharding.parse(name).name == name


@given(tp=st.integers(1, 64), ep=st.integers(1, 64), dp=st.integers(1, 64))
def test_a_sharding_is_its_name(tp, ep, dp):
    sharding = Sharding(tp=tp, ep=ep, dp=dp)
    assert Sharding.parse(sharding.name) == sharding


@pytest.mark.parametrize("name", ["", "tp", "tp0", "tp1,tp2", "tp2tp2", "pp2", "tp2 ", "tp99999"])
def test_what_is_no_sharding(name):
    with pytest.raises(BenchError, match="write it like tp1"):
        Sharding.parse(name)

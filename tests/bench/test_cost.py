"""rose cost: against sums done by hand, and against simulations of the queue it approximates."""

import heapq
import json
import math
import random
import subprocess
import sys

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rose.bench import published
from rose.bench.cost import plan
from rose.bench.cost_text import plan_text
from rose.bench.deployment import Limits
from rose.bench.queueing import delay_probability, wait_quantile
from rose.bench.results import BenchError, Sharding, save
from rose.bench.workload_model import (
    DecodeSurface,
    NotMeasuredError,
    PrefillCurve,
    Workload,
    gather,
)
from rose.cli import main
from tests.bench.synthetic import BATCHES, H100, H200, cell, decode, prefill, result

TP2 = Sharding(tp=2)


def simulate(servers, utilisation, *, requests=60_000, seed=0):
    """Sorted waits of an M/D/c queue whose service takes 1."""
    chance, now, free = random.Random(seed), 0.0, [0.0] * servers
    waits = []
    for _ in range(requests):
        now += chance.expovariate(utilisation * servers)
        start = max(now, heapq.heappop(free))
        heapq.heappush(free, start + 1)
        waits.append(start - now)
    return sorted(waits)


@pytest.mark.parametrize(
    ("servers", "utilisation"), [(1, 0.2), (1, 0.5), (1, 0.85), (4, 0.5), (4, 0.85), (30, 0.9)]
)
def test_the_wait_is_that_of_a_simulated_queue(servers, utilisation):
    waits = simulate(servers, utilisation)
    found = wait_quantile(servers, 1, utilisation, 0.95)
    simulated = waits[int(0.95 * len(waits))]
    # On the slow side, most so where there is little wait at all.
    assert simulated - 0.02 <= found <= simulated * (1.5 if utilisation < 0.8 else 1.15) + 0.25
    delayed = sum(wait > 0 for wait in waits) / len(waits)
    assert delay_probability(servers, utilisation) == pytest.approx(delayed, abs=0.12)


def test_a_full_queue_grows_without_end_and_an_idle_one_has_no_wait():
    assert wait_quantile(3, 1, 1.0, 0.5) == math.inf
    assert wait_quantile(3, 1, 0.01, 0.95) == 0


@given(
    fixed=st.floats(1e-6, 1e-4),
    square=st.floats(0, 1e-8),
    tokens=st.integers(8192, 128_000),
)
def test_prefill_is_exact_for_work_of_n_and_n_squared(fixed, square, tokens):
    def work(n):
        return fixed * n + square * n * n

    curve = PrefillCurve(tuple((n, work(n)) for n in (8192, 40_000, 128_000)))
    assert curve.seconds(tokens) == pytest.approx(work(tokens))
    rest, note = curve.seconds_after(128_000, tokens)
    alone = work(max(8192, 128_000 - tokens))
    assert rest == pytest.approx(max(work(128_000) - work(tokens), alone))
    assert (note is not None) == (128_000 - tokens < 8192)


def test_published_cells_held_out_are_met_within_a_hundredth():
    for model in ("gpt-oss-20b", "gpt-oss-120b"):
        for tp in (1, 2, 4, 8):
            cells = [
                (row.tokens, row.seconds)
                for row in published.prefill_rows()
                if (row.model, row.sharding.tp) == (model, tp)
            ]
            for held, (tokens, seconds) in enumerate(cells[1:-1], start=1):
                rest = PrefillCurve((*cells[:held], *cells[held + 1 :]))
                assert rest.seconds(tokens) == pytest.approx(seconds, rel=0.01)


def test_peer_steps_held_out_err_on_the_slow_side():
    rows = [row for row in published.peer_rows() if row.phase == "decode"]
    held = [row for row in rows if row.engine == "vllm 0.26.0" and 1 < row.batch < 128]
    assert held
    for row in held:
        same = {
            other.batch: other.seconds
            for other in rows
            if (other.engine, other.model, other.sharding) == (row.engine, row.model, row.sharding)
            and other.batch != row.batch
        }
        error = DecodeSurface({8192: same}).seconds(row.batch, 8192) / row.seconds - 1
        assert -0.05 <= error <= 0.2


def test_nothing_is_extrapolated():
    curve = PrefillCurve(((8192, 0.3), (32768, 2.0)))
    for tokens in (8191, 32769):
        with pytest.raises(NotMeasuredError, match="outside the measured 8192 to 32768"):
            curve.seconds(tokens)
    surface = DecodeSurface({8192: {1: 0.01, 4: 0.02}, 16384: {1: 0.02}})
    with pytest.raises(NotMeasuredError, match="outside the measured 8192 to 16384"):
        surface.seconds(1, 20_000)
    with pytest.raises(NotMeasuredError, match="no batch of 5"):
        surface.seconds(5, 8192)
    # The longer context holds one sequence only, so four are known at 8192 alone.
    assert surface.seconds(4, 8192) == 0.02
    with pytest.raises(NotMeasuredError, match="outside the measured 8192"):
        surface.seconds(4, 9000)
    assert surface.by_batch(12_288) == {1: pytest.approx(0.015)}


def test_decode_is_linear_in_context_and_in_the_logarithm_of_the_batch():
    surface = DecodeSurface({1000: {1: 0.01, 4: 0.02}, 3000: {1: 0.03, 4: 0.06}})
    assert surface.seconds(2, 1000) == pytest.approx(0.015)
    assert surface.seconds(1, 2000) == pytest.approx(0.02)
    assert surface.seconds(2, 1500) == pytest.approx((3 * 0.015 + 0.045) / 4)


def small():
    """One GPU: 0.5 s a prompt of 1000; steps of 10 ms at batch 1, 20 ms at 4, at any context."""
    steps = [(1, 0.01), (4, 0.02)]
    decoding = [cell("decode", s, batch=b, tokens=n) for n in (1000, 2000) for b, s in steps]
    return [cell("prefill", 0.5, tokens=1000), *decoding]


def load(**fields):
    return Workload(**{"input_tokens": 1000, "output_tokens": 101, "rate": 1.0, **fields})


def cheapest(cells, workload, usd=3.6, **limits):
    return plan(gather([result(cells)]), workload, usd_per_gpu_hour=usd, limits=Limits(**limits))


def test_a_disaggregated_deployment_by_hand():
    found = cheapest(small(), load(rate=3.0))
    one = next(one for one in found.deployments if one.kind == "disaggregated")
    # Prefill: 3/s x 0.5 s = 1.5 busy replicas: 2. Decode: 3/s x (0.5 s + 100 steps x 20 ms) / 4
    # places = 1.875 full replicas: 3, since two would be 94% full.
    assert (one.prefill_replicas, one.decode_replicas, one.batch) == (2, 3, 4)
    assert one.prefill_utilisation == pytest.approx(0.75)
    assert one.decode_utilisation == pytest.approx(0.625)
    assert one.tokens_per_s_per_user == pytest.approx(50)
    assert one.usd_per_hour == pytest.approx(5 * 3.6)
    assert one.usd_per_request == pytest.approx(5 * 1e-3 / 3)
    assert one.usd_per_million_input == pytest.approx(2e-3 / 3 / 1000 * 1e6)
    assert one.usd_per_million_output == pytest.approx(3e-3 / 3 / 101 * 1e6)
    assert one.tokens_per_s_per_gpu == pytest.approx(3 * 101 / 5)
    assert one.ttft_s == pytest.approx(0.5 + wait_quantile(2, 0.5, 0.75, 0.95) + one.slot_wait_s)


def test_a_colocated_deployment_by_hand():
    found = cheapest(small(), load(rate=1.0))
    assert found.best.kind == "colocated"
    # 0.5 busy by prefills, 0.5 by decode at batch 4: one replica is too busy, two are half busy.
    assert (found.best.gpus, found.best.batch) == (2, 4)
    assert found.best.prefill_utilisation == pytest.approx(0.25)
    assert found.best.tokens_per_s_per_user == pytest.approx(0.75 / 0.02)
    assert found.best.usd_per_million_input == pytest.approx(1e-3 / 1000 * 1e6)


def test_promises_choose_the_batch_the_replicas_and_the_kind():
    slow = cheapest(small(), load(rate=3.0)).best
    fast = cheapest(small(), load(rate=3.0, slo_tokens_per_s=90.0)).best
    assert slow.batch == 4
    assert fast.batch == 1
    assert fast.gpus > slow.gpus
    soon = cheapest(small(), load(rate=3.0, slo_ttft_s=0.6)).best
    assert soon.gpus > slow.gpus
    assert soon.ttft_s <= 0.6
    # Prefills may pause streams for a fifth of the time at most: five replicas and more.
    tight = cheapest(small(), load(rate=1.0, slo_tokens_per_s=80.0)).deployments
    colocated = next(one for one in tight if one.kind == "colocated")
    assert colocated.prefill_utilisation <= 0.2
    assert colocated.tokens_per_s_per_user >= 80


def test_what_no_deployment_keeps_is_said_with_reasons():
    found = cheapest(small(), load(slo_ttft_s=0.4, slo_tokens_per_s=60.0))
    assert found.best is None
    assert found.prefill[0].rejected == "alone takes longer than 0.4 s"
    verdicts = {option.batch: option.rejected for option in found.decode}
    assert verdicts[4] == "slower than 60 tokens/s/user"
    assert verdicts[1] is None


def test_the_cheaper_sharding_wins():
    twice = [cell("prefill", 0.2, tokens=1000, sharding=TP2)]
    found = cheapest([*small(), *twice], load(rate=3.0))
    disaggregated = [one for one in found.deployments if one.kind == "disaggregated"]
    # One TP2 replica (60% busy) costs what two of TP1 do, and needs fewer places.
    assert [one.prefill_sharding for one in disaggregated] == [TP2, Sharding()]
    assert [one.gpus for one in disaggregated] == [4, 5]


@settings(max_examples=40, deadline=None)
@given(
    rate=st.floats(0.1, 200),
    ttft=st.floats(0.3, 5) | st.none(),
    speed=st.floats(10, 200) | st.none(),
    cached=st.sampled_from([0.0, 0.3, 0.9]),
)
def test_every_deployment_keeps_what_is_promised(rate, ttft, speed, cached):
    workload = Workload(
        input_tokens=16_000,
        output_tokens=500,
        rate=rate,
        cached_fraction=cached,
        slo_ttft_s=ttft,
        slo_tokens_per_s=speed,
    )
    cells = gather([prefill(), decode()], model="gpt-oss-120b")
    found = plan(cells, workload, usd_per_gpu_hour=3, limits=Limits())
    for one in found.deployments:
        assert one.prefill_utilisation <= 0.85 + 1e-6
        assert one.decode_utilisation <= 0.85 + 1e-6
        assert ttft is None or one.ttft_s <= ttft
        assert speed is None or one.tokens_per_s_per_user >= speed * (1 - 1e-9)
        paid = one.usd_per_million_input * 16_000 + one.usd_per_million_output * 500
        assert paid == pytest.approx(one.usd_per_request * 1e6)
    order = [(one.gpus, one.ttft_s) for one in found.deployments]
    assert order == sorted(order)


def test_published_costs_are_the_busy_cost_of_prefill():
    cells = [
        cell("prefill", row.seconds, tokens=row.tokens, sharding=row.sharding, model=row.model)
        for row in published.prefill_rows()
        if row.model == "gpt-oss-120b"
    ]
    steps = [cell("decode", 0.01, tokens=n) for n in (8192, 128_002)]
    for tokens in (8192, 32_768, 65_536, 128_000):
        workload = Workload(input_tokens=tokens, output_tokens=2, rate=1)
        for option in cheapest([*cells, *steps], workload, usd=3.0).prefill:
            row = published.find_published("gpt-oss-120b", option.sharding, tokens)
            assert round(option.usd_per_million, 3) == pytest.approx(
                row.usd_per_million, abs=1.1e-3
            )


def test_batches_ascend_whether_measured_on_both_sides_or_not():
    cells = [c for c in small() if (c.phase, c.tokens, c.batch) != ("decode", 2000, 4)]
    found = cheapest(cells, load(output_tokens=201))
    shown = [(one.batch, one.rejected) for one in found.decode]
    assert shown == [(1, None), (4, "not measured: no such batch at contexts on both sides")]


def test_one_gpu_is_singular():
    told = plan_text(cheapest(small(), load(rate=0.1)))
    assert "colocated, 1 GPU, $" in told
    assert "disaggregated one needs 2 GPUs" in told


def test_what_the_model_cannot_hold_is_not_advised():
    nano = [msgspec.structs.replace(c, model="rose-nano") for c in small()]
    with pytest.raises(BenchError) as caught:
        cheapest(nano, load(input_tokens=5000))
    message = str(caught.value)
    assert message.endswith("rose-nano holds sequences of up to 4096 tokens, and these have 5101")
    assert "--input" not in message
    with pytest.raises(BenchError, match="rose bench prefill nano --input 3000"):
        cheapest(nano, load(input_tokens=3000))


def test_cells_that_do_not_cover_the_workload_name_the_command():
    with pytest.raises(BenchError) as caught:
        cheapest(small(), load(input_tokens=3000))
    message = str(caught.value)
    assert "prefill (tp1 not measured: 3000 tokens lie outside the measured 1000)" in message
    assert "`rose bench prefill gpt-oss-120b --input 3000 --out FILE`" in message
    assert "`rose bench decode gpt-oss-120b --context 3000,3101 --out FILE`" in message
    with pytest.raises(BenchError, match=r"decode \(no cells\)"):
        cheapest(small()[:1], load())


def test_one_thing_is_priced_and_mixtures_are_said():
    other = result([cell("prefill", 0.4, tokens=1000)], machine=H100, partial=True, commit="f" * 40)
    mixed = gather([result(small()), other])
    assert mixed.prefill[Sharding()].points == ((1000, pytest.approx(0.4)),)  # the later one
    assert mixed.machines == ["Synthetic H200", "Synthetic H100"]
    told = " ".join(mixed.warnings)
    for words in ("different machines", "different commits", "partial", "SYNTHETIC"):
        assert words in told
    with pytest.raises(BenchError, match=r"choose one: --engine 'rose 0.1.0' --model gpt-oss-120b"):
        gather([prefill(), decode()])
    with pytest.raises(BenchError, match="no cells of prefill or decode of nano"):
        gather([prefill()], model="nano")


def test_cells_of_another_gpu_of_the_same_kind_are_said():
    def on(uuid):
        machine = msgspec.structs.replace(H200, gpu_uuids=[uuid])
        return result(small(), machine=machine, notes=[])

    assert gather([on("GPU-a"), on("GPU-a")]).warnings == []
    [text] = gather([on("GPU-a"), on("GPU-b")]).warnings
    assert "another GPU of the same kind" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input_tokens", 0),
        ("output_tokens", 1),
        ("rate", 0.0),
        ("rate", math.inf),
        ("rate", 1e9),
        ("rate", 1e-308),
        ("cached_fraction", 1.0),
        ("slo_ttft_s", -1.0),
        ("slo_tokens_per_s", math.nan),
    ],
)
def test_workloads_out_of_range_are_refused(field, value):
    with pytest.raises(BenchError, match=r"must be"):
        load(**{field: value})


def test_limits_out_of_range_are_refused():
    for share in (1.0, 1e-300, float("nan")):
        with pytest.raises(BenchError, match=r"max_utilisation must be from 0\.01 to below 1"):
            Limits(max_utilisation=share)
    with pytest.raises(BenchError, match="ttft_quantile must be between 0 and 1"):
        Limits(ttft_quantile=1.0)


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "prefill.json", tmp_path / "decode.json"]
    save(prefill(), paths[0])
    save(decode(), paths[1])
    return list(map(str, paths))


SHAPE = ["--input-tokens", "16000", "--output-tokens", "500", "--rate", "20"]


def test_the_command_prints_the_winner_and_what_led_to_it(files):
    words = ["cost", *files, "--model", "gpt-oss-120b", *SHAPE, "--slo-tokens-per-s", "100"]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 0, ran.output
    for words in ("CHEAPEST: ", "WARNING: SYNTHETIC", "slower than 100 tokens/s/user", "$/M input"):
        assert words in ran.stdout
    as_json = CliRunner().invoke(
        main, [*["cost", *files, "--model", "gpt-oss-120b", *SHAPE], "--json"]
    )
    found = json.loads(as_json.stdout)
    assert found["deployments"][0]["gpus"] >= 1
    assert len(found["decode"]) > 4 * len(BATCHES)  # those between the measured ones too
    assert "WARNING: SYNTHETIC" in as_json.stderr


def test_the_command_fails_where_nothing_keeps_the_promises(files):
    words = ["cost", *files, "--model", "gpt-oss-120b", *SHAPE, "--slo-ttft-s", "0.001"]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 3
    assert "NO DEPLOYMENT" in ran.stdout
    assert "alone takes longer than 0.001 s" in ran.stdout


def test_cost_loads_no_torch(files):
    words = ["cost", *files, "--model", "gpt-oss-20b", *SHAPE]
    code = (
        "import sys; from click.testing import CliRunner; from rose.cli import main; "
        f"assert CliRunner().invoke(main, {words!r}).exit_code == 0; "
        "assert not {'torch', 'numpy', 'matplotlib'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_plan_survives_json():
    found = cheapest(small(), load())
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found

"""rose bench profile: traces of nano on the CPU, and a trace of a GPU written by hand."""

import gzip
import json
import os

import pytest
from click.testing import CliRunner

from rose.bench import ceiling
from rose.bench.kernel_table import Event, Trace, kernel_rows, op_table, read_trace, utilisation
from rose.bench.results import BenchError
from rose.bench.step_work import all_dense, decode_window, prefill_window, work_of
from rose.cli import main
from rose.config import ModelConfig
from rose.engine.engine import Engine

NANO = ("--device", "cpu", "--num-blocks", 64, 96, "--chunk-size", 64)


def run(out, *words):
    command = ["bench", "profile", "nano", *NANO, "--out", out, *words]
    return CliRunner().invoke(main, [str(word) for word in command])


def read(out):
    return json.loads((out / "kernels.json").read_text())


def refusal(result):
    assert result.exit_code in (1, 2), result.output
    line = result.stderr.splitlines()[-1]
    assert line.startswith("Error: ")
    assert isinstance(result.exception, SystemExit)
    return line


def gpt_oss(**changes):
    config = {
        "architectures": ["GptOssForCausalLM"],
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "head_dim": 64,
        "vocab_size": 201088,
        "sliding_window": 128,
        "max_position_embeddings": 131072,
        "eos_token_id": [200002],
    }
    return ModelConfig.from_dicts({**config, **changes}, {}, source="test")


def test_decode_of_nano(tmp_path):
    out = tmp_path / "new" / "folder"
    result = run(out, "--phase", "decode", "--tokens", 70, "--batch", 3, "--steps", 4)
    assert result.exit_code == 0, result.stderr
    found = read(out)
    assert not found["partial"]
    assert found["window"]["steps"] == 4
    assert found["window"]["tokens"] == 12
    calls = {row["name"]: row["calls"] for row in found["kernels"]}
    # One draw a step: the logarithm of the noise is taken there and nowhere else.
    assert calls["aten::log1p_"] == 4
    assert result.stdout.rstrip() == (out / "kernels.txt").read_text().rstrip()
    assert "aten::log1p_" in result.stdout


def test_prefill_of_nano_in_chunks(tmp_path):
    result = run(tmp_path, "--phase", "prefill", "--tokens", 130, "--batch", 2, "--steps", 2)
    assert result.exit_code == 0, result.stderr
    found = read(tmp_path)
    assert found["window"]["tokens"] == 2 * 2 * 130
    assert found["window"]["sampled"] == 2 * 2
    # Each run takes a step for each of three chunks at least.
    assert found["window"]["steps"] >= 6
    # Every op's own time is a share of the busy time, and nothing is counted twice.
    own = sum(row["total"] for row in found["kernels"])
    assert own == pytest.approx(found["busy_seconds"], rel=0.02)
    assert 0 < found["idle_share"] < 1
    with gzip.open(tmp_path / "trace.json.gz") as file:
        assert json.load(file)["traceEvents"]


def test_an_interrupt_keeps_what_was_recorded(tmp_path, monkeypatch):
    steps, real = [], Engine.step

    def step(engine):
        steps.append(1)
        if len(steps) == 12:
            raise KeyboardInterrupt
        return real(engine)

    monkeypatch.setattr(Engine, "step", step)
    result = run(tmp_path, "--phase", "decode", "--tokens", 9, "--steps", 1000)
    assert result.exit_code == 130
    found = read(tmp_path)
    assert found["partial"]
    assert 0 < found["window"]["steps"] < 12
    assert f"interrupted after {found['window']['steps']} of 1000" in result.stdout


def test_an_early_interrupt_writes_no_tables(tmp_path, monkeypatch):
    def interrupted(engine):
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "step", interrupted)
    result = run(tmp_path, "--phase", "prefill", "--tokens", 9)
    assert result.exit_code == 130
    assert not (tmp_path / "kernels.txt").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tokens", 9, "--batch", 65), "--max-num-seqs 65"),
        (("--tokens", 400, "--batch", 3), "does not hold 3 sequences of 400 tokens"),
        (("--tokens", 60, "--max-model-len", 64), "longest length, 64 tokens"),
        (("--tokens", 5000), "5000 tokens"),
        (("--tokens", 9, "--rates", "missing.json"), "missing.json"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(words, said, tmp_path):
    assert said in refusal(run(tmp_path, "--phase", "decode", *words))


def test_a_folder_that_cannot_be_written_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode, **_: not mode & os.W_OK)
    done = run(tmp_path, "--phase", "decode", "--tokens", "8")
    assert done.exit_code == 1
    assert "is not writable; name another folder" in done.output
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    line = refusal(run(tmp_path / "file", "--phase", "decode", "--tokens", 9))
    assert "--out" in line


LAYERS, STEPS = 2, 2


def gpu_trace(folder, *, router=True, extra=()):
    """Two steps of a model of two layers; a kernel every 10 us, each 8 us long."""
    layer = [
        "nvjet_qkv_like",
        "_rope_write_kernel",
        "_attention_decode_kernel",
        "_attention_merge_kernel",
    ]
    layer += ["nvjet_same", "splitKreduce_kernel"]
    layer += ["nvjet_same"] * router + ["_experts_mxfp4_kernel"] * 2
    step = [*layer * LAYERS, "void gemv2T_kernel<float>", "_sample_draw_kernel"]
    events = [{"ph": "M", "name": "process_name", "pid": 0}]
    for number, name in enumerate([*step * STEPS, *extra]):
        kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7}
        events.append({**kernel, "ts": 5000.0 + 10 * number, "dur": 8.0})
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1}
    events.append({**host, "ts": 0.0, "dur": 9e6})
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return read_trace(path)


def calls_by_op(trace: Trace):
    calls = {}
    for row in kernel_rows(trace, layers=LAYERS, steps=STEPS):
        calls[row.op] = calls.get(row.op, 0) + row.calls
    return calls


def test_kernels_of_a_gpu_are_told_apart(tmp_path):
    trace = gpu_trace(tmp_path)
    assert trace.gpu
    each = LAYERS * STEPS
    assert calls_by_op(trace) == {
        "qkv": each,
        "attention": 2 * each,
        "out": 2 * each,  # with the kernel that sums its parts
        "router": each,
        "experts": 2 * each,
        "head": STEPS,
        "": each + STEPS,
    }
    rows = kernel_rows(trace, layers=LAYERS, steps=STEPS)
    assert [row.total for row in rows] == sorted((row.total for row in rows), reverse=True)
    assert sum(row.total for row in rows) == pytest.approx(len(trace.events) * 8e-6)


def test_without_a_product_for_the_router(tmp_path):
    calls = calls_by_op(gpu_trace(tmp_path, router=False))
    assert "router" not in calls
    assert (calls["qkv"], calls["head"]) == (LAYERS * STEPS, STEPS)


def test_a_fused_router_is_known_by_its_name(tmp_path):
    calls = calls_by_op(gpu_trace(tmp_path, router=False, extra=["_router_kernel"]))
    assert (calls["router"], calls["qkv"]) == (1, LAYERS * STEPS)


def test_products_in_no_known_order_stay_together(tmp_path):
    calls = calls_by_op(gpu_trace(tmp_path, extra=["nvjet_same"]))
    assert calls["dense"] == 4 * LAYERS * STEPS + STEPS + 1
    assert "qkv" not in calls


def test_idle_share_counts_overlap_once(tmp_path):
    use = utilisation(gpu_trace(tmp_path).events)
    assert use.idle_share == pytest.approx(0.2, abs=0.01)
    events = []
    for start, duration, stream in [(0, 10, 1), (2, 3, 2), (8, 4, 2), (20, 5, 1)]:
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": stream}
        events.append({**kernel, "ts": start, "dur": duration})
    path = tmp_path / "overlap.json"
    path.write_text(json.dumps({"traceEvents": events}))
    use = utilisation(read_trace(path).events)
    assert use.span == pytest.approx(25e-6)
    assert use.busy == pytest.approx(17e-6)
    assert use.waiting == pytest.approx(8e-6)
    assert str(use) == "idle for 32.0% of it (32.0% in gaps above 2 us)"


def test_a_kernel_that_waits_for_the_one_before_counts_from_its_end():
    kernels = [
        Event("a", "1", 0.0, 10e-6),
        Event("b", "1", 4e-6, 8e-6),
        Event("a", "1", 11e-6, 9e-6),
        Event("inside", "2", 12e-6, 1e-6),
    ]
    rows = kernel_rows(Trace(kernels, gpu=True), layers=1, steps=1)
    assert {row.name: row.total for row in rows} == pytest.approx(
        {"a": 18e-6, "b": 2e-6, "inside": 0.0}
    )
    assert sum(row.total for row in rows) == pytest.approx(utilisation(kernels).busy)


def test_gaps_between_dependent_kernels_are_no_waiting():
    kernels = [Event("k", "1", start, 1e-6) for start in (0.0, 2e-6, 4e-6, 12e-6)]
    use = utilisation(kernels)
    assert use.idle_share == pytest.approx(9 / 13)
    assert use.waiting == pytest.approx(7e-6)


def test_an_empty_trace_is_refused(tmp_path):
    path = tmp_path / "empty.json"
    path.write_text(json.dumps({"traceEvents": []}))
    with pytest.raises(BenchError, match="neither kernels nor ops"):
        read_trace(path)


def test_shares_of_the_ceiling_are_least_time_over_time(tmp_path):
    model, trace = gpt_oss(num_hidden_layers=LAYERS), gpu_trace(tmp_path)
    rates, rows = ceiling.H200, kernel_rows(trace, layers=LAYERS, steps=STEPS)
    window = decode_window(model, contexts=[8192], steps=STEPS)
    work = work_of(model, "mxfp4", window, rates)
    table = op_table(rows, work, rates, utilisation(trace.events), STEPS)
    cells = {row.cells[0]: row.cells for row in table.rows}
    head_bytes = 2 * STEPS * (2880 * 201088 + 2880 + 201088)
    assert work["head"].bytes == head_bytes
    assert cells["head"][1] == f"{STEPS * 8:.1f}"
    assert cells["head"][-1] == f"{head_bytes / 4.2e12 / (STEPS * 8e-6):.0%}"
    assert cells["other"][-1] == "-"
    assert list(cells) == ["attention", "experts", "qkv", "out", "router", "head", "other"]


def test_the_work_adds_up_to_the_models():
    model, tokens = gpt_oss(), 8192
    prefill = work_of(
        model, "fp8", prefill_window(model, prompts=3, tokens=tokens, steps=12), ceiling.H200
    )
    head = 2 * model.vocab_size * model.hidden_size
    flop = ceiling.matrix_flop(model) * tokens + ceiling.attention_flop(model, tokens) + head
    assert sum(each.flop for each in prefill.values()) == pytest.approx(3 * flop)
    for batch in (1, 64):
        window = decode_window(model, contexts=[8192] * batch, steps=1)
        decode = work_of(model, "mxfp4", window, ceiling.H200)
        least = ceiling.decode_bytes(model, "mxfp4", 8192, batch)
        moved = sum(each.bytes for each in decode.values())
        assert least < moved < 1.02 * least  # the activations
    dense = all_dense(decode)
    assert dense.bytes < sum(each.bytes for each in decode.values())
    assert dense.flop == sum(decode[op].flop for op in ("qkv", "out", "router", "head"))


def test_sliding_layers_see_the_window_alone():
    model = gpt_oss()
    window = decode_window(model, contexts=[100, 1000], steps=40)
    assert window.full_keys == sum(range(100, 140)) + sum(range(1000, 1040))
    assert window.sliding_keys == sum(min(n, 128) for n in range(100, 140)) + 40 * 128
    short = prefill_window(model, prompts=1, tokens=50, steps=1)
    assert short.sliding_pairs == short.full_pairs == 50 * 51 / 2

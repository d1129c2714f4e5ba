"""`rose bench` from the command line: the whole chain on rose-nano."""

import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest
from click.testing import CliRunner

from rose.bench import roofline
from rose.bench.results import load, save
from rose.cli import main

NANO = ["nano", "--device", "cpu", "--max-num-seqs", "4", "--max-batched-tokens", "64"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(roofline.COPY_BYTES, "cpu", 2**20)


def rose(*words):
    return CliRunner().invoke(main, ["bench", *map(str, words)])


def test_the_chain(tmp_path):
    rates, prefill, decode = (tmp_path / f"{name}.json" for name in ("rates", "prefill", "decode"))
    made = rose("roofline", "--device", "cpu", "--repeat", 2, "--out", rates)
    assert made.exit_code == 0, made.output
    assert "GB/s" in made.stdout
    made = rose(
        "prefill", *NANO, "--input", "32,9999", "--batch", "1,2", "--runs", 2, "--out", prefill
    )
    assert made.exit_code == 0, made.output
    assert made.stdout.count("\n") == 2 + 4
    assert made.stdout.count("does not fit: 9999 tokens and one more exceed") == 2
    assert "ceiling: from the model's shape and this machine" in made.stderr
    made = rose(
        "decode", *NANO, "--context", 40, "--batch", "1,2,8", "--steps", 4, "--warmup", 1,
        "--roofline", rates, "--usd-per-gpu-hour", 6, "--out", decode,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    assert "does not fit: 8 sequences, but a step holds 4" in made.stdout
    assert f"the model's shape and {rates} (" in made.stderr

    found = load(prefill)
    assert [(c.phase, c.model, c.batch, c.tokens, len(c.samples)) for c in found.cells] == [
        ("prefill", "rose-nano", 1, 32, 2),
        ("prefill", "rose-nano", 2, 32, 2),
    ]
    assert [(c.batch, c.tokens) for c in found.skipped] == [(1, 9999), (2, 9999)]
    assert not found.partial
    assert found.flags["max_num_seqs"] == "4"
    assert found.flags["kernels"] == "auto"
    assert found.flags["runs"] == "2"
    found = load(decode)
    assert [(c.batch, len(c.samples)) for c in found.cells] == [(2, 4), (1, 4)]
    assert found.usd_per_gpu_hour == 6

    made = rose("compare", prefill, prefill)
    assert made.exit_code == 0
    assert made.stdout.count(" equal |") == 2
    assert "WARNING" not in made.stderr


def test_another_machine_is_a_loud_warning_and_no_error(tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert rose("roofline", "--device", "cpu", "--repeat", 1, "--out", first).exit_code == 0
    result = load(first)
    elsewhere = msgspec.structs.replace(result.machine, gpu="NVIDIA H200", gpus=1)
    save(msgspec.structs.replace(result, machine=elsewhere), second)
    made = rose("compare", first, second)
    assert made.exit_code == 0
    assert "WARNING: DIFFERENT MACHINES" in made.stderr
    assert "machine gpu: None / NVIDIA H200" in made.stderr
    assert "ON ANOTHER MACHINE" in made.stdout


@pytest.mark.parametrize(
    "words", [("prefill", "--input", 10000000), ("decode", "--context", "10000000", "--batch", 1)]
)
def test_where_nothing_fits_it_fails(words, tmp_path):
    out = tmp_path / "r.json"
    made = rose(words[0], *NANO, *words[1:], "--out", out)
    assert made.exit_code == 1
    assert "does not fit: 10000000 tokens" in made.stdout
    assert "0 cells measured, 1 did not fit" in made.stderr
    assert "nothing was measured" in made.stderr
    found = load(out)
    assert (found.cells, len(found.skipped), found.partial) == ([], 1, False)


def test_dummy_weights_are_told(tmp_path):
    out = tmp_path / "r.json"
    words = ["--load-format", "dummy", "--input", 20, "--runs", 1, "--warmup", 0, "--out", out]
    assert rose("prefill", *NANO, *words).exit_code == 0
    assert load(out).notes == ["dummy weights"]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--sharding", "tp1,tp2,ep2tp2"], 1, "tp2: this Rose runs a model on one GPU; ep2tp2:"),
        (["--sharding", "pp2"], 1, "sharding 'pp2': write it like tp1"),
        (["--input", "8k"], 2, "'8k': write positive integers like 8192,32768"),
        (["--input", "0"], 2, "write positive integers"),
        (["--input", "8,8"], 2, "a number stands there twice"),
        (["--out", "no/such/folder/r.json"], 1, "no/such/folder is no folder"),
        (["--roofline", "missing.json"], 1, "missing.json: No such file"),
        (["--usd-per-gpu-hour", "0"], 2, "0"),
        (["--batch", "65537"], 2, "a batch is up to 65536"),
        (["--served-name", "a\nb"], 1, "give another by --served-name"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words, status, text, monkeypatch):
    monkeypatch.setattr("rose.bench.session.start_subject", lambda *a: pytest.fail("it started"))
    made = rose("prefill", *NANO, *words)
    assert made.exit_code == status
    assert text in made.stderr
    assert "Traceback" not in made.output


def test_a_peers_own_quantization(monkeypatch):
    monkeypatch.setattr("rose.bench.session.start_subject", lambda *a: pytest.fail("it started"))
    made = rose("prefill", *NANO, "--engine", "vllm", "--quantization", "fp8")
    assert made.exit_code == 1
    assert "a peer runs what the checkpoint holds" in made.stderr


def test_the_large_models_need_dummy_weights():
    made = rose("prefill", "gpt-oss-120b", "--device", "cpu")
    assert made.exit_code == 1
    assert "name openai/gpt-oss-120b to download it" in made.stderr


def test_an_interrupt_keeps_what_was_measured(tmp_path):
    out = tmp_path / "r.json"
    words = ["bench", "prefill", *NANO, "--input", "16,1000", "--runs", "2", "--out", str(out)]
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rose.cli import main; sys.argv[0] = 'rose'; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--batch", "1,4,16,64"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        deadline = time.monotonic() + 100
        while not (out.exists() and load(out).cells):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGINT
    found = load(out)
    assert found.partial
    assert 1 <= len(found.cells) < 8
    assert all(len(cell.samples) == 2 for cell in found.cells)
    assert f"{len(found.cells)} cells are kept in {out}, marked partial" in errors
    assert "Traceback" not in errors


def test_the_group_lists_its_commands():
    made = CliRunner().invoke(main, ["bench", "--help"])
    for name in ("prefill", "decode", "roofline", "compare", "profile", "serve", "report"):
        assert f"  {name} " in made.output
    assert CliRunner().invoke(main, ["bench", "nothing"]).exit_code == 2

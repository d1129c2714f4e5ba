"""From measurements of the built-in model to a price and a report, as a user runs it."""

import json

from click.testing import CliRunner

from rose.cli import main


def run(*words):
    ran = CliRunner().invoke(main, [str(word) for word in words])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_prefill_and_decode_become_a_price_and_a_page(tmp_path):
    prefill, decode = tmp_path / "prefill.json", tmp_path / "decode.json"
    quick = ("--device", "cpu", "--max-num-seqs", 4, "--max-batched-tokens", 64)
    run("bench", "prefill", "nano", "--input", "16,64", "--runs", 2, *quick, "--out", prefill)
    steps = ("--batch", "1,2", "--steps", 3, "--warmup", 1)
    run("bench", "decode", "nano", "--context", "16,64", *steps, *quick, "--out", decode)

    shape = ("--input-tokens", 32, "--output-tokens", 16, "--rate", 0.01)
    plan = json.loads(run("cost", prefill, decode, *shape, "--usd-per-gpu-hour", 3.6, "--json"))
    assert plan["model"] == "rose-nano"
    best = plan["deployments"][0]
    assert (best["kind"], best["gpus"]) == ("colocated", 1)  # so little load fits one machine
    assert abs(best["usd_per_request"] - 3.6 / 36) < 1e-9

    run("bench", "report", prefill, decode, "--out", tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert "Prefill of rose-nano, batch 1: seconds to the first token" in page
    assert "Decode of rose-nano, context 64: tokens/s/user, by batch" in page
    assert "H200" not in page  # nothing published is of this model

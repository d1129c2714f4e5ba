"""The command: a load from end to end, ^C, and nano behind a real server."""

import os
import signal
import subprocess
import sys

import pytest

from rose.bench.results import Result, ServeCell, load
from rose.bench.serving.stats import summarize
from rose.bench.serving.table import render
from tests.engine_processes import PATIENCE_S, environment, eventually

COMMAND = [sys.executable, "-m", "rose", "bench", "serve"]


def bench(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_two_rates_make_two_cells(scripted, tmp_path):
    out = tmp_path / "out.json"
    words = ["--rate", "30,60", "--requests", "12", "--input", "20", "--output", "4"]
    done = bench(
        scripted.url, *words, "--warmup", "2", "--gpus", "2", "--workers", "2", "--out", str(out),
        ROSE_API_KEY="sesame",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = load(out)
    assert not result.partial
    assert result.software.engine == "scripted 1.2"
    cells = [cell for cell in result.cells if isinstance(cell, ServeCell)]
    assert [cell.load for cell in cells] == ["poisson 30/s", "poisson 60/s"]
    for cell in cells:
        assert (cell.model, cell.gpus, len(cell.requests)) == ("plain", 2, 14)
        assert [sample.warmup for sample in cell.requests] == [True] * 2 + [False] * 12
        assert cell.generator is not None
        assert cell.generator.processes == 2
        # What is printed can be made again from the file.
        assert render(cell, summarize(cell), None) in done.stdout
    log = scripted.take_log()
    assert {entry["authorization"] for entry in log} == {"Bearer sesame"}
    prompts = {tuple(entry["prompt"]) for entry in log}
    assert len(prompts) == len(log) == 1 + 2 * 14


def test_a_chat_with_a_key_on_the_command_line(scripted, tmp_path):
    out = tmp_path / "out.json"
    words = ["--api", "chat", "--concurrency", "2", "--requests", "4", "--output", "3"]
    done = bench(scripted.url, *words, "--api-key", "sesame", "--out", str(out))
    assert done.returncode == 0, done.stderr
    [cell] = load(out).cells
    assert isinstance(cell, ServeCell)
    assert [sample.output_tokens for sample in cell.requests] == [3] * 8
    assert "sesame" not in out.read_text()
    assert "--api-key" in load(out).command


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ((), "(--token-ids tells which chunk has how many)"),
        (("--token-ids",), None),
        (("--api", "chat"), "if the server's chats know it; Rose's do not)"),
        (("--api", "chat", "--token-ids"), None),
    ],
)
def test_bunched_tokens_have_advice_that_was_not_followed_yet(scripted, tmp_path, words, advice):
    load_words = ["--model", "bunches", "--concurrency", "1", "--requests", "2", "--output", "6"]
    done = bench(scripted.url, *load_words, *words, "--out", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    [note] = [line for line in done.stdout.splitlines() if "came in a chunk with others" in line]
    assert note.endswith(advice or "TPOT a token")


def interrupted(url: str, out, *words: str, after, **kinds) -> tuple[int, Result, str]:
    """Exit status, result and standard error of a load that gets ^C once `after` says so."""
    process = subprocess.Popen(
        [*COMMAND, url, *words, "--out", str(out)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run with SIGINT ignored, the command would ignore it, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        start_new_session=True,
    )
    try:
        eventually(after)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: its workers get it, too
        _, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return process.returncode, load(out), errors


@pytest.mark.parametrize("load_words", [("--rate", "40"), ("--concurrency", "30")])
def test_interrupting_keeps_what_was_measured(scripted, tmp_path, load_words):
    seen = []

    def under_way() -> bool:
        seen.extend(scripted.take_log())
        return len(seen) > 25 and scripted.num_streaming() > 10

    # Each would take 10 s: so many are under way whenever the interrupt comes.
    words = [*load_words, "--requests", "9999", "--output", "1000", "--workers", "2"]
    status, result, errors = interrupted(
        scripted.url, tmp_path / "out.json", *words, after=under_way
    )
    assert status == 130
    assert "Traceback" not in errors
    assert result.partial
    [cell] = result.cells
    assert isinstance(cell, ServeCell)
    assert cell.interrupted
    summary = summarize(cell)
    assert summary.errors == {}
    assert summary.interrupted >= 1
    assert len(cell.requests) >= 20
    given_up = [sample for sample in cell.requests if sample.error is not None]
    assert any(sample.token_times for sample in given_up)  # what had come of them is kept


def test_interrupting_while_the_second_load_runs_keeps_the_first(scripted, tmp_path):
    out = tmp_path / "out.json"
    # The second takes 20 s, so that the interrupt comes in time.
    words = ["--rate", "50,1", "--requests", "20", "--warmup", "0"]

    def first_is_kept() -> bool:
        if not out.exists() or not load(out).cells:
            scripted.take_log()
            return False
        return len(scripted.take_log()) > 0

    status, result, _ = interrupted(scripted.url, out, *words, after=first_is_kept)
    assert (status, result.partial) == (130, True)
    assert [(cell.load, cell.interrupted) for cell in result.cells] == [
        ("poisson 50/s", False),
        ("poisson 1/s", True),
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["http://127.0.0.1:9", "--rate", "1"], "Error: cannot reach http://127.0.0.1:9"),
        (["http://127.0.0.1:9"], "Error: give either --rate"),
        (["http://127.0.0.1:9", "--rate", "1", "--input", "no"], "Error: lengths must be"),
        (["http://127.0.0.1:9", "--rate", "1", "--out", "/"], "Error: '/' names no file"),
        (["http://127.0.0.1:9", "--rate", "1", "--out", "/no/x.json"], "Error: /no is no folder"),
    ],
)
def test_mistakes_are_one_line(words, told):
    done = bench(*words)
    assert done.returncode == 1
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "option", ["--duration", "--timeout", "--slo-ttft-ms", "--usd-per-gpu-hour"]
)
def test_what_is_no_number_is_refused(option):
    done = bench("http://127.0.0.1:9", "--rate", "1", option, "nan")
    assert done.returncode == 2
    assert "nan is no number to count with" in done.stderr


def test_where_nothing_is_served_it_fails_and_says_why(scripted, tmp_path):
    out = tmp_path / "out.json"
    words = ["--model", "fails", "--rate", "50", "--requests", "3", "--warmup", "0"]
    done = bench(scripted.url, *words, "--output", "8", "--out", str(out))
    assert done.returncode == 1
    assert "3 failed (server error)" in done.stdout
    assert 'NOTE: server error: {"message": "out of luck"}' in done.stdout
    assert done.stderr.endswith(f"Error: no request was served; {out} has the error of each\n")
    [cell] = load(out).cells
    assert isinstance(cell, ServeCell)
    assert len(cell.requests) == 3


def test_it_runs_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import rose.bench.serving.run, "
        "rose.cli_bench_serve; print([m for m in sys.modules if m.startswith('rose.engine')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_without_its_packages_it_says_what_to_install():
    code = (
        "import sys; sys.modules['aiohttp'] = None; sys.argv[1:] = ['bench', 'serve', 'http://a', "
        "'--rate', '1']; from rose.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == (
        "Error: aiohttp not installed, which rose bench serve needs: pip install 'rose[bench]'\n"
    )


def test_nano_behind_rose_serve(nano_url, tmp_path):
    out = tmp_path / "out.json"
    words = ["--rate", "8", "--requests", "8", "--warmup", "1", "--input", "uniform:5:60"]
    done = bench(nano_url, *words, "--output", "6", "--prefix-tokens", "16", "--out", str(out))
    assert done.returncode == 0, done.stderr
    result = load(out)
    [cell] = result.cells
    assert isinstance(cell, ServeCell)
    assert result.software.engine.startswith("rose ")
    assert cell.model == "rose-nano"
    assert [sample.error for sample in cell.requests] == [None] * 9
    for sample in cell.requests:
        assert 16 + 5 <= sample.prompt_tokens <= 16 + 60
        assert sample.output_tokens == 6  # eos is ignored, as asked
    assert "requests/s" in done.stdout

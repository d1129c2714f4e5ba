"""The commands as clumsy users run them: one line and a status, and nothing half-written."""

import json
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from rose.cli import main
from tests.engine_processes import PATIENCE_S, environment
from tests.models.checkpoint_layouts import SMALL, write_published


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_published(tmp_path_factory.mktemp("cli") / "model", SMALL, shards=2))


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def refusal(*words):
    """The one line with which a command refuses."""
    result = run(*words)
    assert result.exit_code in (1, 2), result.output
    assert isinstance(result.exception, SystemExit)
    *before, line = result.stderr.splitlines()
    assert line.startswith("Error: ")
    progress = ("Loading weights", "Usage: ", "Try ", "scoring: ")
    assert all(not other or other.startswith(progress) for other in before)
    return line


def generate(model, *words):
    return ("generate", model, "--device", "cpu", "--max-tokens", 2, *words)


def start(*words, **streams):
    command = [sys.executable, "-m", "rose", *map(str, words)]
    return subprocess.Popen(
        command,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal, even if these tests run where SIGINT is ignored (in the background).
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **streams,
    )


def test_generate_prints_json_lines(model):
    result = run(*generate(model, "--tokens", "1, 2,3", "--json"))
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert len(answer["token_ids"]) == 2
    assert answer["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[" + "9" * 5000 + "]", "not valid JSON"),
        ("{}", "must hold a JSON array"),
        ("[1.0]", "must hold a JSON array"),
        ("[true]", "must hold a JSON array"),
        ('["1"]', "must hold a JSON array"),
        ("[[1], 2]", "must hold a JSON array"),
        ("[NaN]", "must hold a JSON array"),
        ("[]", "is empty; it needs at least one token id"),
        ("[[1], []]", "prompt 1 of "),
        ("[100000]", "holds id 100000; this model's ids are 0 to "),
        ("[-1]", "holds id -1"),
        ("[123456789012345678901234567890]", "holds id 1234"),
    ],
)
def test_a_bad_tokens_file(model, tmp_path, text, says):
    path = tmp_path / "tokens.json"
    path.write_text(text)
    assert says in refusal(*generate(model, "--tokens-file", path))


def test_tokens_files_that_cannot_be_read(model, tmp_path):
    assert "Is a directory" in refusal(*generate(model, "--tokens-file", tmp_path))
    assert "No such file" in refusal(*generate(model, "--tokens-file", tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\x00\xff\xfe")
    assert "not valid JSON" in refusal(*generate(model, "--tokens-file", tmp_path / "binary"))


def test_a_byte_order_mark_does_no_harm(model, tmp_path):
    path = tmp_path / "tokens.json"
    path.write_text("\ufeff[1, 2, 3]")
    assert run(*generate(model, "--tokens-file", path)).exit_code == 0


@pytest.mark.parametrize(
    "ids", ["", ",", "1,,2", "1,2,", "1.0", "1_0", "0x10", "\u0661", "9" * 5000]
)
def test_bad_ids(model, ids):
    assert "--tokens must be ids separated by commas" in refusal(*generate(model, "--tokens", ids))


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--max-tokens", -1, "max_tokens must be"),
        ("--max-tokens", 10**30, "ask for max_tokens of at most"),
        ("--temperature", "nan", "temperature must be a finite number"),
        ("--temperature", "inf", "temperature must be a finite number"),
        ("--n", 10**9, "n must be at most"),
        ("--sampling-seed", 2**63, "seed must be an integer"),
        ("--block-size", 0, "block_size must be an integer from 1"),
        ("--max-num-seqs", 10**12, "max_num_seqs must be an integer from 1"),
        ("--kv-cache-bytes", 2**47, "no memory for the KV cache"),
    ],
)
def test_numbers_that_cannot_work(model, option, value, says):
    assert says in refusal(*generate(model, "--tokens", "1", option, value))


@pytest.mark.parametrize(
    "command", ["serve", "generate", "score", "engine", "bench prefill", "bench profile"]
)
def test_no_model_named(command):
    assert refusal(*command.split()) == "Error: Missing argument 'MODEL'."


def test_models_that_are_none(tmp_path):
    assert "name is empty" in refusal(*generate("", "--tokens", "1"))
    assert "no such folder" in refusal(*generate(tmp_path / "none", "--tokens", "1"))
    assert "config.json not found" in refusal(*generate(tmp_path, "--tokens", "1"))


def test_a_checkpoint_unlike_its_config_is_refused_before_memory_is_taken(tmp_path):
    folder = write_published(tmp_path / "model", SMALL)
    config = json.loads((folder / "config.json").read_text())
    # As many weights as no machine holds.
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 2**30}))
    assert "are not those that config.json describes" in refusal(*generate(folder, "--tokens", "1"))


class TestScoreOutput:
    def test_the_file_and_nothing_else_is_written(self, model, tmp_path):
        assert run("score", model, "--tokens", "1,2", "--out", tmp_path / "x").exit_code == 0
        assert [path.name for path in tmp_path.iterdir()] == ["x"]

    def test_paths_that_cannot_be_written_are_refused_before_the_work(self, model, tmp_path):
        def refused(out):
            line = refusal("score", model, "--tokens", "1", "--out", out)
            assert not list(tmp_path.glob("*.tmp"))
            return line

        (tmp_path / "file").touch()
        os.mkfifo(tmp_path / "pipe")
        assert "is no folder" in refused(tmp_path / "missing" / "x")
        assert "is no folder" in refused(tmp_path / "file" / "x")
        assert "no regular file" in refused(tmp_path)
        assert "names no file" in refused("")

    def test_a_device_is_not_replaced(self, model, tmp_path):
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        assert "no regular file" in refusal("score", model, "--tokens", "1", "--out", pipe)
        assert pipe.is_fifo()

    def test_a_full_disk(self, model, tmp_path):
        limited = (
            "import resource, sys; from rose.cli import main; "
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); main(sys.argv[1:])"
        )
        words = ["score", model, "--tokens", "1,2", "--out", str(tmp_path / "x")]
        result = subprocess.run(
            [sys.executable, "-c", limited, *words], env=environment(), capture_output=True
        )
        assert result.returncode == 1
        assert result.stderr.splitlines()[-1].startswith(b"Error: cannot write ")
        assert list(tmp_path.iterdir()) == []


def test_interrupted_while_it_generates(model):
    program = (
        "import os, signal, sys\n"
        # As in a terminal, even if these tests run where SIGINT is ignored (in the background).
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rose.engine.engine import Engine\n"
        "step, steps = Engine.step, []\n"
        "def step_or_interrupt(engine):\n"
        "    steps.append(None)\n"
        "    if len(steps) == 5:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return step(engine)\n"
        "Engine.step = step_or_interrupt\n"
        "from rose.__main__ import main; main()"
    )
    words = generate(model, "--tokens", "1", "--max-tokens", 400, "--ignore-eos")
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        env=environment(),
        capture_output=True,
        text=True,
    )
    [line] = done.stderr.splitlines()
    assert line.startswith("Loading weights")
    assert (done.returncode, done.stdout) == (130, "")


def test_a_reader_that_leaves_early_is_no_error(model):
    process = start(*generate(model, "--tokens", "1"), stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert [line.split(":")[0] for line in process.stderr] == ["Loading weights"]
    process.wait(PATIENCE_S)
    process.stderr.close()


def test_stdin_as_the_tokens_file(model):
    command = [sys.executable, "-m", "rose", *map(str, generate(model))]
    command += ["--tokens-file", "/dev/stdin"]
    result = subprocess.run(command, env=environment(), capture_output=True, input=b"[1, 2]")
    assert result.returncode == 0
    assert len(result.stdout.split(b",")) == 2


@pytest.mark.parametrize("endpoint", ["", "foo", "inproc://x", "ipc:///no/such/folder/x"])
def test_endpoints_that_no_front_end_could_reach(model, endpoint):
    assert "cannot listen on" in refusal("engine", model, "--endpoint", endpoint)

"""How the command starts: without torch, with closed streams, and interrupted at once."""

import subprocess
import sys

import pytest

from tests.engine_processes import PATIENCE_S, environment
from tests.models.checkpoint_layouts import SMALL, write_published

WITHOUT_TORCH = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""
MISSING = "torch and numpy not installed, which running a model needs: pip install torch"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_published(tmp_path_factory.mktemp("startup") / "model", SMALL))


def run_without_torch(program, *words):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + program, *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["generate", "--tokens", "1"],
        ["score", "--tokens", "1", "--out", "x"],
        ["convert", "out", "--format", "fp8"],
        ["chat"],
        ["engine", "--endpoint", "ipc:///tmp/never-bound"],
        ["serve", "--port", "0"],
    ],
    ids=lambda words: words[0],
)
def test_commands_that_need_torch_say_so_in_one_line(model, words):
    command, *options = words
    done = run_without_torch("from rose.__main__ import main; main()", command, model, *options)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"Error: {MISSING}")
    assert "'rose[engine]'" in line


def test_help_needs_no_torch():
    done = run_without_torch("from rose.__main__ import main; main()", "serve", "--help")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["LLM", "AsyncLLM"])
def test_the_python_api_needs_torch_and_says_so(name):
    done = run_without_torch(f"from rose import {name}")
    assert done.returncode == 1
    assert f"MissingPackageError: {MISSING}" in done.stderr.splitlines()[-1]
    done = run_without_torch(
        f"try:\n    from rose import SamplingParams, {name}\nexcept ImportError as error:\n"
        "    print(error)"
    )
    assert done.stdout.startswith(MISSING)


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_generate_with_closed_streams(model, closed):
    words = f"-m rose generate {model} --device cpu --tokens 1,2,3 --max-tokens 2 {closed}"
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} {words}"], env=environment(), capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.split(b",")) == 2


def test_progress_without_a_standard_error():
    program = (
        "import sys; sys.stderr = None\n"
        "from rose.progress import Progress\n"
        "with Progress('work', total=1) as progress: progress.advance()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment())
    assert done.returncode == 0


def test_interrupted_while_the_commands_are_imported():
    program = (
        "import os, signal, sys\n"
        # As in a terminal, even if these tests run where SIGINT is ignored (in the background).
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from rose.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], env=environment(), capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_ids_outside_the_vocabulary_are_refused_before_the_model_loads(model, tmp_path):
    for words in (["generate"], ["score", "--out", str(tmp_path / "x")]):
        command, *options = words
        tokens = ["--device", "cpu", "--tokens", "1,100000"]
        done = subprocess.run(
            [sys.executable, "-m", "rose", command, model, *tokens, *options],
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        [line] = done.stderr.splitlines()  # no progress of a load before it
        assert "holds id 100000; this model's ids are 0 to" in line

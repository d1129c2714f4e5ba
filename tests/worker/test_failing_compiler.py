"""NVRTC is there but does not compile: the start ends with what failed and what would do."""

import json

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from rose.config import ConfigError
from rose.core.mapping import ParallelMapping
from rose.kernels.cuda import nvrtc
from rose.kernels.cuda.kernel import Kernel
from rose.options import EngineOptions
from rose.worker.worker import LOG_LINES, Worker
from tests.kernels.cuda.sources import ADD
from tests.worker.test_memory import FakeMemory
from tools.make_tiny_checkpoint import Sizes, make_config

LOST = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0."
CONSEQUENCES = [f"add.cu({n}): error: number {n}" for n in range(100)]


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """One whose steps launch a kernel that NVRTC does not compile."""

    def fails(texts, options):
        log = "\n".join(["", LOST, "  Make sure that it is installed.", "", *CONSEQUENCES])
        raise nvrtc.CompileError(f"add.cu does not compile with {' '.join(options)}:\n{log}")

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "_version", lambda: (13, 0))
    monkeypatch.setattr(nvrtc, "_compile", fails)
    (tmp_path / "config.json").write_text(json.dumps(make_config(Sizes(layers=1))))
    options = EngineOptions(
        model=str(tmp_path), device="cpu", load_format="dummy", max_num_seqs=2, max_model_len=64
    )
    worker = Worker(options.resolve(), ParallelMapping(), None, FakeMemory(free=10**12))
    worker._fused = True  # as on a GPU
    kernel, x = Kernel(ADD, "add", "PPfi", threads=128), torch.zeros(8)
    monkeypatch.setattr(
        worker, "_run_rehearsal", lambda what: kernel.launch((1, 1, 1), x, x, 1.0, 8)
    )
    return worker


def test_the_start_says_what_would_do(worker):
    with pytest.raises(ConfigError, match=r"NVRTC .* cannot compile") as caught:
        worker.kv_bytes()
    message = str(caught.value)
    assert "\n" not in message
    shown = [LOST, "Make sure that it is installed.", *CONSEQUENCES[: LOG_LINES - 2]]
    assert f"sm_90a --std=c++17: | {' | '.join(shown)};" in message
    assert message.endswith("--kernels triton")
    # All of the log is there for who calls from Python.
    assert CONSEQUENCES[-1] in str(caught.value.__cause__)


@pytest.mark.parametrize("method", ["_compile", "_rehearse"])
def test_wherever_it_is_compiled(worker, method):
    with pytest.raises(ConfigError, match="--kernels triton"):
        getattr(worker, method)()


def test_other_errors_stay_what_they_are(worker, monkeypatch):
    def broken(what):
        raise RuntimeError("a defect")

    monkeypatch.setattr(worker, "_run_rehearsal", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        worker.kv_bytes()

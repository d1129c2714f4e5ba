"""The adapter of vLLM, against a stand-in with the package's own names."""

import gc

import pytest

from rose.bench.peer_vllm import Vllm
from rose.bench.results import BenchError
from tests.bench import peer_stand_ins
from tests.bench.peer_stand_ins import VllmEngine, VllmLLM, install_vllm, options


@pytest.fixture
def make(monkeypatch, tmp_path):
    install_vllm(monkeypatch)
    yield lambda **changes: Vllm(options(tmp_path, **changes))
    gc.unfreeze()


def test_what_it_is_started_with(make, tmp_path):
    make(max_num_seqs=7, max_batched_tokens=512)
    assert VllmLLM.last.started == {
        "model": str(tmp_path),
        "tensor_parallel_size": 2,
        "seed": 3,
        "load_format": "dummy",
        "enable_expert_parallel": True,
        "max_model_len": 1000,
        "max_num_seqs": 7,
        "max_num_batched_tokens": 512,
    }


def test_it_is_stepped_as_we_are(make):
    subject = make()
    assert subject.prefill([[1, 2], [3, 4]]) > 0
    run = subject.decode([[1, 2], [3, 4]], warmup=2, steps=5)
    assert len(run.samples) == 5
    assert run.contexts == (2 + 1 + 2, 2 + 1 + 2)
    engine = VllmLLM.last.llm_engine
    assert not engine.requests
    params = engine.asked[-1]
    assert params.ignore_eos
    assert not params.detokenize
    assert (params.temperature, params.output_kind) == (1.0, "delta")


def test_a_prefill_out_of_the_cache_is_refused(make):
    subject = make()
    prompt = list(range(40))
    subject.prefill([prompt])
    with pytest.raises(BenchError, match="32 prompt tokens came from the prefix cache"):
        subject.prefill([prompt])
    subject.prefill([prompt[::-1]])


def test_its_processes_are_ended(make):
    subject = make()
    core = VllmLLM.last.llm_engine.engine_core
    assert core.running
    subject.close()
    assert not core.running


def test_what_it_refuses(make):
    subject = make()
    assert subject.refuse_prefill(999) is None
    assert "exceed the longest sequence, 1000" in subject.refuse_prefill(1000)
    # 100 steps follow the first token.
    assert subject.refuse_decode(1, 899, 100) is None
    assert "exceed the longest sequence, 1000" in subject.refuse_decode(1, 900, 100)
    assert subject.refuse_decode(1024, 10, 10) is None
    told = "1025 sequences, but a step holds 1024: raise --max-num-seqs"
    assert subject.refuse_decode(1025, 10, 10) == told


def test_small_chunks_let_the_first_run_further_ahead(make):
    assert make(max_batched_tokens=64).ramp([[0] * 640]) == 10 + 2 + 16
    assert make().ramp([[0] * 640]) == 2 + 16


def test_what_it_ran_with_is_noted(make):
    (note,) = make().notes
    assert "(ep2tp2) ran with max_num_batched_tokens 16384, max_num_seqs 1024" in note
    assert "enable_prefix_caching True, cudagraph_mode FULL" in note


def test_a_setting_that_another_release_lacks_is_left_out(make, monkeypatch):
    class Older(VllmEngine):
        def __init__(self, options):
            super().__init__(options)
            del self.vllm_config.compilation_config.max_cudagraph_capture_size

    monkeypatch.setattr(peer_stand_ins, "VllmEngine", Older)
    (note,) = make().notes
    assert note.endswith("enable_prefix_caching True, cudagraph_mode FULL")

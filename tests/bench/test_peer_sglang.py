"""The adapter of SGLang, against a stand-in with the package's own names."""

import gc

import pytest

from rose.bench.peer_sglang import Sglang
from rose.bench.results import BenchError
from rose.bench.subject import DoesNotFitError
from tests.bench.peer_stand_ins import SglangEngine, install_sglang, options


@pytest.fixture
def make(monkeypatch, tmp_path):
    install_sglang(monkeypatch)
    yield lambda **changes: Sglang(options(tmp_path, **changes))
    gc.unfreeze()


def prompts(batch, tokens):
    return [[index] * tokens for index in range(batch)]


def test_what_it_is_started_with(make, tmp_path):
    # Of its limit of sequences it keeps one back where prompts are computed in chunks.
    make(max_num_seqs=7, max_batched_tokens=512)
    assert SglangEngine.last.started == {
        "model_path": str(tmp_path),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "tp_size": 2,
        "ep_size": 2,
        "context_length": 1000,
        "max_running_requests": 8,
        "chunked_prefill_size": 512,
        "stream_interval": 1,
        "random_seed": 3,
    }
    make()
    assert SglangEngine.last.started["max_running_requests"] is None


def test_only_one_sequence_streams_every_token(make):
    subject = make()
    run = subject.decode(prompts(8, 4), warmup=3, steps=30)
    assert len(run.samples) == 30
    assert all(sample > 0 for sample in run.samples)
    # The last begins seven steps after the first, which is told to a step.
    assert run.contexts[0] == 4 + 1 + 3
    assert run.contexts[1] - run.contexts[0] in (7, 8)
    engine = SglangEngine.last
    most = engine.asked[0]["max_new_tokens"]
    assert engine.events <= most + 7 * 2
    assert [one["stream_interval"] for one in engine.asked] == [2**30] * 7 + [1]
    assert all(one["ignore_eos"] and one["temperature"] == 1.0 for one in engine.asked)


def test_a_prefill_out_of_the_cache_is_refused(make):
    subject = make()
    assert subject.prefill(prompts(2, 40)) > 0  # a token of each was known by chance
    with pytest.raises(BenchError, match="78 prompt tokens came from the prefix cache"):
        subject.prefill(prompts(2, 40))


def test_the_longest_that_it_takes(make):
    subject = make()
    assert subject.refuse_prefill(993) is None
    assert subject.prefill([[1] * 993]) > 0
    assert "exceed the longest sequence, 994" in subject.refuse_prefill(994)
    assert subject.refuse_decode(1, 893, 100) is None
    assert len(subject.decode([[1] * 893], warmup=10, steps=90).samples) == 90
    assert "exceed the longest sequence, 994" in subject.refuse_decode(1, 894, 100)


def test_a_batch_over_its_limit(make):
    told = "9 sequences, but a step holds 8: raise --max-num-seqs"
    assert make(max_num_seqs=8).refuse_decode(9, 10, 10) == told


def test_preempted_and_broken_sequences(make):
    subject = make()
    SglangEngine.last.retractions = 1
    with pytest.raises(DoesNotFitError, match="sequences among the 2 were preempted"):
        subject.decode(prompts(2, 4), warmup=1, steps=2)
    subject = make()
    SglangEngine.last.reason = {"type": "abort", "message": "out of memory"}
    with pytest.raises(BenchError, match="sglang ended a sequence: out of memory"):
        subject.decode(prompts(2, 4), warmup=1, steps=2)


def test_it_is_shut_down(make):
    make().close()
    assert SglangEngine.last.started is None


def test_what_it_ran_with_is_noted(make):
    (note,) = make().notes
    assert note.endswith("(ep2tp2) ran with chunked_prefill_size 8192, attention_backend fa3")

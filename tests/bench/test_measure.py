"""Prefill and decode of rose-nano through the engine, and what is asked of any engine."""

import pytest

from rose.bench.measure import Identity, measure_decode, measure_prefill
from rose.bench.own import OwnEngine
from rose.bench.results import BenchError, EngineCell, Sharding, SkippedCell
from rose.bench.subject import DecodeRun, DoesNotFitError
from rose.options import EngineOptions

WHO = Identity(model="rose-nano", quantization="mxfp4", sharding=Sharding(), vocab_size=2560)


def start(**options):
    defaults = {"device": "cpu", "max_num_seqs": 4, "max_batched_tokens": 64, "block_size": 16}
    return OwnEngine(EngineOptions(model="nano", **{**defaults, **options}).resolve())


@pytest.fixture(scope="module")
def nano():
    engine = start(num_blocks=(64, 64))
    yield engine
    engine.close()


class Recording:
    """A Subject that keeps what it is asked; it holds at most `fits` sequences."""

    name = "recording 1"

    def __init__(self, fits=100, breaks=()):
        self.fits, self.breaks = fits, breaks
        self.prefills, self.decodes = [], []

    def refuse_prefill(self, tokens):
        return "too long" if tokens > 100 else None

    def refuse_decode(self, batch, context, steps):
        return "too many" if batch > self.fits else None

    def prefill(self, prompts):
        self.prefills.append(prompts)
        return float(len(self.prefills))

    def decode(self, prompts, warmup, steps):
        self.decodes.append(prompts)
        if len(prompts) in self.breaks:
            raise DoesNotFitError("preempted")
        extra = 50 if len(prompts) == 4 else 0
        return DecodeRun([0.1] * steps, (10 + warmup, 10 + warmup + extra))

    def close(self):
        pass


def test_every_run_of_a_prefill_has_prompts_of_its_own():
    engine = Recording()
    cells = list(
        measure_prefill(engine, WHO, inputs=(20, 101), batches=(1, 2), runs=2, warmup=1, seed=3)
    )
    assert [(c.tokens, c.batch, type(c)) for c in cells] == [
        (20, 1, EngineCell),
        (20, 2, EngineCell),
        (101, 1, SkippedCell),
        (101, 2, SkippedCell),
    ]
    # The runs of warm-up are not among the samples.
    assert [c.samples for c in cells[:2]] == [[2.0, 3.0], [5.0, 6.0]]
    prompts = [tuple(prompt) for prompts in engine.prefills for prompt in prompts]
    assert len(prompts) == len(set(prompts)) == 9
    assert {len(prompt) for prompt in prompts} == {20}
    assert max(max(prompt) for prompt in prompts) < WHO.vocab_size


def test_smaller_batches_decode_prompts_of_the_largest():
    engine = Recording(fits=4)
    found = list(
        measure_decode(engine, WHO, contexts=(10, 30), batches=(1, 4, 8), steps=2, warmup=5, seed=3)
    )
    cells = [c for c in found if isinstance(c, EngineCell)]
    assert [(c.tokens, c.batch) for c in cells] == [(10, 4), (10, 1), (30, 4), (30, 1)]
    assert [c.reason for c in found if isinstance(c, SkippedCell)] == ["too many"] * 2
    four, one, other, _ = engine.decodes
    assert one == four[:1]
    assert len({tuple(prompt) for prompt in four + other}) == 8
    notes = [c for c in found if isinstance(c, str)]
    assert notes == [
        f"decode at batch 4, context {context}: at the first measured step the sequences held "
        "15 to 65 tokens"
        for context in (10, 30)
    ]


def test_prompts_that_memory_does_not_hold_are_told():
    cells = measure_prefill(
        Recording(), WHO, inputs=(100,), batches=(700_000,), runs=1, warmup=0, seed=0
    )
    assert [cell.reason for cell in cells] == [
        "700000 prompts of 100 tokens are over 67108864 tokens to hold at once"
    ]


def test_a_batch_that_turns_out_not_to_fit_is_told_and_the_rest_goes_on():
    engine = Recording(breaks=(2,))
    found = list(
        measure_decode(engine, WHO, contexts=(10,), batches=(1, 2), steps=1, warmup=0, seed=0)
    )
    assert [(type(c), c.batch) for c in found] == [(SkippedCell, 2), (EngineCell, 1)]
    assert found[0].reason == "preempted"


def test_prefill_of_nano_is_cold(nano):
    prompts = [[5] * 40, [6] * 40]
    assert nano.prefill(prompts) > 0
    with pytest.raises(BenchError, match="not a cold prefill"):
        nano.prefill(prompts)


def test_decode_of_nano(nano):
    prompts = [list(range(i, i + 60)) for i in range(3)]
    run = nano.decode(prompts, warmup=2, steps=5)
    assert len(run.samples) == 5
    assert min(run.samples) > 0
    shortest, longest = run.contexts
    assert 60 + 3 <= shortest <= longest
    nano._engine.check_integrity()
    assert nano._engine.stats().running == 0
    assert nano._engine.stats().preemptions == 0


@pytest.mark.parametrize(
    ("batch", "context", "reason"),
    [
        (5, 10, "a step holds 4: raise --max-num-seqs"),
        (1, 1020, "more exceed the longest sequence here, 1024"),
        (4, 300, "the KV cache has 64 blocks of 16 tokens, and 4 sequences of 300 tokens need 8"),
    ],
)
def test_batches_that_nano_refuses(nano, batch, context, reason):
    assert reason in nano.refuse_decode(batch, context, 8)


def test_what_is_not_refused_runs_without_preemption(nano):
    """The largest batches and contexts that pass, with the cache full to the brim."""
    for batch in (1, 2, 4):
        fitting = [c for c in range(16, 1024, 16) if nano.refuse_decode(batch, c, 4) is None]
        context = max(fitting)
        if batch > 1:
            # The cache and not the longest sequence is what bounds it: over 75% are in use.
            assert batch * context > 0.75 * 64 * 16
        prompts = [[batch * 10 + i] * context for i in range(batch)]
        assert len(nano.decode(prompts, warmup=1, steps=3).samples) == 3
    assert nano._engine.stats().preemptions == 0


def test_a_prompt_longer_than_the_cache(nano):
    assert nano.refuse_prefill(1023) is None
    assert "exceed the longest sequence here, 1024" in nano.refuse_prefill(1024)


def test_a_preempted_batch_is_no_measurement():
    engine = start(num_blocks=(10, 32))
    try:
        assert engine.refuse_decode(3, 40, 16) is not None
        with pytest.raises(DoesNotFitError):
            engine.decode([[i] * 40 for i in range(3)], warmup=0, steps=30)
    finally:
        engine.close()

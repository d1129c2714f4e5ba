"""The same tokens and logits whatever the schedule: chunks, blocks, company, cache, preemption.

A small random model in float32, with a window shorter than most prompts. Each prompt's truth is
what it gives alone, in one chunk; then random schedules must reproduce it.
"""

import json
import random
from dataclasses import dataclass, field

import pytest
import torch

from rose.config import FULL, SLIDING
from rose.engine.start import start_engine
from rose.options import EngineOptions
from rose.protocol import FinishReason, Request, SamplingParams

VOCAB, WINDOW, OUTPUT = 211, 20, 11
CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": WINDOW,
    "max_position_embeddings": 4096,
    "rope_theta": 150000,
    "eos_token_id": VOCAB - 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


@dataclass
class Job:
    """A prompt with its sampling, and its truth once known."""

    prompt: list[int]
    params: SamplingParams
    token_ids: list[int] = field(default_factory=list)
    logits: torch.Tensor | None = None


class Observer:
    """Keeps the logits of every position of every sequence, the latest if it was recomputed."""

    def __init__(self):
        self.rows = {}

    def wants(self, sequence_id):
        return True

    def observe(self, sequence_id, start, logits):
        positions = self.rows.setdefault(sequence_id, {})
        positions.update((start + i, row.clone()) for i, row in enumerate(logits))


def start(folder, observer=None, **options):
    defaults = {"dtype": "float32", "device": "cpu", "load_format": "dummy", "seed": 3}
    defaults["chunk_size"] = 128
    return start_engine(
        EngineOptions(model=str(folder), **{**defaults, **options}).resolve(), observer
    )


def run(engine, jobs, *, arrivals=None):
    """Run jobs to the end; job i arrives before step arrivals[i]. Output ids, in their order."""
    arrivals = arrivals or [0] * len(jobs)
    got, reasons, step, index = [[] for _ in jobs], {}, 0, 0
    while index < len(jobs) or engine.has_work():
        while index < len(jobs) and arrivals[index] <= step:
            engine.add_request(Request(request_id=str(index), prompt_token_ids=jobs[index].prompt,
                                       sampling=jobs[index].params))  # fmt: skip
            index += 1
        for output in engine.step():
            got[int(output.request_id)] += output.token_ids
            if output.finish_reason:
                reasons[output.request_id] = output.finish_reason
        engine.check_integrity()
        step += 1
        assert step < 5000, "the engine makes no progress"
    assert len(reasons) == len(jobs)
    assert engine.stats().kv_blocks_used == (0, 0)
    return got


def make_jobs():
    rng = random.Random(17)
    shared = [rng.randrange(VOCAB - 1) for _ in range(90)]
    greedy = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
    prompts = [[5], shared[:2], shared[:WINDOW], shared[: WINDOW + 1], shared, shared[:64]]
    prompts += [shared[:48] + [rng.randrange(VOCAB - 1) for _ in range(n)] for n in (1, 16, 30)]
    prompts += [[rng.randrange(VOCAB - 1) for _ in range(n)] for n in (33, 71)]
    jobs = [Job(prompt, greedy) for prompt in prompts]
    for i, prompt in enumerate(prompts[3:8]):
        params = SamplingParams(
            seed=i, max_tokens=OUTPUT, ignore_eos=True, top_p=0.9, frequency_penalty=0.4 * (i % 2)
        )
        jobs.append(Job(prompt, params))
    return jobs


@pytest.fixture(scope="module")
def jobs(folder):
    made = make_jobs()
    for job in made:
        observer = Observer()
        engine = start(
            folder, observer, one_ahead=False, chunk_size=128, block_size=128, num_blocks=(4, 4)
        )
        [job.token_ids] = run(engine, [job])
        engine.shutdown()
        [rows] = observer.rows.values()
        # Every position once, in the prompt's single chunk and then one by one.
        assert sorted(rows) == list(range(len(job.prompt) + OUTPUT - 1))
        job.logits = torch.stack([rows[p] for p in sorted(rows)])
    return made


def check(jobs, got, observer):
    for sequence_id, (job, token_ids) in enumerate(zip(jobs, got, strict=True)):
        assert token_ids == job.token_ids
        for position, row in observer.rows[sequence_id].items():
            # A step that was enqueued before a sequence ended computes a position too many.
            if position < job.logits.shape[0]:
                torch.testing.assert_close(row, job.logits[position], atol=1e-4, rtol=1e-4)


def tight_cache(rng, block_size, chunk_size):
    """Little more than the longest job needs alone."""
    full = -(-(90 + OUTPUT) // block_size) + rng.choice([0, 3])
    sliding = (chunk_size + WINDOW - 2) // block_size + 2 + rng.choice([0, 2, 9])
    return full, sliding


@pytest.mark.parametrize("seed", range(20))
def test_any_schedule_gives_the_same_tokens_and_logits(folder, jobs, seed):
    rng = random.Random(seed)
    block_size, chunk_size = rng.choice([1, 3, 8, 16, 32]), rng.choice([1, 4, 16, 23, 64])
    max_num_seqs = rng.choice([1, 2, 5, 16])
    tight = rng.random() < 0.6
    observer = Observer()
    engine = start(
        folder,
        observer,
        block_size=block_size,
        chunk_size=chunk_size,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max(max_num_seqs, rng.choice([16, 40, 200])),
        num_blocks=tight_cache(rng, block_size, chunk_size) if tight else (4000, 4000),
        prefix_cache=rng.random() < 0.7,
        one_ahead=rng.random() < 0.7,
    )
    order = rng.sample(jobs, len(jobs))
    arrivals = sorted(rng.randrange(rng.choice([1, 40])) for _ in order)
    check(order, run(engine, order, arrivals=arrivals), observer)


def test_preempted_sequences_go_on_as_if_nothing_had_happened(folder, jobs):
    observer = Observer()
    engine = start(
        folder, observer, block_size=8, chunk_size=16, max_num_seqs=16, num_blocks=(20, 24),
        prefix_cache=False, max_batched_tokens=64,
    )  # fmt: skip
    check(jobs, run(engine, jobs), observer)
    assert engine.stats().preemptions > 3


def test_a_prefix_cache_that_is_warm_changes_nothing(folder, jobs):
    observer = Observer()
    engine = start(folder, observer, block_size=4, num_blocks=(2000, 2000))
    run(engine, jobs)
    before = engine.stats()
    observer.rows.clear()
    got = run(engine, jobs)
    after = engine.stats()
    observer.rows = {i - len(jobs): rows for i, rows in observer.rows.items()}
    check(jobs, got, observer)
    asked = sum(len(job.prompt) for job in jobs)
    assert after.cached_prompt_tokens - before.cached_prompt_tokens > 0.8 * asked
    # The long shared prompt was not computed again: its early positions were never observed.
    assert 0 not in observer.rows[4]


def test_blocks_evicted_from_the_sliding_group_shorten_the_reused_prefix(folder, jobs):
    """A sliding group too small to remember: prefixes are cut, never read from lost blocks."""
    observer = Observer()
    engine = start(
        folder, observer, block_size=4, chunk_size=8, max_num_seqs=3, max_batched_tokens=24,
        num_blocks=(2000, 26),
    )  # fmt: skip
    again = jobs + jobs
    check(again, run(engine, again), observer)


def test_seeds_reproduce_alone_and_in_company(folder):
    params = SamplingParams(seed=99, max_tokens=20, ignore_eos=True, temperature=1.2)
    job = Job([3, 1, 4, 1, 5], params)
    other = [Job([i, i, 2], SamplingParams(max_tokens=15)) for i in range(1, 7)]
    alone = run(start(folder, num_blocks=(64, 64)), [job])[0]
    company = run(start(folder, num_blocks=(64, 64)), [*other[:3], job, *other[3:]])[3]
    assert alone == company
    reseeded = Job(job.prompt, SamplingParams(seed=98, max_tokens=20, ignore_eos=True))
    assert run(start(folder, num_blocks=(64, 64)), [reseeded])[0] != alone


def test_aborts_leave_others_as_they_are(folder, jobs):
    rng = random.Random(4)
    engine = start(
        folder, block_size=8, chunk_size=16, max_num_seqs=16, num_blocks=(40, 40),
        max_batched_tokens=64,
    )  # fmt: skip
    got, ended = [[] for _ in jobs], {}
    for i, job in enumerate(jobs):
        engine.add_request(
            Request(request_id=str(i), prompt_token_ids=job.prompt, sampling=job.params)
        )
    doomed = {str(i) for i in range(0, len(jobs), 3)}
    for step in range(5000):
        if not engine.has_work():
            break
        for request_id in sorted(doomed - ended.keys()):
            if rng.random() < 0.05 * step:
                engine.abort(request_id)
        for output in engine.step():
            got[int(output.request_id)] += output.token_ids
            if output.finish_reason:
                ended[output.request_id] = output.finish_reason
        engine.check_integrity()
    assert len(ended) == len(jobs)
    assert FinishReason.ABORT in ended.values()
    assert engine.stats().kv_blocks_used == (0, 0)
    for i, job in enumerate(jobs):
        if ended[str(i)] is FinishReason.ABORT:
            assert got[i] == job.token_ids[: len(got[i])]
        else:
            assert got[i] == job.token_ids


def test_the_check_can_fail(folder, jobs):
    """Another window gives other logits: the comparison above is no formality."""
    other = folder / "other"
    other.mkdir(exist_ok=True)
    (other / "config.json").write_text(json.dumps({**CONFIG, "sliding_window": WINDOW - 1}))
    observer = Observer()
    engine = start(other, observer, num_blocks=(500, 500), chunk_size=64)
    got = run(engine, jobs)
    with pytest.raises(AssertionError):
        check(jobs, got, observer)


def test_tight_caches_were_tight():
    """The property test means something only if its caches hold few sequences at once."""
    sizes = [tight_cache(random.Random(s), 8, 16) for s in range(5)]
    assert all(s[FULL] <= 16 and s[SLIDING] <= 15 for s in sizes)

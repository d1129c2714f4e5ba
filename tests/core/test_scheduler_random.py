"""Random loads on the engine over the fake executor, the books checked after every step.

The fake executor verifies that attention reads each sequence's own prefix and nothing else; here,
that every output is the pure function of its prompt, and that every request is done in time.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from rose.config import CacheConfig, SchedulerConfig
from rose.protocol import FinishReason, Request, RequestOutput, SamplingParams
from tests.fakes import (
    FakeExecutor,
    expected_output,
    expected_prompt_logprobs,
    fake_engine,
)

VOCAB, EOS = 40, (1,)
SCENARIOS, STEPS = 50, 2000
MAX_LIVE, MAX_PRIORITY = 10, 2


@dataclass
class Tracked:
    request: Request
    arrival: int
    arrival_step: int
    work: int
    outputs: dict[int, list[RequestOutput]] = field(default_factory=dict)
    num_finished: int = 0
    first_index: int | None = None  # whose output came first


class Scenario:
    """One engine of random shape under a random load."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        block, window = rng.choice([1, 2, 3, 4, 8]), rng.randint(1, 20)
        seqs, chunk = rng.randint(1, 6), rng.choice([1, 2, 5, 16, 40])
        limits = SchedulerConfig(
            max_num_seqs=seqs,
            max_batched_tokens=seqs + rng.choice([0, 3, 20, 60]),
            chunk_size=chunk,
            priority_aging=rng.randint(1, 4),
            one_ahead=rng.random() < 0.7,
        )
        self.aging = limits.priority_aging
        self.longest = rng.randint(20, 70)
        least = CacheConfig(block, (1, 1), window).windowed_blocks(chunk)
        full = -(-self.longest // block)
        cache = CacheConfig(
            block,
            (rng.randint(full, 3 * full), rng.randint(least, 3 * least)),
            window,
            rng.random() < 0.85,
        )
        self.ids_per_step = 1 if limits.one_ahead else rng.choice([1, 1, 3])
        self.executor = FakeExecutor(VOCAB, self.ids_per_step)
        self.limits = limits
        self.engine = fake_engine(
            self.executor, scheduler=limits, cache=cache, max_model_len=self.longest, eos=EOS
        )
        self.stems = [[rng.randrange(VOCAB) for _ in range(40)] for _ in range(3)]
        self.live: dict[str, Tracked] = {}
        self.work: list[int] = []  # tokens a request may need, by arrival
        self.step = 0
        self.seen: Counter[str] = Counter()

    def add(self) -> None:
        rng = self.rng
        size = rng.randint(1, self.longest - 1)
        stem = rng.choice(self.stems)[: rng.randrange(size)]
        prompt = stem + [rng.randrange(VOCAB) for _ in range(size - len(stem))]
        room = self.longest - size
        most = None if rng.random() < 0.3 else rng.randint(1, room)
        seed = None if rng.random() < 0.3 else rng.randrange(2**63)
        sampling = SamplingParams(
            n=rng.choice([1, 1, 1, 2, 3]),
            max_tokens=most,
            min_tokens=rng.choice([0, 0, min(most or room, 5)]),
            temperature=0.0 if seed is None else rng.choice([0.0, 1.0]),
            seed=seed,
            stop_token_ids=tuple(rng.sample(range(VOCAB), rng.choice([0, 0, 2]))),
            ignore_eos=rng.random() < 0.3,
            logprobs=rng.choice([None, None, 0, 2]),
            prompt_logprobs=rng.choice([None, None, None, 1]),
        )
        request = Request(
            request_id=f"r{len(self.work)}",
            prompt_token_ids=prompt,
            sampling=sampling,
            priority=rng.randint(-MAX_PRIORITY, MAX_PRIORITY),
        )
        work = sampling.n * (size + (most or room))
        self.live[request.request_id] = Tracked(request, len(self.work), self.step, work)
        self.work.append(work)
        self.engine.add_request(request)

    def abort(self, tracked: Tracked) -> None:
        index = self.rng.randrange(tracked.request.sampling.n)
        whole = self.rng.random() < 0.5
        self.engine.abort(tracked.request.request_id, None if whole else index)
        self.engine.check_integrity()
        if not whole and tracked.request.sampling.n > 1:
            self.seen["abort of the first" if index == 0 else "abort of a later"] += 1

    def run_step(self) -> None:
        outputs = self.engine.step()
        self.engine.check_integrity()
        self.step += 1
        for output in outputs:
            tracked = self.live[output.request_id]
            pieces = tracked.outputs.setdefault(output.index, [])
            assert not pieces or pieces[-1].finish_reason is None, "output after the last"
            assert output.token_ids or output.finish_reason is FinishReason.ABORT
            pieces.append(output)
            if output.token_ids and tracked.first_index is None:
                tracked.first_index = output.index
            tracked.num_finished += output.finish_reason is not None
            if tracked.num_finished == tracked.request.sampling.n:
                del self.live[output.request_id]
                self.check_finished(tracked)

    def check_finished(self, tracked: Tracked) -> None:
        self.check_in_time(tracked)
        sampling = tracked.request.sampling
        for index in range(sampling.n):
            pieces = tracked.outputs[index]
            ids = [token for piece in pieces for token in piece.token_ids]
            wanted = expected_output(
                tracked.request, index, vocab_size=VOCAB, eos=EOS, longest=self.longest
            )
            reason = pieces[-1].finish_reason
            self.seen[str(reason)] += 1
            self.seen["cached"] += pieces[0].num_cached_tokens > 0
            if reason is FinishReason.ABORT:
                assert ids == wanted[: len(ids)]
                continue
            assert ids == wanted
            stop_ids = (*sampling.stop_token_ids, *(() if sampling.ignore_eos else EOS))
            stopped = ids[-1] in stop_ids and len(ids) > sampling.min_tokens
            assert reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
            self.check_logprobs(tracked, index, pieces, ids)

    @staticmethod
    def check_logprobs(
        tracked: Tracked, index: int, pieces: list[RequestOutput], ids: list[int]
    ) -> None:
        request = tracked.request
        if request.sampling.logprobs is None:
            assert all(piece.logprobs is None for piece in pieces)
        else:
            found = [entry.token_id for piece in pieces for entry in piece.logprobs or ()]
            assert found == ids
        wanted = None
        if request.sampling.prompt_logprobs is not None and index == tracked.first_index:
            wanted = expected_prompt_logprobs(request)
        assert pieces[0].prompt_logprobs == wanted
        assert all(piece.prompt_logprobs is None for piece in pieces[1:])

    def check_in_time(self, tracked: Tracked) -> None:
        """Whoever may come first does not advance for ever.

        The first in order is never preempted and gains a token in at least every second step; only
        requests that were there, or arrive soon enough to have a lower key, can come first.
        """
        last = tracked.arrival + 2 * MAX_PRIORITY * self.aging + MAX_LIVE
        first = max(0, tracked.arrival - MAX_LIVE - 2 * MAX_PRIORITY * self.aging)
        bound = 2 * sum(self.work[first : last + 1]) + 20
        assert self.step - tracked.arrival_step <= bound

    def run(self, steps: int) -> None:
        rng, rate = self.rng, self.rng.choice([0.1, 0.3, 0.9])
        while self.step < steps:
            if len(self.live) < MAX_LIVE and rng.random() < rate:
                self.add()
            if self.live and rng.random() < 0.02:
                self.abort(rng.choice(list(self.live.values())))
            self.run_step()
        bound = 2 * sum(tracked.work for tracked in self.live.values()) + 20
        while self.engine.has_work():
            assert self.step < steps + bound, f"starved: {list(self.live)}"
            self.run_step()
        assert not self.live
        assert self.executor.most_tokens <= self.limits.max_batched_tokens
        assert self.executor.most_rows <= self.limits.max_num_seqs
        stats = self.engine.stats()
        assert stats.kv_blocks_used == (0, 0)
        assert (stats.running, stats.waiting) == (0, 0)
        self.seen["preemptions"] += stats.preemptions
        self.seen["requests"] += len(self.work)


SEEN: Counter[str] = Counter()


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_random_load(seed):
    scenario = Scenario(seed)
    scenario.run(STEPS)
    assert scenario.step >= STEPS
    SEEN.update(scenario.seen)


def test_the_random_loads_reached_every_corner():
    if SEEN["requests"] == 0:
        pytest.skip("needs the random loads above")
    corners = ("stop", "length", "abort", "abort of the first", "abort of a later")
    for corner in (*corners, "cached", "preemptions"):
        assert SEEN[corner] > SCENARIOS, SEEN

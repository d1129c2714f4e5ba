"""The sampler over slots: parameters of many sequences in one batch, held against numpy."""

import numpy as np
import pytest
import torch
from scipy import stats

from rose.core.step import NewSequence
from rose.decoders.decoder import SampleRows
from rose.protocol import SamplingParams
from rose.worker.sampler import Sampler, SlotParams
from rose.worker.token_pool import TokenPool

VOCAB = 41
CPU = torch.device("cpu")


class Bench:
    """A sampler with its slots and pool."""

    def __init__(self, slots=8, max_len=4000):
        self.pool = TokenPool(slots, max_len, CPU)
        self.params = SlotParams(slots, VOCAB)
        self.sampler = Sampler(self.params, self.pool, CPU)

    def admit(self, slot, params, *, tokens=(1, 2, 3), prompt=None, seed=0, stops=()):
        new = NewSequence(
            sequence_id=slot,
            slot=slot,
            token_ids=list(tokens),
            num_prompt_tokens=len(tokens) if prompt is None else prompt,
            sampling=params,
            seed=seed,
            stop_token_ids=stops,
        )
        self.pool.write(slot, new.token_ids)
        self.params.admit(new)

    def extend(self, slots, positions, tokens):
        index = self.pool.flat_index(np.array(slots), np.array(positions))
        self.pool.put(torch.tensor(index), torch.tensor(tokens))

    def sample(self, logits, slots, positions):
        return self.sampler.sample(logits, rows_of(slots, positions)).tolist()


def rows_of(slots, positions):
    return SampleRows(np.array(slots, dtype=np.int64), np.array(positions, dtype=np.int64))


def random_logits(rows, seed=0, scale=2.0):
    return torch.tensor(
        np.random.default_rng(seed).normal(size=(rows, VOCAB)) * scale, dtype=torch.float32
    )


def draws(bench, params, logits, n=6000, seed=11):
    """`n` samples from one row of logits, at n positions of one seeded sequence."""
    bench.admit(0, params, seed=seed)
    many = logits.expand(n, VOCAB)
    return np.bincount(bench.sample(many, [0] * n, range(3, 3 + n)), minlength=VOCAB)


def probabilities(logits, params):
    """The distribution that `params` describe, in float64, by definition."""
    x = logits.double().numpy().reshape(-1) / params.temperature
    order = np.argsort(-x, kind="stable")
    if params.top_k:
        order = order[: params.top_k]
    p = np.exp(x[order] - x[order].max())
    p /= p.sum()
    if params.top_p < 1:
        keep = np.cumsum(p) - p < params.top_p
        order, p = order[keep], p[keep]
    keep = p >= params.min_p * p.max()
    full = np.zeros(VOCAB)
    full[order[keep]] = p[keep] / p[keep].sum()
    return full


def chi_square(counts, expected):
    """The p-value, with rare tokens in one bin, so that the statistic is a chi-square."""
    assert counts[expected == 0].sum() == 0, "a token that the filters drop was sampled"
    wanted = expected * counts.sum()
    common = wanted >= 10
    observed, wanted = (
        np.append(counts[common], counts[~common].sum()),
        np.append(wanted[common], wanted[~common].sum()),
    )
    if wanted[-1] == 0:
        observed, wanted = observed[:-1], wanted[:-1]
    return stats.chisquare(observed, wanted).pvalue


SETTINGS = [
    SamplingParams(),
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.8, top_k=9),
    SamplingParams(top_p=0.8),
    SamplingParams(min_p=0.08),
    SamplingParams(temperature=1.3, top_k=20, top_p=0.9, min_p=0.02),
]


@pytest.mark.parametrize("params", SETTINGS)
def test_samples_follow_the_described_distribution(params):
    logits = random_logits(1, seed=5)
    counts = draws(Bench(), params, logits)
    assert chi_square(counts, probabilities(logits, params)) > 1e-3


def test_the_chi_square_notices_a_wrong_temperature():
    logits = random_logits(1, seed=5)
    counts = draws(Bench(), SamplingParams(temperature=1.0), logits)
    wrong = probabilities(logits, SamplingParams(temperature=1.1))
    assert chi_square(counts, wrong) < 1e-4


def test_samples_of_different_seeds_are_independent_of_position_order():
    """Across seeds at one position, as across positions of one seed."""
    bench, logits, counts = Bench(), random_logits(1, seed=6), np.zeros(VOCAB)
    for first in range(0, 2000, 8):
        for slot in range(8):
            bench.admit(slot, SamplingParams(), seed=first + slot)
        tokens = bench.sample(logits.expand(8, VOCAB), range(8), [3] * 8)
        counts += np.bincount(tokens, minlength=VOCAB)
    assert chi_square(counts, probabilities(logits, SamplingParams())) > 1e-3


def test_a_sample_does_not_depend_on_the_rest_of_its_batch():
    rng = np.random.default_rng(8)
    kinds = [*SETTINGS, SamplingParams(temperature=0), SamplingParams(presence_penalty=0.5)]
    logits = random_logits(8, seed=9)
    alone = []
    for slot, params in enumerate(kinds):
        bench = Bench()
        bench.admit(slot, params, seed=100 + slot, tokens=[slot, 4, slot])
        alone += bench.sample(logits[slot : slot + 1], [slot], [3])
    bench = Bench()
    for slot, params in enumerate(kinds):
        bench.admit(slot, params, seed=100 + slot, tokens=[slot, 4, slot])
    for _ in range(10):
        chosen = rng.permutation(8)[: rng.integers(1, 9)]
        got = bench.sample(logits[chosen], chosen, [3] * len(chosen))
        assert got == [alone[i] for i in chosen]


def test_greedy_takes_the_first_of_the_best_and_leaves_logits_alone():
    bench = Bench()
    bench.admit(0, SamplingParams(temperature=0))
    bench.admit(1, SamplingParams(temperature=1e-9))
    logits = random_logits(2)
    logits[0, [5, 17]] = 50.0
    before = logits.clone()
    assert bench.sample(logits, [0, 1], [3, 3]) == [5, logits[1].argmax().item()]
    assert torch.equal(logits, before)


def test_stop_ids_are_masked_until_min_tokens():
    bench = Bench()
    bench.admit(
        0, SamplingParams(temperature=0, min_tokens=2, max_tokens=9), stops=(7, 3, VOCAB + 5)
    )
    bench.admit(1, SamplingParams(temperature=0), stops=(7,))
    logits = torch.zeros(2, VOCAB)
    logits[:, 7], logits[:, 3], logits[:, 30] = 9.0, 8.0, 7.0
    assert bench.sample(logits, [0, 1], [3, 3]) == [30, 7]
    assert bench.sample(logits, [0, 1], [4, 4]) == [30, 7]
    assert bench.sample(logits, [0, 1], [5, 5]) == [7, 7]


def test_logit_bias_moves_its_own_row_only():
    bench = Bench()
    bench.admit(0, SamplingParams(temperature=0, logit_bias={4: 100.0, 6: -5.0}))
    bench.admit(1, SamplingParams(temperature=0))
    bench.admit(2, SamplingParams(temperature=0, logit_bias={6: -1e300}))
    logits = torch.zeros(3, VOCAB)
    logits[:, 6], logits[:, 8] = 2.0, 1.0
    assert bench.sample(logits, [0, 1, 2], [3, 3, 3]) == [4, 6, 8]


def test_penalties_count_ids_that_only_the_device_pool_knows():
    bench = Bench()
    bench.admit(0, SamplingParams(temperature=0, frequency_penalty=1.0), tokens=[9], prompt=1)
    logits = torch.zeros(1, VOCAB)
    logits[0, 9], logits[0, 4] = 2.5, 1.0
    tokens = []
    for position in range(1, 7):
        (token,) = bench.sample(logits, [0], [position])
        tokens.append(token)
        bench.extend([0], [position], [token])
    # 9 falls by one each time that it was sampled; the prompt's own 9 does not count.
    assert tokens == [9, 9, 4, 9, 0, 1]


def test_a_slot_forgets_what_it_held_before():
    bench = Bench()
    harsh = SamplingParams(
        temperature=0, logit_bias={2: 50.0}, repetition_penalty=5.0, min_tokens=5, top_k=1
    )
    bench.admit(3, harsh, stops=(11,))
    bench.admit(3, SamplingParams(temperature=0), tokens=[11, 11])
    logits = torch.zeros(1, VOCAB)
    logits[0, 11] = 1.0
    assert bench.sample(logits, [3], [2]) == [11]


def test_logprobs_are_of_the_raw_logits_and_for_those_who_ask():
    bench = Bench()
    bench.admit(0, SamplingParams(temperature=0.3, top_k=2, logprobs=2))
    bench.admit(1, SamplingParams())
    bench.admit(2, SamplingParams(logit_bias={5: 60.0}, logprobs=0))
    logits = random_logits(3, seed=12)
    rows = rows_of([0, 1, 2], [3, 3, 3])
    tokens = bench.sampler.sample(logits, rows)
    which, found = bench.sampler.logprobs(logits, tokens, rows)
    assert which.tolist() == [0, 2]
    truth = torch.log_softmax(logits.double(), dim=-1)
    assert tokens[2] == 5
    for got, row in enumerate(which):
        assert found.token[got] == tokens[row]
        assert found.logprob[got].item() == pytest.approx(truth[row, tokens[row]].item(), abs=1e-5)
    assert found.top_token[0].tolist() == truth[0].argsort(descending=True)[:2].tolist()
    assert bench.sampler.logprobs(logits[1:2], tokens[1:2], rows_of([1], [3])) is None


def test_extreme_parameters_still_give_a_token_of_the_vocabulary():
    bench = Bench()
    extremes = [
        SamplingParams(presence_penalty=1e308, frequency_penalty=-1e308, repetition_penalty=1e-300),
        SamplingParams(temperature=1e300),
        SamplingParams(temperature=2e-6, top_p=1e-12, min_p=1.0),
        SamplingParams(logit_bias=dict.fromkeys(range(VOCAB), -1e308)),
    ]
    for slot, params in enumerate(extremes):
        bench.admit(slot, params, tokens=[1, 2, 2, 3], prompt=2, seed=2**63 - 1)
    logits = random_logits(4, seed=13)
    for position in range(4, 20):
        tokens = bench.sample(logits, range(4), [position] * 4)
        bench.extend(range(4), [position] * 4, tokens)
        assert all(0 <= t < VOCAB for t in tokens)
        assert tokens[2] == logits[2].argmax()

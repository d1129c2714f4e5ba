"""The sampling kernels against published vectors and independent float64 computations."""

import numpy as np
import pytest
import torch
from scipy import stats

from rose.kernels import sampling


def words(text):
    return torch.tensor([int(w, 16) for w in text.split()], dtype=torch.int64)


# Random123's kat_vectors, philox4x32 with 10 rounds.
PHILOX_VECTORS = [
    ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), PHILOX_VECTORS)
def test_philox_gives_the_published_vectors(counter, key, expected):
    assert sampling.philox4x32(words(counter), words(key)).tolist() == words(expected).tolist()


def test_philox_is_elementwise():
    counters = torch.stack([words(v[0]) for v in PHILOX_VECTORS], dim=1)
    keys = torch.stack([words(v[1]) for v in PHILOX_VECTORS], dim=1)
    expected = torch.stack([words(v[2]) for v in PHILOX_VECTORS], dim=1)
    assert torch.equal(sampling.philox4x32(counters, keys), expected)


def keys_of(seeds):
    return torch.tensor([[s & 0xFFFFFFFF for s in seeds], [s >> 32 for s in seeds]])


def test_gumbel_noise_follows_the_gumbel_distribution():
    noise = sampling.gumbel_noise(keys_of([3, 2**40 + 9]), torch.tensor([5, 6]), 20_001)
    assert noise.shape == (2, 20_001)
    assert torch.isfinite(noise).all()
    for row in noise:
        assert stats.kstest(row.double().numpy(), stats.gumbel_r.cdf).pvalue > 1e-3
    # A control: the test notices a distribution that is off by a twentieth of its width.
    shifted = noise[0].double().numpy() + 0.05
    assert stats.kstest(shifted, stats.gumbel_r.cdf).pvalue < 1e-3


def test_gumbel_noise_depends_on_seed_position_and_token_alone():
    seeds, positions = [7, 2**50 + 1, 7, 7], torch.tensor([9, 9, 10, 9])
    noise = sampling.gumbel_noise(keys_of(seeds), positions, 33)
    assert torch.equal(noise[0], noise[3])
    assert not torch.equal(noise[0], noise[1])
    assert not torch.equal(noise[0], noise[2])
    alone = sampling.gumbel_noise(keys_of([2**50 + 1]), torch.tensor([9]), 30)
    assert torch.equal(alone[0], noise[1, :30])


def test_seeds_that_differ_in_the_high_word_differ():
    noise = sampling.gumbel_noise(keys_of([1, 1 + 2**32]), torch.tensor([0, 0]), 64)
    assert not torch.equal(noise[0], noise[1])


def kept_by_definition(logits, top_k, top_p):
    """Sort, cut, renormalise, cut again: in float64, one row."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if top_k:
        order = order[:top_k]
    weights = np.exp(np.float64(logits)[order] - np.float64(logits).max())
    weights /= weights.sum()
    kept, total = set(), 0.0
    for token, weight in zip(order, weights, strict=True):
        if top_p < 1 and total >= top_p:
            break
        kept.add(token)
        total += weight
    return kept


def test_top_k_and_top_p_keep_the_same_tokens_as_their_definition():
    rng = np.random.default_rng(1)
    rows = [
        (rng.normal(size=61) * rng.choice([0.1, 1, 5]), int(k), float(p))
        for k in (0, 1, 2, 7, 60, 61, 100)
        for p in (1.0, 0.999, 0.9, 0.5, 0.1, 1e-9)
        for _ in range(3)
    ]
    logits = torch.tensor(np.stack([r[0] for r in rows]), dtype=torch.float32)
    top_k, top_p = torch.tensor([r[1] for r in rows]), torch.tensor([r[2] for r in rows]).double()
    filtered = sampling.keep_top_k_top_p(logits, top_k, top_p)
    for i, (_, k, p) in enumerate(rows):
        kept = set(torch.isfinite(filtered[i]).nonzero().flatten().tolist())
        assert kept == kept_by_definition(logits[i].tolist(), k, p), (k, p)
        assert torch.equal(filtered[i][list(kept)], logits[i][list(kept)])


def test_equal_logits_rank_by_token_id():
    logits = torch.tensor([[1.0, 3.0, 3.0, 3.0, 0.0]])
    filtered = sampling.keep_top_k_top_p(logits, torch.tensor([2]), torch.tensor([1.0]).double())
    assert torch.isfinite(filtered[0]).tolist() == [False, True, True, False, False]


def test_top_p_of_one_keeps_tokens_that_rounding_would_drop():
    logits = torch.cat([torch.full((1, 1), 40.0), torch.zeros(1, 5000)], dim=1)
    filtered = sampling.keep_top_k_top_p(logits, torch.tensor([0]), torch.tensor([1.0]).double())
    assert torch.isfinite(filtered).all()


def test_min_p_keeps_tokens_by_their_share_of_the_best():
    rng = np.random.default_rng(2)
    logits = torch.tensor(rng.normal(size=(4, 300)) * 2, dtype=torch.float32)
    min_p = torch.tensor([0.0, 0.05, 0.5, 1.0])
    filtered = sampling.keep_min_p(logits, min_p)
    probability = torch.softmax(logits.double(), dim=-1)
    wanted = probability >= min_p.double()[:, None] * probability.amax(-1, keepdim=True) * (
        1 - 1e-6
    )
    assert torch.equal(torch.isfinite(filtered), wanted)
    assert wanted[3].sum() == 1


def test_temperature_survives_extremes():
    logits = torch.tensor([[1e3, -1e3, 999.0], [2.0, 1.0, 0.0]])
    scaled = sampling.scale_by_temperature(logits, torch.tensor([1e-6, 1e30]))
    assert torch.softmax(scaled, -1)[0].tolist() == [1.0, 0.0, 0.0]
    assert torch.softmax(scaled, -1)[1].tolist() == pytest.approx([1 / 3] * 3)


def penalize_by_hand(logits, prompt, output, repetition, presence, frequency):
    out = [float(x) for x in logits]
    for token in set(prompt) | set(output):
        out[token] = out[token] / repetition if out[token] > 0 else out[token] * repetition
    for token in set(output):
        out[token] -= presence + frequency * output.count(token)
    return out


def test_penalties_equal_a_count_by_hand():
    rng = np.random.default_rng(3)
    vocab, columns = 23, 40
    settings = [(1.3, 0.5, 0.25), (1.0, -0.7, 0.0), (0.6, 0.0, 1.1), (2.0, 0.0, 0.0)]
    logits = torch.tensor(rng.normal(size=(4, vocab)), dtype=torch.float32)
    # Junk beyond each row's length, of the kind that unwritten memory holds.
    history = torch.tensor(rng.integers(-(2**31), 2**31 - 1, size=(4, columns)), dtype=torch.int32)
    prompt_lengths, lengths = [1, 10, 40, 5], [1, 33, 40, 20]
    for i, length in enumerate(lengths):
        history[i, :length] = torch.tensor(rng.integers(0, vocab, length), dtype=torch.int32)
    repetition, presence, frequency = torch.tensor(settings).T
    before = logits.clone()
    got = sampling.penalize(
        logits,
        history,
        torch.tensor(prompt_lengths),
        torch.tensor(lengths),
        repetition=repetition,
        presence=presence,
        frequency=frequency,
    )
    assert torch.equal(logits, before)
    for i, (p, n) in enumerate(zip(prompt_lengths, lengths, strict=True)):
        row = history[i].tolist()
        wanted = penalize_by_hand(logits[i], row[:p], row[p:n], *settings[i])
        assert got[i].tolist() == pytest.approx(wanted, abs=1e-5)


def test_token_logprobs_equal_a_float64_softmax():
    rng = np.random.default_rng(4)
    logits = torch.tensor(rng.normal(size=(6, 50)) * 4, dtype=torch.float32)
    token = torch.tensor(rng.integers(0, 50, 6))
    found = sampling.token_logprobs(logits, token, 5)
    truth = torch.log_softmax(logits.double(), dim=-1)
    for i in range(6):
        assert found.logprob[i].item() == pytest.approx(truth[i, token[i]].item(), abs=1e-5)
        assert found.rank[i].item() == 1 + (truth[i] > truth[i, token[i]]).sum().item()
        best = truth[i].argsort(descending=True)[:5]
        assert found.top_token[i].tolist() == best.tolist()
        assert found.top_logprob[i].tolist() == pytest.approx(truth[i, best].tolist(), abs=1e-5)


def test_best_tokens_break_ties_by_id_whatever_the_sign():
    row = torch.tensor([[-1.0, -0.0, 0.0, 2.5, -1.0, 2.5, float("-inf"), -7.0]])
    assert sampling.best_tokens(row, 8).tolist() == [[3, 5, 1, 2, 0, 4, 7, 6]]
    assert sampling.best_tokens(row, 20).shape == (1, 8)
    assert sampling.best_tokens(row, 0).shape == (1, 0)

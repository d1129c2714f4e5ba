"""The fused sampling kernels against the reference, and against float64."""

import math

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from rose.core.step import NewSequence
from rose.decoders.decoder import SampleRows
from rose.kernels import sampling
from rose.kernels.dispatch import Implementation, force
from rose.kernels.fused import sampling as fused
from rose.protocol import SamplingParams
from rose.worker import upload
from rose.worker.sampler import Sampler, SlotParams
from rose.worker.token_pool import TokenPool

VOCABS = [1, 5, 2560, fused.TOKENS, fused.TOKENS + 1, 2 * fused.TOKENS - 1]
ROWS = [1, 7]
if torch.cuda.is_available():
    VOCABS += [201_088]
    ROWS += [256]


def inputs(rows, vocab, device, seed=0, spread=3.0):
    """Logits, keys, positions, temperature, min_p; every third row greedy, every second min-p."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((rows, vocab), generator=generator) * spread
    keys = torch.randint(0, 2**32, (2, rows), generator=generator)
    positions = torch.randint(0, 131_072, (rows,), generator=generator)
    row = torch.arange(rows)
    temperature = torch.where(row % 3 == 2, 0.0, 0.3 + torch.rand(rows, generator=generator))
    min_p = torch.where(row % 2 == 1, 0.02, 0.0)
    parts = (logits, keys, positions, temperature.double(), min_p.double())
    return tuple(part.to(device) for part in parts)


def both(run):
    """The reference's answer and the fused kernel's."""
    with force(Implementation.REFERENCE):
        wanted = run()
    with force(Implementation.TRITON):
        return wanted, run()


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("rows", ROWS)
def test_draws_are_the_references(rows, vocab, device):
    for seed in range(3):
        arguments = inputs(rows, vocab, device, seed)
        before = arguments[0].clone()
        wanted, found = both(lambda a=arguments: sampling.sample(*a))
        assert found.tolist() == wanted.tolist()
        assert torch.equal(arguments[0], before)
        with force(Implementation.TRITON):
            assert torch.equal(sampling.sample(*arguments), found)


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("rows", ROWS)
def test_greedy_takes_the_first_of_the_best(rows, vocab, device):
    # Few values, so that the best stands in many places and parts.
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randint(0, 3, (rows, vocab), generator=generator).float().to(device)
    with force(Implementation.TRITON):
        found = sampling.sample_greedy(logits)
    assert found.tolist() == [row.index(max(row)) for row in logits.tolist()]


def test_a_draw_does_not_depend_on_the_rest_of_its_batch(device):
    arguments = inputs(6, fused.TOKENS + 100, device, seed=4)
    logits, keys, positions, temperature, min_p = arguments
    with force(Implementation.TRITON):
        together = sampling.sample(*arguments)
        for i in range(6):
            one = slice(i, i + 1)
            alone = sampling.sample(
                logits[one],
                keys[:, one],
                positions[one],
                temperature[one],
                min_p[one],
            )
            assert alone.tolist() == together[one].tolist()


def test_the_outputs_and_the_partial_results_may_hold_anything_before(device, monkeypatch):
    poisoned = []

    def poison(*shape, **options):
        made = real_empty(*shape, **options)
        value = math.nan if made.is_floating_point() else 0x7F7F7F7F
        poisoned.append(made.fill_(value))
        return made

    arguments = inputs(5, fused.TOKENS + 9, device, seed=5)
    token = arguments[2] % 100
    real_empty = torch.empty
    with force(Implementation.TRITON):
        drawn, told = sampling.sample(*arguments), sampling.token_logprobs(arguments[0], token, 0)
        monkeypatch.setattr(torch, "empty", poison)
        again, retold = sampling.sample(*arguments), sampling.token_logprobs(arguments[0], token, 0)
    assert len(poisoned) == 5 + 6 + 1  # of the draw, of the log-probabilities, for no best tokens
    assert torch.equal(drawn, again)
    assert torch.equal(told.logprob, retold.logprob)
    assert torch.equal(told.rank, retold.rank)


def test_dropped_tokens_are_never_drawn(device):
    logits, keys, positions, _, min_p = inputs(8, 300, device, seed=6)
    logits[:, 3:] = -torch.inf
    logits[4:, :2] = -torch.inf
    for temperature in (1e30, 1.0, 1e-6):
        heat = torch.full((8,), temperature, dtype=torch.float64, device=device)
        with force(Implementation.TRITON):
            found = sampling.sample(logits, keys, positions, heat, min_p)
        assert set(found[:4].tolist()) <= {0, 1, 2}
        assert found[4:].tolist() == [2] * 4


def test_min_p_of_one_keeps_the_best_alone(device):
    logits, keys, positions, temperature, min_p = inputs(6, 300, device, seed=9)
    logits[:, [40, 7]] = 30.0
    with force(Implementation.TRITON):
        found = sampling.sample(
            logits, keys, positions, temperature + 1, torch.ones_like(min_p)
        ).tolist()
    assert set(found) == {7, 40}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_are_no_distribution_yield_a_token_of_the_vocabulary(temperature, device):
    vocab = fused.TOKENS + 3
    logits, keys, positions, _, min_p = inputs(4, vocab, device, seed=7)
    logits[0] = -torch.inf
    logits[1] = torch.nan
    logits[2, 9] = torch.nan
    logits[3, 17] = torch.inf
    heat = torch.full((4,), temperature, dtype=torch.float64, device=device)
    with force(Implementation.TRITON):
        found = sampling.sample(logits, keys, positions, heat, min_p).tolist()
    assert all(0 <= token < vocab for token in found)
    assert found[2] != 9
    assert found[3] == 17


@triton.jit
def _noise_kernel(key, position, words_out, noise_out, blocks: tl.constexpr):
    block = tl.arange(0, blocks)
    words = fused.random_words(block, tl.load(position), tl.load(key), tl.load(key + 1))
    where = block[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(words_out + where, words.to(tl.int64))
    tl.store(noise_out + where, fused.gumbel(words))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31))
def test_noise_has_the_bits_of_philox(seed, position):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    key = torch.tensor([seed & 0xFFFFFFFF, seed >> 32], device=device)
    where = torch.tensor([position], device=device)
    words = torch.empty(64, dtype=torch.int64, device=device)
    noise = torch.empty(64, device=device)
    _noise_kernel[(1,)](key, where, words, noise, 16)
    counter = torch.zeros((4, 16), dtype=torch.int64, device=device)
    counter[0], counter[1] = torch.arange(16), position
    assert torch.equal(words.view(16, 4), sampling.philox4x32(counter, key[:, None]).T)
    wanted = sampling.gumbel_noise(key[:, None], where, 64)[0]
    assert (noise - wanted).abs().max() <= 4e-7 * wanted.abs().clamp(min=1).max()


@triton.jit
def _gumbel_kernel(words, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, fused.gumbel(tl.load(words + i).to(tl.uint32)))


def test_the_largest_and_the_smallest_noise_are_finite_and_right(device):
    edge = [0, 1, 2, 127, 128, 129, 2**24, 2**31, 2**32 - 257, 2**32 - 256, 2**32 - 2, 2**32 - 1]
    words = torch.tensor(edge + [77] * 4, device=device)
    found = torch.empty(16, device=device)
    _gumbel_kernel[(1,)](words, found, 16)
    uniform = ((words.float() + 0.5) * 2.0**-32).clamp(max=1 - 2.0**-24).double()
    truth = -torch.log(-torch.log1p(-uniform))
    assert found.isfinite().all()
    # An absolute error of the noise is a relative one of the probability.
    assert (found.double() - truth).abs().max() < 3e-6


@triton.jit
def _scaled_kernel(distance, heat, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, fused._scaled(tl.load(distance + i), tl.load(heat)))


@pytest.mark.parametrize("heat", [1.0, 0.7, 1.9999999, 3.3333, 1e-6, 1e25, 1e-30])
def test_scaling_rounds_as_a_division_does(heat, device):
    n = 8192
    generator = torch.Generator().manual_seed(1)
    exponent = torch.rand(n, generator=generator) * 12 - 8
    distance = (-torch.rand(n, generator=generator) * 10**exponent).to(device)
    distance[0], distance[1] = 0.0, -torch.inf
    found = torch.full((n,), torch.nan, device=device)
    divisor = torch.tensor(heat, device=device)
    _scaled_kernel[(1,)](distance, divisor, found, n)
    assert torch.equal(found, distance / divisor)


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("rows", ROWS)
def test_logprobs_equal_a_float64_softmax(rows, vocab, device):
    logits, keys, *_ = inputs(rows, vocab, device, seed=8, spread=8.0)
    logits[:, 1::7] = logits[:, :1]  # ties with the first
    if vocab > fused.TOKENS:
        logits[0, : fused.TOKENS] = -torch.inf
    token = keys[0] % vocab
    if vocab > fused.TOKENS:
        token[0] = vocab - 1
    with force(Implementation.TRITON):
        found = sampling.token_logprobs(logits, token, min(3, vocab))
    truth = torch.log_softmax(logits.double(), dim=-1)
    own = truth.gather(1, token[:, None])
    assert found.logprob.tolist() == pytest.approx(own.squeeze(1).tolist(), abs=1e-5)
    assert found.rank.tolist() == (1 + (logits > logits.gather(1, token[:, None])).sum(1)).tolist()
    top = truth.gather(1, found.top_token).flatten().tolist()
    assert found.top_logprob.flatten().tolist() == pytest.approx(top, abs=1e-5)


def test_no_rows(device):
    logits = torch.empty((0, 30), device=device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    real = torch.empty(0, dtype=torch.float64, device=device)
    with force(Implementation.TRITON):
        assert sampling.sample_greedy(logits).shape == (0,)
        assert sampling.sample(logits, none.view(2, 0), none, real, real).shape == (0,)
        assert sampling.token_logprobs(logits, none, 2).logprob.shape == (0,)


SETTINGS = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.4, top_k=9, min_p=0.1),
    SamplingParams(top_p=0.8),
    SamplingParams(temperature=1e300, top_k=2),
    SamplingParams(temperature=0, top_k=5, logit_bias={3: 9.0}),
    SamplingParams(temperature=1e-9, presence_penalty=0.5),
]


def sampler_of(settings, vocab, device, stops=()):
    pool, params = TokenPool(len(settings), 64, device), SlotParams(len(settings), vocab)
    for slot, one in enumerate(settings):
        new = NewSequence(
            sequence_id=slot,
            slot=slot,
            token_ids=list(range(12)),
            num_prompt_tokens=3,
            sampling=one,
            seed=2**40 + slot,
            stop_token_ids=stops,
        )
        pool.write(slot, new.token_ids)
        params.admit(new)
    return Sampler(params, pool, device)


def test_the_sampler_draws_alike_with_either_implementation(device):
    sampler = sampler_of(SETTINGS, 500, device)
    for position in range(3, 9):
        logits = inputs(len(SETTINGS), 500, device, seed=position)[0]
        rows = SampleRows(np.arange(len(SETTINGS)), np.full(len(SETTINGS), position))
        wanted, found = both(lambda x=logits, r=rows: sampler.sample(x, r))
        assert found.tolist() == wanted.tolist()


def test_uploads_of_a_step(monkeypatch, device):
    """Greedy steps send nothing; others at most one array of integers and one of reals."""
    sent = []

    real = upload.upload
    monkeypatch.setattr(upload, "upload", lambda a, to: sent.append(a.dtype.kind) or real(a, to))
    monkeypatch.setattr("rose.worker.sampler.upload", upload.upload)
    early = SamplingParams(temperature=0, min_tokens=3)
    sampler = sampler_of([*SETTINGS, early], 40, device, stops=(7,))
    logits = inputs(8, 40, device)[0]
    for slots, expected in [
        ([0], ""),
        ([7], "i"),
        ([0, 1], "if"),
        ([2, 3], "if"),
        ([0, 5], "if"),
        ([6], "if"),
        (range(8), "if"),
    ]:
        sent.clear()
        rows = SampleRows(np.array(slots), np.full(len(slots), 3))
        sampler.sample(logits[: len(slots)], rows)
        assert "".join(sent) == expected, slots


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU can be waited for")
def test_no_step_waits_for_the_gpu(device):
    sampler = sampler_of(SETTINGS, 201_088, device)
    logits = inputs(len(SETTINGS), 201_088, device)[0]
    rows = SampleRows(np.arange(len(SETTINGS)), np.full(len(SETTINGS), 3))
    sampler.sample(logits, rows)
    torch.cuda.set_sync_debug_mode("error")
    try:
        tokens = sampler.sample(logits, rows)
        sampling.token_logprobs(logits, tokens, 5)
    finally:
        torch.cuda.set_sync_debug_mode("default")

"""The filter without a sort against the one with it, and against its definition in float64."""

import math

import pytest
import torch

from rose.kernels import sampling
from rose.kernels.dispatch import Implementation, force
from rose.kernels.fused import top_k_top_p as fused

GPU = torch.cuda.is_available()
FILTERS = [(k, p) for k in (0, 1, 7, 149, 300) for p in (1.0, 0.9, 0.3, 1e-9) if (k, p) != (0, 1.0)]


@pytest.fixture(autouse=True, params=[48, 1024])
def small_parts(monkeypatch, request):
    """So that a row of a few hundred has several, and more candidates than are copied, or fewer."""
    if not GPU:
        monkeypatch.setattr(fused, "_PART", 64)
        monkeypatch.setattr(fused, "_LANES", 32)
        monkeypatch.setattr(fused, "_TILE", 32)
        monkeypatch.setattr(fused, "_LIST", request.param)


def poison(monkeypatch):
    """What is allocated from now on holds the worst values."""
    like, empty = torch.empty_like, torch.empty

    def filled(*shape, **options):
        made = empty(*shape, **options)
        return made.fill_(math.nan if made.is_floating_point() else 0x7F7F7F7F)

    monkeypatch.setattr(torch, "empty_like", lambda x: like(x).fill_(math.nan))
    monkeypatch.setattr(torch, "empty", filled)


def limits(filters, device):
    top_k, top_p = zip(*filters, strict=True)
    return (
        torch.tensor(top_k, device=device),
        torch.tensor(top_p, dtype=torch.float64, device=device),
    )


def random(rows, vocab, device, *, seed=0, spread=3.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn((rows, vocab), generator=generator) * spread).to(device)


def keep(logits, top_k, top_p):
    with force(Implementation.TRITON):
        return sampling.keep_top_k_top_p(logits, top_k, top_p)


def kept_prefix(found, logits, k, p):
    """Check one row by definition; how many tokens are kept."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    count = sum(math.isfinite(x) for x in found)
    assert {i for i, x in enumerate(found) if math.isfinite(x)} == set(order[:count])
    assert all(found[i] == logits[i] for i in order[:count])
    allowed = order[: k or None]
    weights = torch.tensor([logits[i] for i in allowed], dtype=torch.float64).softmax(0)
    if p == 1:
        assert count == len(allowed)
    else:
        assert weights[: count - 1].sum() < p + 1e-6
        assert weights[:count].sum() > p - 1e-6
    return count


@pytest.mark.parametrize("ties", [False, True])
def test_it_keeps_what_sorting_keeps(ties, device):
    logits = random(len(FILTERS), 150, device)
    if ties:
        logits = (logits * 2).round() / 2
    limit = limits(FILTERS, device)
    before = logits.clone()
    found = keep(logits, *limit)
    with force(Implementation.REFERENCE):
        wanted = sampling.keep_top_k_top_p(logits, *limit)
    assert torch.equal(found, wanted)
    assert torch.equal(logits, before)
    for row, (k, p) in enumerate(FILTERS):
        kept_prefix(found[row].tolist(), logits[row].tolist(), k, p)


@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 129])
def test_rows_around_the_borders_of_tiles(vocab, device):
    logits = random(2, vocab, device, seed=vocab)
    found = keep(logits, *limits([(5, 0.8), (0, 0.97)], device))
    for row, (k, p) in enumerate([(5, 0.8), (0, 0.97)]):
        kept_prefix(found[row].tolist(), logits[row].tolist(), k, p)


def test_equal_logits_go_by_id(device):
    logits = torch.full((4, 200), -1.5, device=device)
    logits[3, 150] = 0.0
    found = keep(logits, *limits([(70, 1.0), (0, 0.5), (70, 0.5), (3, 1.0)], device))
    kept = [row.isfinite().nonzero().flatten().tolist() for row in found]
    assert kept == [list(range(70)), list(range(100)), list(range(35)), [0, 1, 150]]


def test_rounding_never_keeps_more_than_top_k(device):
    filters = [(k, 1 - 1e-12) for k in range(5, 12)]
    logits = torch.full((len(filters), 64), -1.3, device=device)
    logits[:, 5] = 0.0
    found = keep(logits, *limits(filters, device))
    assert found.isfinite().sum(dim=1).tolist() == [k for k, _ in filters]


@pytest.mark.parametrize("shift", [0.0, -700.0, 3e9])
def test_the_best_logit_may_be_anywhere(shift, device):
    filters = [(0, 0.9), (9, 1.0), (120, 0.99), (0, 0.2)]
    logits = random(len(filters), 150, device, seed=8) * max(1.0, abs(shift) / 1e3) + shift
    found = keep(logits, *limits(filters, device))
    for row, (k, p) in enumerate(filters):
        kept_prefix(found[row].tolist(), logits[row].tolist(), k, p)


@pytest.mark.parametrize("spread", [1e-3, 0.1])
def test_rows_almost_flat(spread, device):
    filters = [(0, 0.9), (9, 1.0), (120, 0.99), (0, 0.2)]
    logits = random(len(filters), 150, device, seed=9, spread=spread)
    found = keep(logits, *limits(filters, device))
    for row, (k, p) in enumerate(filters):
        kept_prefix(found[row].tolist(), logits[row].tolist(), k, p)


def test_a_row_without_a_filter_is_copied(device):
    logits = random(3, 150, device, seed=10)
    logits[1, 7] = -math.inf
    found = keep(logits, *limits([(3, 1.0), (0, 1.0), (0, 0.5)], device))
    assert torch.equal(found[1], logits[1])
    assert found[0].isfinite().sum() == 3


def test_both_zeros_are_equal(device):
    logits = torch.tensor([[-0.0, 0.0, -0.0, 0.0, -1.0]], device=device)
    assert keep(logits, *limits([(2, 1.0)], device)).isfinite().tolist() == [
        [True] * 2 + [False] * 3
    ]


def test_logits_farther_apart_than_any_bracket(device):
    logits = torch.tensor([[0.0, -1e30, -40.0, -300.0, -1e9, -math.inf]], device=device)
    for k in range(1, 7):
        found = keep(logits, *limits([(k, 1.0)], device))
        assert found.isfinite().sum() == min(k, 5)
    found = keep(logits, *limits([(0, 1 - 1e-9)], device))
    assert found[0, :2].tolist() == [0.0, -math.inf]


def test_rows_that_are_no_distribution_come_back(device):
    logits = random(3, 100, device)
    logits[0] = -math.inf
    logits[1, 30:] = -math.inf
    logits[2] = math.nan
    found = keep(logits, *limits([(5, 0.5), (60, 1.0), (5, 0.5)], device))
    assert not found[0].isfinite().any()
    assert torch.equal(found[1], logits[1])


def test_a_row_does_not_depend_on_its_batch_nor_on_old_memory(device, monkeypatch):
    logits, limit = random(3, 150, device, seed=3), limits([(9, 0.7), (0, 0.8), (4, 1.0)], device)
    together = keep(logits, *limit)
    poison(monkeypatch)
    for row in range(3):
        one = slice(row, row + 1)
        alone = keep(logits[one], limit[0][one].clone(), limit[1][one].clone())
        assert torch.equal(alone, together[one])


def test_no_rows(device):
    logits = torch.empty((0, 9), device=device)
    assert keep(logits, *(each[:0] for each in limits([(1, 1.0)], device))).shape == (0, 9)


@pytest.mark.skipif(not GPU, reason="too large for the interpreter")
@pytest.mark.parametrize("spread", [0.1, 3.0, 12.0])
def test_the_whole_vocabulary(spread, device):
    filters = [(0, 0.95), (50, 1.0), (1000, 0.9), (0, 0.1), (150_000, 0.999)]
    logits = random(len(filters), 201_088, device, spread=spread)
    found = keep(logits, *limits(filters, device))
    for row, (k, p) in enumerate(filters):
        kept_prefix(found[row].tolist(), logits[row].tolist(), k, p)
    many = logits.repeat(60, 1)
    top_k, top_p = (each.repeat(60) for each in limits(filters, device))
    assert torch.equal(keep(many, top_k, top_p), found.repeat(60, 1))

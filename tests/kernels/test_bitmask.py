import pytest
import torch

from rose.kernels.bitmask import keep_allowed, words_for


def pack(allowed):
    rows, vocab = allowed.shape
    padded = torch.zeros(rows, words_for(vocab) * 32, dtype=torch.int64)
    padded[:, :vocab] = allowed
    words = (padded.view(rows, -1, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int()


@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 2560, 4001])
def test_tokens_without_their_bit_are_minus_infinity_and_the_others_stay(vocab):
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(3, vocab, generator=generator)
    allowed = torch.rand(3, vocab, generator=generator) < 0.5
    allowed[1] = True
    before = logits.clone()

    kept = keep_allowed(logits, pack(allowed))

    assert torch.equal(kept, torch.where(allowed, logits, -torch.inf))
    assert torch.equal(logits, before)

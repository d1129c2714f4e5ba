"""The plain decoder: one token a row, the sampler's own."""

import numpy as np
import torch

from rose.decoders.decoder import PlainDecoder, SampleRows


class ByPosition:
    """Samples the token id that equals the position."""

    def sample(self, logits, rows):
        assert logits.shape[0] == rows.slots.size
        return torch.tensor(rows.positions)


def test_the_plain_decoder_accepts_what_the_sampler_chose():
    rows = SampleRows(np.array([4, 0, 2]), np.array([7, 1, 30]))
    decoder = PlainDecoder(ByPosition())
    accepted = decoder.decode(torch.zeros(3, 40), rows)
    assert accepted.token_ids.tolist() == [[7], [1], [30]]
    assert accepted.counts is None
    assert accepted.token_ids.shape[1] == decoder.width

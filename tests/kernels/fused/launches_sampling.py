"""Sampling as an engine calls it: from one row to 256, and the tile of prompt log-probabilities."""

import torch

from rose.kernels import sampling
from rose.kernels.dispatch import Implementation, force

VOCAB = 201_088


def launches() -> None:
    with force(Implementation.TRITON):
        for rows in (1, 2, 64, 256):
            logits = torch.empty(rows, VOCAB)
            token = sampling.sample_greedy(logits)
            sampling.token_logprobs(logits, token, 0)
            keys = torch.empty((2, rows), dtype=torch.int64)
            positions = torch.empty(rows, dtype=torch.int64)
            temperature, min_p = torch.empty((2, rows), dtype=torch.float64)
            sampling.sample(logits, keys, positions, temperature, min_p)
            top_k, top_p = torch.empty_like(token), torch.empty_like(min_p)
            sampling.keep_top_k_top_p(logits, top_k, top_p)

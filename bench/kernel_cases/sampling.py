"""Sampling over the vocabulary of gpt-oss."""

from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from bench.kernel_cases.case import Case
from rose.kernels import sampling

VOCAB = 201_088


def cases() -> Iterator[Case]:
    """Greedy, drawn, filtered, and the log-probabilities of what was drawn."""
    for rows in (1, 32, 128, 256):
        row_bytes = 4.0 * rows * VOCAB
        inputs = _inputs(rows)
        yield Case(f"sampling greedy rows={rows}", _greedy(inputs), row_bytes, 0)
        yield Case(f"sampling draw rows={rows}", _draw(inputs), row_bytes, 0)
        yield Case(f"sampling logprobs rows={rows}", _logprobs(inputs), row_bytes, 0)
        yield Case(f"sampling top-k top-p rows={rows}", _filter(inputs, 50), 2 * row_bytes, 0)
        yield Case(f"sampling top-p rows={rows}", _filter(inputs, 0), 2 * row_bytes, 0)


Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _inputs(rows: int) -> Callable[[], Inputs]:
    @cache
    def make() -> Inputs:
        logits = torch.randn((rows, VOCAB), device="cuda") * 3
        keys = torch.randint(0, 2**32, (2, rows), device="cuda")
        positions = torch.randint(0, 131_072, (rows,), device="cuda")
        temperature = torch.ones(rows, dtype=torch.float64, device="cuda")
        return logits, keys, positions, temperature, torch.zeros_like(temperature)

    return make


def _greedy(inputs: Callable[[], Inputs]) -> Callable[[], object]:
    return lambda: sampling.sample_greedy(inputs()[0])


def _draw(inputs: Callable[[], Inputs]) -> Callable[[], object]:
    return lambda: sampling.sample(*inputs())


def _logprobs(inputs: Callable[[], Inputs]) -> Callable[[], object]:
    # Any valid ids do, and positions are below the vocabulary's size.
    return lambda: sampling.token_logprobs(inputs()[0], inputs()[2], 0)


def _filter(inputs: Callable[[], Inputs], k: int) -> Callable[[], object]:
    @cache
    def limits() -> tuple[Tensor, Tensor]:
        real = inputs()[3]
        return torch.full_like(inputs()[2], k), real * 0.95

    return lambda: sampling.keep_top_k_top_p(inputs()[0], *limits())

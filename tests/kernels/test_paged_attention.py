"""Paged attention against a loop over queries in float64, on a cache poisoned where unused."""

import math

import pytest
import torch

from rose.kernels import reference_attention
from rose.kernels.attention import paged_attention
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LayerKV
from rose.kernels.reference_attention import ATTENTION_TOLERANCE

DTYPES = [torch.float32, torch.bfloat16]


class Case:
    """A batch of (query_len, kv_len) sequences, and the keys and values that they own."""

    def __init__(
        self,
        lens,
        *,
        heads=4,
        kv_heads=2,
        dim=8,
        block_size=4,
        window=None,
        seed=0,
        dtype=torch.float32,
    ):
        generator = torch.Generator().manual_seed(seed)

        def random(*shape):
            return torch.randn(shape, generator=generator).to(dtype)

        self.lens, self.window, self.scale = lens, window, dim**-0.5
        self.query = random(sum(q for q, _ in lens), heads, dim)
        self.keys = [random(k, kv_heads, dim) for _, k in lens]
        self.values = [random(k, kv_heads, dim) for _, k in lens]
        self.sinks = torch.randn(heads, generator=generator)
        width = max(-(-k // block_size) for _, k in lens) + 1
        blocks = len(lens) * width + 1
        tables = torch.randperm(blocks, generator=generator)[:-1].view(len(lens), width).int()
        shape = (blocks, block_size, kv_heads, dim)
        self.kv = LayerKV(*(torch.full(shape, torch.nan, dtype=dtype) for _ in range(2)))
        for row, (queries, length) in enumerate(lens):
            first = 0 if window is None else max(0, length - queries - window + 1)
            for position in range(first, length):
                block, offset = tables[row, position // block_size], position % block_size
                self.kv.key[block, offset] = self.keys[row][position]
                self.kv.value[block, offset] = self.values[row][position]
            tables[row, : first // block_size] = 2**30
            tables[row, (length - 1) // block_size + 1 :] = -(2**30)
        self.batch = batch_of(lens, tables, window)

    def found(self):
        return paged_attention(self.query, self.kv, self.batch, 0, self.sinks, self.scale)

    def truth(self):
        out, row = torch.empty(self.query.shape, dtype=torch.float64), 0
        group = self.query.shape[1] // self.keys[0].shape[1]
        for sequence, (queries, length) in enumerate(self.lens):
            for position in range(length - queries, length):
                low = 0 if self.window is None else max(0, position - self.window + 1)
                for head in range(self.query.shape[1]):
                    key = self.keys[sequence][low : position + 1, head // group].double()
                    value = self.values[sequence][low : position + 1, head // group].double()
                    scores = key @ self.query[row, head].double() * self.scale
                    mass = scores.exp() / (scores.exp().sum() + math.exp(self.sinks[head].item()))
                    out[row, head] = mass @ value
                row += 1
        return out

    def check(self):
        found, truth = self.found(), self.truth()
        assert found.dtype == self.query.dtype
        assert found.shape == truth.shape
        tolerance = ATTENTION_TOLERANCE
        bound = tolerance.float32 if found.dtype == torch.float32 else tolerance.bfloat16
        assert (found.double() - truth).abs().max() <= bound * truth.abs().max()


def batch_of(lens, tables, window):
    starts = torch.tensor([0, *(q for q, _ in lens)]).cumsum(0).int()
    query_lens, kv_lens = [q for q, _ in lens], [k for _, k in lens]
    nowhere = torch.full((sum(query_lens),), -1)
    groups = (KVGroupBatch(nowhere, tables, window),)
    return AttentionBatch(starts, torch.tensor(kv_lens).int(), query_lens, kv_lens, groups)


LENS = {
    "one token": [(1, 1)],
    "decode": [(1, 9), (1, 1), (1, 4), (1, 8), (1, 5)],
    "prompt": [(13, 13)],
    "chunk": [(5, 12)],
    "two tokens": [(2, 2)],
    "mix": [(1, 7), (6, 6), (1, 16), (3, 10), (1, 1)],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 1, 4, 5, 100])
@pytest.mark.parametrize("lens", LENS.values(), ids=LENS.keys())
def test_batches(lens, window, dtype):
    Case(lens, window=window, dtype=dtype).check()


@pytest.mark.parametrize("window", [None, 3, 8])
@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_lengths_around_blocks_and_windows(block_size, window):
    lens = [(1, n) for n in (1, 2, 3, 4, 5, 7, 8, 9)] + [(q, 9) for q in (2, 3, 4, 8, 9)]
    Case(lens, block_size=block_size, window=window).check()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(1, 1, 2), (6, 2, 16), (5, 5, 4), (8, 1, 8)]
)
def test_head_layouts(heads, kv_heads, dim):
    Case([(1, 6), (4, 9)], heads=heads, kv_heads=kv_heads, dim=dim, window=5).check()
    Case([(1, 6), (4, 9)], heads=heads, kv_heads=kv_heads, dim=dim).check()


@pytest.mark.parametrize("window", [None, 3, 40])
def test_tiles_do_not_show(monkeypatch, window):
    case = Case([(50, 70), (1, 30), (1, 60), (1, 2)], window=window)
    whole = case.found()
    monkeypatch.setattr(reference_attention, "SCORES_PER_TILE", 4 * 70 * 3)
    monkeypatch.setattr(reference_attention, "SMALLEST_TILE", 2)
    monkeypatch.setattr(reference_attention, "KEYS_PER_TILE", 61)
    torch.testing.assert_close(case.found(), whole, atol=1e-6, rtol=0)
    case.check()


def test_decode_rows_of_unlike_length_are_not_padded_to_the_longest():
    rows = [(0, 0), (1, 1), (2, 2), (3, 3)]
    limit = reference_attention.KEYS_PER_TILE
    lengths = [10, 3 * limit, 20, limit // 2]
    tiles = reference_attention._decode_tiles(rows, lengths, None, limit)
    assert [[sequence for sequence, _ in tile] for tile in tiles] == [[1], [3, 2], [0]]
    assert len(reference_attention._decode_tiles(rows, lengths, 128, limit)) == 1


@pytest.mark.parametrize("lens", [[(1, 6)], [(6, 6)]], ids=["decode", "chunk"])
@pytest.mark.parametrize("window", [None, 3])
def test_the_sink_takes_its_share(lens, window):
    """With scores of 0 and values of 1 the output is what the sink leaves: n / (n + e^sink)."""
    case = Case(lens, window=window)
    case.query.zero_()
    case.kv.value[case.kv.value.isfinite()] = 1
    queries, length = lens[0]
    for row in range(queries):
        seen = length - queries + row + 1
        seen = seen if window is None else min(seen, window)
        wanted = (seen / (seen + case.sinks.exp())).unsqueeze(1).expand(-1, 8)
        torch.testing.assert_close(case.found()[row], wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("sink", [-1e4, 1e4])
@pytest.mark.parametrize("lens", [[(1, 6)], [(3, 6)]])
def test_extreme_sinks_and_scores_do_not_overflow(lens, sink):
    case = Case(lens)
    case.sinks.fill_(sink)
    case.query.mul_(1000)
    found = case.found()
    assert found.isfinite().all()
    if sink > 0:
        assert found.abs().max() == 0
    else:
        assert found.abs().max() > 0.1

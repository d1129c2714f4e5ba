"""The Triton attention kernels against the float64 truth, on caches poisoned where unused."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rose.kernels.attention import paged_attention
from rose.kernels.dispatch import Implementation, force
from rose.kernels.fused import attention as fused
from rose.kernels.fused import attention_chunk, attention_decode
from rose.kernels.fused.attention_merge import FEW_SPLITS, MAX_SPLITS, SPAN_PARTS, Partial
from rose.kernels.reference_attention import ATTENTION_TOLERANCE
from tests.kernels.fused.attention_cases import AttentionCase

# The lengths below lie around tiles of 64 keys.
assert attention_decode.CONFIG.keys == attention_chunk.CONFIG.keys == 64

EDGES = (1, 15, 16, 17, 63, 64, 65, 128, 129)
LENS = {
    "one token": [(1, 1)],
    "decode": [(1, n) for n in EDGES],
    "prompt": [(n, n) for n in (2, 15, 16, 17, 65)],
    "chunk": [(17, 80), (2, 64), (3, 66), (16, 128), (33, 129)],
    "mix": [(1, 7), (40, 40), (1, 130), (3, 90), (1, 1)],
}
WINDOWS = [None, 1, 16, 63, 64, 65, 1000]


@pytest.fixture
def splits(request, monkeypatch):
    """Both kernels cut keys into so many parts, also where there are few keys.

    Decode rows are cut into as many at most, shorter ones into parts of one tile.
    """
    monkeypatch.setattr(attention_chunk, "split_count", lambda *_: request.param)
    monkeypatch.setattr(attention_decode, "MAX_SPLITS", request.param)
    for kernel in (attention_chunk, attention_decode):
        monkeypatch.setattr(kernel, "SPLIT_KEYS", kernel.CONFIG.keys)
    return request.param


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("lens", LENS.values(), ids=LENS.keys())
def test_batches(lens, window, device):
    AttentionCase(lens, device, window=window).check()


@pytest.mark.parametrize("block_size", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("window", [None, 50])
def test_block_sizes(block_size, window, device):
    lens = [(1, 1), (1, 257), (20, 256), (5, 130)]
    AttentionCase(lens, device, block_size=block_size, window=window, kv_heads=1).check()


@pytest.mark.parametrize("dim", [16, 32, 64, 128])
@pytest.mark.parametrize(
    ("heads", "kv_heads"), [(1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (6, 2), (5, 5)]
)
def test_head_layouts(heads, kv_heads, dim, device):
    case = AttentionCase([(1, 70), (18, 80)], device, heads=heads, kv_heads=kv_heads, dim=dim)
    case.check()


@pytest.mark.parametrize("splits", [2, 7, FEW_SPLITS + 1], indirect=True)
@pytest.mark.parametrize(("window", "width"), [(None, 1), (None, 3), (200, 3)])
@pytest.mark.parametrize("chunk", [True, False])
def test_splits_do_not_show(splits, window, width, chunk, device):
    """Lengths for which all, some or one of the splits have keys; width 3: some for one query."""
    lens = [(width, n) for n in (3, 65, 130, 450)] + [(20, 300)] * chunk
    AttentionCase(lens, device, window=window, width=width, heads=2, kv_heads=1).check()


@pytest.mark.parametrize("splits", [3, MAX_SPLITS], indirect=True)
@pytest.mark.parametrize("width", [1, 3])
def test_a_sequence_alone(splits, width, device):
    for keys in (width, 64, 65, 64 * 5, 64 * 7 + 1):
        AttentionCase([(width, keys)], device, width=width).check()


@pytest.mark.parametrize("splits", [1, 2], indirect=True)
@pytest.mark.parametrize("window", [None, 20])
def test_decode_rows_of_several_tokens_beside_others(splits, window, device):
    lens = [(4, 70), (1, 30), (4, 4), (7, 20), (4, 200)]
    case = AttentionCase(lens, device, window=window, width=4)
    assert sorted(case.batch.plan.decode_sequences.tolist()) == [0, 2, 4]
    case.check()


@pytest.mark.parametrize("splits", [1, 3], indirect=True)
def test_queries_of_padding_that_see_no_key(splits, device):
    """A graph's padding has kv_len 1, also where it runs several tokens: they yield 0, not NaN."""
    case = AttentionCase([(2, 1), (2, 150)], device, width=2)
    assert case.check()[0].abs().max() == 0


@pytest.mark.parametrize("splits", [1, 7], indirect=True)
@pytest.mark.parametrize("window", [None, 70])
def test_the_sink_takes_its_share_once(splits, window, device):
    """With scores of 0 and values of 1 the output is what the sink leaves: n / (n + e^sink)."""
    lens = [(1, 1), (1, 64), (1, 600), (20, 300)]
    case = AttentionCase(lens, device, window=window)
    case.query.zero_()
    case.kv.value[case.kv.value.isfinite()] = 1
    seen = torch.tensor(
        [k - q + 1 + i for q, k in lens for i in range(q)], device=device, dtype=torch.float64
    ).clamp(max=window or 600)[:, None]
    share = seen / (seen + case.sinks.double().exp())
    found = case.found().double()
    assert (found - share[:, :, None]).abs().max() <= ATTENTION_TOLERANCE.bfloat16


@pytest.mark.parametrize("splits", [1, 3], indirect=True)
@pytest.mark.parametrize("sink", [-1e5, 1e5, -torch.inf])
def test_extreme_sinks_and_scores_do_not_overflow(splits, sink, device):
    case = AttentionCase([(1, 70), (1, 300), (20, 90)], device, window=65)
    case.sinks.fill_(sink)
    case.query.mul_(1000)
    found = case.check()
    assert (found.abs().amax((1, 2)) > 0.1).all() if sink < 0 else found.abs().max() == 0


@pytest.mark.parametrize("splits", [1, 3], indirect=True)
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_a_nan_comes_out(splits, device):
    """Of its own row and head only, and not as the zeros of a query that sees no key."""
    case = AttentionCase([(1, 300), (20, 90)], device)
    for row, head in ((0, 1), (5, 2)):
        case.query[row, head, 3] = torch.nan
    found = case.found().isnan()
    expected = torch.zeros_like(found)
    expected[0, 1] = expected[5, 2] = True
    assert torch.equal(found, expected)


def test_sinks_in_bfloat16(device):
    case = AttentionCase([(1, 300), (20, 90)], device)
    case.sinks = case.sinks.bfloat16()
    case.check()


@pytest.mark.parametrize("splits", [1, 3], indirect=True)
@pytest.mark.parametrize("window", [None, 33])
def test_every_row_is_written_and_every_run_is_the_same(splits, window, device, monkeypatch):
    case = AttentionCase([(1, 300), (17, 200)], device, window=window)
    empty = Partial.empty

    def poisoned(*args):
        partial = empty(*args)
        partial.values.fill_(torch.nan)
        partial.log_mass.fill_(torch.nan)
        return partial

    monkeypatch.setattr(Partial, "empty", poisoned)
    monkeypatch.setattr(fused.torch, "empty_like", lambda x: torch.full_like(x, torch.nan))
    first = case.check()
    assert torch.equal(case.found(), first)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    lens=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 150)), min_size=1, max_size=4),
    window=st.none() | st.integers(1, 160),
    block_size=st.sampled_from([16, 64, 128]),
    width=st.integers(1, 3),
)
def test_any_batch(lens, window, block_size, width, device):
    lens = [(queries, queries + before) for queries, before in lens]
    AttentionCase(lens, device, window=window, block_size=block_size, width=width).check()


def places(tables_keys, window=None):
    """A group whose tables have room for so many keys, in blocks of 16."""
    group = AttentionCase([(1, 1)], torch.device("cpu")).batch.groups[0]
    table = torch.empty(1, tables_keys // 16, dtype=torch.int32)
    return replace(group, block_tables=table, window=window)


def test_splits_of_chunks_follow_from_shapes():
    def count(tiles, keys, window=None):
        return attention_chunk.split_count(tiles, 8, places(keys, window), 16)

    assert count(1, 64) == count(1, 131072, window=128) == 1
    assert 1 < count(16, 131072) < count(1, 131072) <= MAX_SPLITS


def test_slots_of_decode_rows_follow_from_shapes():
    def count(sequences, keys, window=None):
        return attention_decode.slot_count(sequences, 264, 128, places(keys, window), 16)

    assert count(1, 131072) == MAX_SPLITS
    assert count(1, 1024) == 8
    assert count(128, 131072) == 128 + 264
    assert count(1, 128) == count(1, 131072, window=128) == 0
    assert count(attention_decode.MOST_SEQUENCES + 1, 131072) == 0


def spans(lens, device, monkeypatch, **options):
    """(First slot, parts) of each decode sequence, and the slots that there are."""
    seen = []
    empty = Partial.empty
    merge = attention_decode.merge
    monkeypatch.setattr(
        Partial, "empty", lambda slots, *args: (seen.append(slots), empty(slots, *args))[1]
    )
    monkeypatch.setattr(
        attention_decode, "merge", lambda *args: (seen.append(args[4].spans), merge(*args))
    )
    AttentionCase(lens, device, **options).check()
    *_, slots, found = seen
    return [divmod(span, SPAN_PARTS.value) for span in found.tolist()], slots


@pytest.mark.parametrize("extra", [[], [(2, 9)]], ids=["alone", "beside a chunk"])
def test_long_sequences_get_more_parts(extra, device, monkeypatch):
    monkeypatch.setattr(attention_decode, "SPLIT_KEYS", 64)
    monkeypatch.setattr(attention_decode, "PROGRAMS", 2 * 10)
    monkeypatch.setattr(attention_decode, "SEQUENCE_PARTS", 1)
    lens = [(1, 64), (1, 6 * 64), (1, 1), (1, 2 * 64), (1, 20 * 64 - 1), *extra]
    found, slots = spans(lens, device, monkeypatch)
    # 30 tiles, 10 parts wanted: 3 tiles a part.
    order = sorted(range(5), key=lambda at: -lens[at][1]) if extra else range(5)
    parts = [[1, 2, 1, 1, 7][at] for at in order]
    assert [count for _, count in found] == parts
    assert [first for first, _ in found] == [sum(parts[:at]) for at in range(5)]
    assert sum(parts) <= slots == 5 + 10


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    keys=st.lists(st.integers(1, 400), min_size=1, max_size=40),
    programs=st.integers(1, 40),
    chunk=st.booleans(),
)
def test_parts_of_any_lengths_have_a_slot_each(keys, programs, chunk, device):
    lens = [(1, n) for n in keys] + [(2, 5)] * chunk
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(attention_decode, "SPLIT_KEYS", 64)
        monkeypatch.setattr(attention_decode, "PROGRAMS", programs)
        monkeypatch.setattr(attention_decode, "SEQUENCE_PARTS", 0)
        if max(keys) <= 64 - 16 * 2:  # two blocks more are in the tables
            AttentionCase(lens, device, heads=1, kv_heads=1).check()
            return
        found, slots = spans(lens, device, monkeypatch, heads=1, kv_heads=1)
    end = 0
    for first, parts in found:
        assert first == end
        end += parts
    assert end <= slots <= len(keys) + programs


def test_what_cannot_be_served_is_an_error(device):
    case = AttentionCase([(1, 9)], device)
    case.batch = replace(case.batch, plan=None)
    with pytest.raises(ValueError, match="plan"):
        fused.paged_attention(case.query, case.kv, case.batch, 0, case.sinks, 0.1)
    case = AttentionCase([(1, 9)], device, block_size=8)
    with pytest.raises(ValueError, match="block_size=8"):
        fused.paged_attention(case.query, case.kv, case.batch, 0, case.sinks, 0.1)
    case = AttentionCase([(1, 9)], device)
    case.query = case.query.transpose(1, 2).contiguous().transpose(1, 2)
    with pytest.raises(ValueError, match="contiguous"):
        case.found()


def test_without_a_plan_the_reference_serves(device):
    case = AttentionCase([(1, 9), (3, 20)], device)
    planless = replace(case.batch, plan=None)
    with force(Implementation.TRITON):
        found = paged_attention(case.query, case.kv, planless, 0, case.sinks, case.scale)
    assert torch.equal(found, case.found(Implementation.REFERENCE))


GPT_OSS = {"heads": 64, "kv_heads": 8, "dim": 64, "block_size": 128}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize(
    "lens",
    [
        [(1, 131072), (1, 1), (1, 8191), (1, 8193)],
        [(1, 100 + 977 * i) for i in range(32)],
        [(1, 131072)] + [(1, 1024)] * 63,
        [(1, 1024)] * 90 + [(1, 60000)] + [(1, 5)] * 90 + [(33, 33)],
        [(4096, 4096), (1, 4000)],
        [(100, 131072), (1, 50000), (2048, 20000)],
        [(100, 32768)],
        [(8192, 8192)],
    ],
    ids=[
        "131072 keys",
        "decode",
        "uneven",
        "uneven mix",
        "prompt",
        "end of a long prompt",
        "turn",
        "8192 tokens",
    ],
)
def test_full_size(lens, window, device):
    case = AttentionCase(lens, device, window=window, **GPT_OSS)
    first = case.check()
    for _ in range(3):
        assert torch.equal(case.found(), first)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_cuda_graph_serves_other_lengths(device):
    """Captured with one set of lengths, replayed with another: nothing was read on the host."""
    case = AttentionCase([(1, 3000 + i) for i in range(8)], device, **GPT_OSS)
    case.found()
    graph = torch.cuda.CUDAGraph()
    lengths = case.batch.kv_len.clone()
    case.batch.kv_len.fill_(1)
    with torch.cuda.graph(graph):
        out = case.found()
    case.batch.kv_len.copy_(lengths)
    graph.replay()
    error = (out.double() - case.truth()).abs().max()
    assert error <= ATTENTION_TOLERANCE.bfloat16 * case.truth().abs().max()

"""What the adapter asks of FlashAttention-3, with the library faked by a loop over queries."""

import itertools
import sys
from types import ModuleType

import pytest
import torch

from rose.kernels import attention, fa3
from rose.kernels.dispatch import Implementation
from rose.kernels.reference_attention import ATTENTION_TOLERANCE


def fake(
    q,
    k_cache,
    v_cache,
    *,
    cache_seqlens,
    page_table,
    cu_seqlens_q,
    max_seqlen_q,
    softmax_scale,
    causal,
    window_size,
    num_splits,
    sinks,
):
    """The documented meaning of flash_attn_with_kvcache's arguments, in a loop over queries."""
    assert causal
    assert sinks.dtype == torch.bfloat16
    assert cache_seqlens.dtype == page_table.dtype == cu_seqlens_q.dtype == torch.int32
    assert num_splits == (0 if window_size == (-1, -1) else 1)
    left, right = window_size
    size = k_cache.shape[1]
    out = torch.full_like(q, torch.nan)
    starts = cu_seqlens_q.tolist()
    assert max_seqlen_q == max(end - begin for begin, end in itertools.pairwise(starts))
    for sequence, length in enumerate(cache_seqlens.tolist()):
        begin, end = starts[sequence : sequence + 2]
        for row in range(begin, end):
            position = length - end + row
            low = 0 if left < 0 else max(0, position - left)
            high = min(position, position + right if right >= 0 else position)
            at = torch.arange(low, high + 1)
            page = page_table[sequence, at // size].long()
            keys, values = (x[page, at % size].float() for x in (k_cache, v_cache))
            shared = q.shape[1] // keys.shape[1]
            keys, values = (x.repeat_interleave(shared, 1) for x in (keys, values))
            scores = torch.einsum("hd,khd->hk", q[row].float(), keys) * softmax_scale
            weights = torch.cat((scores, sinks.float()[:, None]), 1).softmax(1)[:, :-1]
            out[row] = torch.einsum("hk,khd->hd", weights, values)
    return out


LENS = {
    "chunks": [(20, 33), (3, 40)],
    "rows first": [(1, 9), (1, 5), (20, 33)],
    "rows between and behind": [(5, 5), (1, 9), (20, 33), (1, 40)],
}


def parted(query, kv, batch, group, *, chunks):
    return Implementation.FA3 if chunks else Implementation.TRITON


@pytest.fixture(autouse=True)
def library(monkeypatch):
    module = ModuleType("flash_attn_interface")
    module.flash_attn_with_kvcache = fake
    monkeypatch.setitem(sys.modules, "flash_attn_interface", module)


@pytest.mark.parametrize("window", [None, 1, 5, 40])
def test_asks_for_what_is_wanted(window):
    from tests.kernels.fused.attention_cases import AttentionCase

    lens = [(1, 9), (20, 33), (1, 40)]
    case = AttentionCase(lens, torch.device("cpu"), window=window, poison_pages=False)
    case.sinks = case.sinks.bfloat16().float()
    found = fa3.paged_attention(case.query, case.kv, case.batch, 0, case.sinks, case.scale)
    truth = case.truth()
    assert (found.double() - truth).abs().max() <= ATTENTION_TOLERANCE.bfloat16 * truth.abs().max()


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("lens", LENS.values(), ids=LENS.keys())
def test_parts_chunks_from_decode_rows(lens, apart, monkeypatch):
    """Chunks by FA3, decode rows by Triton, which also writes those that FA3 served in between."""
    pytest.importorskip("triton", reason="Triton has no build for this platform")
    from rose.kernels.fused import attention_decode
    from tests.kernels.fused.attention_cases import AttentionCase

    decoded = []
    attend = attention_decode.attend
    monkeypatch.setattr(attention, "DECODE_APART", apart)
    monkeypatch.setattr(attention, "_chosen", parted)
    monkeypatch.setattr(
        attention_decode, "attend", lambda *args: (decoded.append(args), attend(*args))
    )
    case = AttentionCase(lens, torch.device("cpu"), poison_pages=False)
    case.sinks = case.sinks.bfloat16().float()
    case.check()
    assert bool(decoded) == (apart and len(case.batch.plan.decode_sequences) > 0)

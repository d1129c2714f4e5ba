"""What the adapter asks of FlashAttention-3, with the library faked by a loop over queries."""

import itertools
import sys
from types import ModuleType

import pytest
import torch

from rose.kernels import fa3
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
    out = torch.empty_like(q)
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


@pytest.mark.parametrize("window", [None, 1, 5, 40])
def test_asks_for_what_is_wanted(window, monkeypatch):
    from tests.kernels.fused.attention_cases import AttentionCase

    module = ModuleType("flash_attn_interface")
    module.flash_attn_with_kvcache = fake
    monkeypatch.setitem(sys.modules, "flash_attn_interface", module)
    lens = [(1, 9), (20, 33), (1, 40)]
    case = AttentionCase(lens, torch.device("cpu"), window=window, poison_pages=False)
    case.sinks = case.sinks.bfloat16().float()
    found = fa3.paged_attention(case.query, case.kv, case.batch, 0, case.sinks, case.scale)
    truth = case.truth()
    assert (found.double() - truth).abs().max() <= ATTENTION_TOLERANCE.bfloat16 * truth.abs().max()

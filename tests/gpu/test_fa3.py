"""FlashAttention-3 against the float64 truth and beside our own kernels, on a GPU."""

from functools import partial
from importlib.util import find_spec

import pytest
import torch

from rose.kernels.attention import paged_attention
from rose.kernels.dispatch import Implementation, Shape, choose
from rose.kernels.reference_attention import ATTENTION_TOLERANCE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(find_spec("flash_attn_interface") is None, reason="needs tokenspeed-fa3"),
]

DEVICE = torch.device("cuda")
LENS = {
    "one token": [(1, 1)],
    "decode": [(1, n) for n in (1, 127, 128, 129, 255, 256, 257, 8191, 8192)],
    "long": [(1, 131072), (100, 131072)],
    "prompt": [(n, n) for n in (2, 127, 128, 129, 1000)],
    "mix": [(1, 7), (300, 300), (1, 5000), (33, 4000), (1, 1)],
    "two tokens each": [(2, 2), (2, 129), (2, 3000)],
}


def gpt_oss(lens, window=None):
    from tests.kernels.fused.attention_cases import AttentionCase

    return AttentionCase(
        lens,
        DEVICE,
        heads=64,
        kv_heads=8,
        dim=64,
        block_size=128,
        window=window,
        # FA3 reads whole pages.
        poison_pages=False,
    )


def test_the_table_prefers_it_for_chunks_in_full_layers():
    query = torch.empty(1, 64, 64, dtype=torch.bfloat16, device=DEVICE)
    assert choose("attention", query, Shape(64, 128, chunks=True)) is Implementation.FA3
    assert choose("attention", query, Shape(64, 128)) is Implementation.TRITON
    assert choose("attention", query, Shape(64, 16, chunks=True)) is Implementation.TRITON


@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize("lens", [*LENS.values(), [(9, 9), (1, 500), (300, 700), (1, 9000)]])
def test_what_an_engine_calls(lens, window):
    """Chunks of full layers by FA3, other rows by Triton, in one step."""
    case = gpt_oss(lens, window)
    case.sinks = case.sinks.bfloat16()
    attend = partial(paged_attention, case.query, case.kv, case.batch, 0, case.sinks, case.scale)
    found, truth = attend(), case.truth()
    assert (found.double() - truth).abs().max() <= ATTENTION_TOLERANCE.bfloat16 * truth.abs().max()
    assert torch.equal(attend(), found)


@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize("lens", LENS.values(), ids=LENS.keys())
def test_batches(lens, window):
    case = gpt_oss(lens, window)
    case.sinks = case.sinks.bfloat16()
    found = case.check(Implementation.FA3)
    ours = case.check(Implementation.TRITON)
    print(f"FA3 and Triton differ by {(found - ours).abs().max().item():.1e}")


@pytest.mark.parametrize("window", [None, 128])
def test_the_sink_takes_its_share_once(window):
    """With scores of 0 and values of 1 the output is what the sink leaves: n / (n + e^sink)."""
    case = gpt_oss([(1, 9), (1, 3000)], window)
    case.sinks = case.sinks.bfloat16()
    case.query.zero_()
    case.kv.value.nan_to_num_(0).masked_fill_(case.kv.value != 0, 1)
    seen = torch.tensor([9.0, 3000.0], device=DEVICE).clamp(max=window or 3000)[:, None]
    share = seen / (seen + case.sinks.float().exp())
    found = case.found(Implementation.FA3).float()
    assert (found - share[:, :, None]).abs().max() <= 2**-8


@pytest.mark.parametrize("window", [None, 128])
def test_a_cuda_graph_serves_other_lengths(window):
    """Captured with a length of 1, replayed with others: nothing was read on the host."""
    case = gpt_oss([(1, 1 + 977 * i) for i in range(32)], window)
    case.sinks = case.sinks.bfloat16()
    case.found(Implementation.FA3)
    lengths = case.batch.kv_len.clone()
    case.batch.kv_len.fill_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = case.found(Implementation.FA3)
    case.batch.kv_len.copy_(lengths)
    graph.replay()
    truth = case.truth()
    assert (out.double() - truth).abs().max() <= ATTENTION_TOLERANCE.bfloat16 * truth.abs().max()

"""How many variants of the attention kernels an engine compiles: none in the midst of serving."""

from tests.kernels.fused.uninterpreted import run_python

SCRIPT = """
import torch
from tests.kernels.fused import launches_attention
from tools.sm90 import compile_only

def shifted(*shape):
    size = torch.Size(shape).numel()
    return torch.empty(size + shift, dtype=torch.int32)[shift:].view(shape)

launches_attention.int32 = shifted
variants = []
with compile_only() as launches:
    for shift in (0, 1):
        for extra in (0, 128, 1024):
            launches_attention.launch(decode=1, prefill=8192, context=8192 + extra)
            launches_attention.launch(decode=8, prefill=100, context=1024 + extra)
            launches_attention.launch(decode=7, context=8192 + extra)
        variants.append(len({(each.kernel, each.ptx) for each in launches}))
print(*variants)
"""


def test_lengths_and_places_of_metadata_need_no_new_variant():
    """A batch's metadata travels packed, so its parts lie at any multiple of four bytes."""
    aligned, all_places = map(int, run_python("-c", SCRIPT).split())
    assert aligned == all_places
    # Chunk: full, full split, sliding; decode, alone and beside a chunk: full, sliding; merge:
    # of decode rows alone, of those beside a chunk, of chunks.
    assert aligned == 10

"""How many variants of the small kernels an engine compiles: few, whatever a step's size."""

import json

from tests.kernels.fused.uninterpreted import run_python

SCRIPT = """
import json
import torch
from rose.kernels.dispatch import Implementation, force
from rose.kernels.paged_kv import LayerKV
from rose.kernels.rope_kv import rope_write_kv
from tests.kernels.fused import launches_small as small
from tools.sm90 import compile_only

def rotate(tokens, shift):
    qkv, cos = small._empty(tokens, 80 * 64), torch.empty(tokens, 32)
    kv = LayerKV(*(small._empty(2, 128, 8, 64) for _ in range(2)))
    slots = torch.empty(tokens + shift, dtype=torch.int64)[shift:]
    rope_write_kv(qkv, cos, cos, slots, kv, 64)

with compile_only() as launches, force(Implementation.TRITON):
    for tokens in (1, 7, 8, 16, 48, 65, 1000, 4097, 5000):
        small._norms(tokens)
        small._experts(tokens)
        if tokens <= 16:
            small._router(tokens)
        for shift in (0, 1):
            rotate(tokens, shift)
variants = {}
for each in launches:
    variants.setdefault(each.kernel, set()).add(each.ptx)
print(json.dumps({name: len(found) for name, found in variants.items()}))
"""


def test_sizes_and_places_of_a_batch_need_few_variants():
    assert json.loads(run_python("-c", SCRIPT)) == {
        "_rms_norm_kernel": 3,  # alone, with the residual, with quantisation
        "_quantize_rows_kernel": 1,
        "_rope_write_kv_kernel": 1,
        "_combine_kernel": 2,  # without and with the residual
        "_combine_norm_kernel": 1,
        "_swiglu_kernel": 1,
        # Of 32 and of 128 experts: all of up to 8 and 32 tokens, of 32 up to 64 as well; blocks of
        # 16 and 64.
        "_route_kernel": 5,
        "_route_rank_kernel": 4,
        "_route_place_kernel": 4,
        # Rows of one and of four tokens a program; 8 and 16 to route.
        "_router_kernel": 6,
    }

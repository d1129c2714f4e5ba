"""What a step must not do once an engine serves: wait for the GPU, or compile a kernel."""

import pytest
import torch
import triton

from rose.llm import LLM
from rose.protocol import SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

LENGTHS = (1, 2, 5, 17, 64, 65, 127, 129, 200, 511)


@pytest.fixture(params=["bf16", "fp8", "mxfp4"])
def llm(request, oracle_dir):
    with LLM(
        str(oracle_dir / "a"),
        device="cuda",
        quantization=request.param,
        num_blocks=(64, 64),
        max_num_seqs=16,
        chunk_size=300,
        max_batched_tokens=512,
    ) as llm:
        yield llm


WAYS = [
    {"temperature": 0},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 1},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 0.7, "presence_penalty": 0.5, "repetition_penalty": 1.1},
    {"temperature": 0, "min_tokens": 4, "logit_bias": {7: 1.0}},
    {"temperature": 0, "prompt_logprobs": 2},
]


def serve(llm, seed):
    """Prompts of many lengths, from one to ten at a time, each sampled in another way."""
    for first in range(len(LENGTHS)):
        some = [*LENGTHS[first:], *LENGTHS[:first]][: 1 + first]
        ways = [WAYS[(first + i) % len(WAYS)] for i in range(len(some))]
        params = [SamplingParams(max_tokens=12, ignore_eos=True, **way) for way in ways]
        prompts = [[(seed + 13 * n + i) % 1000 for i in range(n)] for n in some]
        for found in llm.generate(prompts, params):
            assert len(found.outputs[0].token_ids) == 12


def test_no_step_waits_for_the_gpu(llm):
    """Results are awaited by an event; any other wait is an error in this mode of torch."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        serve(llm, 1)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_nothing_is_compiled_once_an_engine_serves(llm, monkeypatch):
    compiled = []
    monkeypatch.setattr(
        triton.knobs.runtime, "jit_post_compile_hook", lambda **told: compiled.append(told["repr"])
    )
    serve(llm, 2)
    assert compiled == []

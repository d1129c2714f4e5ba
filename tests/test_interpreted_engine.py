"""The whole engine on fused kernels, in Triton's interpreter: small, but everything is wired.

On a GPU tests/gpu/test_fused_engine.py does the same at length.
"""

import math

import pytest
from safetensors.torch import load_file

from rose.kernels.dispatch import Implementation, force
from rose.llm import LLM
from rose.protocol import SamplingParams
from tests.worker.test_cuda_graph import with_graphs

pytest.importorskip("triton", reason="Triton has no build for this platform")

RELATIVE_ERROR = {"bf16": 6e-2, "mxfp4": 6e-2, "fp8": 9e-2}


def start(folder, quantization):
    return LLM(
        str(folder),
        device="cpu",
        quantization=quantization,
        num_blocks=(16, 40),
        chunk_size=12,
        max_batched_tokens=16,
        max_num_seqs=4,
    )


SHAPE = {
    "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "hidden": 96, "inter": 64,
    "experts": 4, "topk": 2, "window": 8, "prompt": 20, "vocab": 300, "seed": 5,
}  # fmt: skip


@pytest.mark.parametrize("quantization", ["bf16", "fp8", "mxfp4"])
def test_fused_kernels_give_the_oracles_logits(make_checkpoint, quantization):
    folder = make_checkpoint(**SHAPE)
    reference = load_file(folder / "reference.safetensors")
    prompt, truth = reference["prompt"].tolist(), reference["logits"]
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, logprobs=1)
    with force(Implementation.TRITON), start(folder, quantization) as llm:
        logits = llm.score(prompt)
        with_graphs(llm, [2])
        results = llm.generate([prompt, prompt[:9]], params)
    error = ((logits - truth).norm() / truth.norm()).item()
    assert error < RELATIVE_ERROR[quantization]
    with start(folder, quantization) as llm:
        expected = llm.generate([prompt, prompt[:9]], params)
    for ours, theirs in zip(results, expected, strict=True):
        one, other = ours.outputs[0].logprobs, theirs.outputs[0].logprobs
        assert one[0].top[0][1] == pytest.approx(other[0].top[0][1], abs=0.1)
        assert all(math.isfinite(each.logprob) for each in one)

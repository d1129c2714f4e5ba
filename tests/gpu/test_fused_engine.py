"""The fused kernels in the engine on a GPU: every way to run a prompt gives the same to rounding.

Ids must be equal wherever the two best logits stand clearly apart; where they do not, rounding may
choose, and what follows is another text.
"""

from functools import cache

import pytest
import torch
from safetensors.torch import load_file

from rose.llm import LLM
from rose.protocol import SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

SCHEMES = ["bf16", "fp8", "mxfp4"]
RELATIVE_ERROR = {"bf16": 6e-2, "mxfp4": 6e-2, "fp8": 9e-2}
LOGPROB_ERROR = {"bf16": 0.15, "mxfp4": 0.15, "fp8": 0.25}
"""Of models with logits of about 1 in bfloat16: two runs may differ by some roundings, of which
each may take an FP8 activation to its neighbour, up to an eighth away."""

OUTPUT = 24

TIGHT = (44, 96)
"""Blocks of 16 slots, too few for all prompts and their outputs at once."""


def start(folder, quantization, **options):
    defaults = {"num_blocks": (64, 64), "chunk_size": 512, "max_batched_tokens": 512}
    return LLM(
        str(folder),
        device="cuda",
        quantization=quantization,
        **{**defaults, "max_num_seqs": 16, **options},
    )


def greedy(llm, prompts):
    params = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True, logprobs=2)
    return [result.outputs[0] for result in llm.generate(prompts, params)]


@cache
def alone(folder, quantization, prompts):
    """What each prompt gets by itself, with graphs: what all other ways are held against."""
    with start(folder, quantization) as llm:
        return [greedy(llm, [list(each)])[0] for each in prompts]


def same_to_rounding(found, expected, quantization):
    """The length up to which the two are the same text; fails if they part for no good reason."""
    error = LOGPROB_ERROR[quantization]
    for i, (ours, theirs) in enumerate(zip(found.logprobs, expected.logprobs, strict=True)):
        if ours.token_id == theirs.token_id:
            assert abs(ours.logprob - theirs.logprob) < error, f"token {i}"
            continue
        (_, best), (_, second) = theirs.top[:2]
        assert best - second < error, f"token {i}: {best} against {second}"
        return i
    return len(found.logprobs)


@pytest.fixture(scope="module", params=["a", "ragged"])
def oracle(request, oracle_dir):
    folder = oracle_dir / request.param
    reference = load_file(folder / "reference.safetensors")
    return folder, reference["prompt"].tolist(), reference["logits"]


@pytest.mark.parametrize("kernels", ["auto", "triton", "reference"])
@pytest.mark.parametrize("quantization", SCHEMES)
def test_logits_of_the_oracles(oracle, quantization, kernels):
    folder, prompt, truth = oracle
    with start(folder, quantization, kernels=kernels) as llm:
        logits = llm.score(prompt).cpu()
    error = ((logits - truth).norm() / truth.norm()).item()
    same = (logits.argmax(-1) == truth.argmax(-1)).float().mean().item()
    print(f"{folder.name} {quantization} {kernels}: relative error {error:.2e}, best {same:.3f}")
    assert error < RELATIVE_ERROR[quantization]


@pytest.mark.parametrize("quantization", SCHEMES)
@pytest.mark.parametrize(
    "options",
    [
        {"cuda_graphs": False},
        {"kernels": "triton"},
        {"kernels": "reference"},
        {"kernels": "triton", "cuda_graphs": False},
        {"one_ahead": False},
        {"chunk_size": 33, "max_batched_tokens": 40},
        {"block_size": 16, "num_blocks": (512, 512)},
        {"block_size": 16, "num_blocks": TIGHT, "chunk_size": 128, "max_batched_tokens": 128},
        {"prefix_cache": False},
    ],
    ids=lambda options: " ".join(f"{k}={v}" for k, v in options.items()),
)
def test_every_way_gives_the_same(oracle, quantization, options):
    """Mixed, chunked, preempted."""
    folder, prompt, _ = oracle
    prompts = [prompt[:n] for n in (1, 3, 16, 100, 127, 128, 129, len(prompt))]
    expected = alone(folder, quantization, tuple(map(tuple, prompts)))
    with start(folder, quantization, **options) as llm:
        together = greedy(llm, prompts)
        again = greedy(llm, prompts)  # the prefix cache holds what these begin with
        preempted = llm.stats.preemptions
    lengths = [
        same_to_rounding(found, wanted, quantization)
        for run in (together, again)
        for found, wanted in zip(run, expected, strict=True)
    ]
    print(f"{folder.name} {quantization} {options}: {sum(lengths) / len(lengths):.1f} of {OUTPUT} "
          f"tokens before rounding chose, {preempted} preemptions")  # fmt: skip
    if options.get("num_blocks") == TIGHT:
        assert preempted > 0


@pytest.mark.parametrize("quantization", SCHEMES)
def test_the_same_run_twice_is_the_same_to_the_bit(oracle, quantization):
    folder, prompt, _ = oracle
    params = SamplingParams(temperature=1, seed=7, max_tokens=OUTPUT, ignore_eos=True, logprobs=2)
    runs = []
    for _ in range(2):
        with start(folder, quantization) as llm:
            runs.append([r.outputs[0] for r in llm.generate([prompt, prompt[:50]], params)])
    assert [o.token_ids for o in runs[0]] == [o.token_ids for o in runs[1]]
    assert [o.logprobs for o in runs[0]] == [o.logprobs for o in runs[1]]

"""Whole engine against the logits that Hugging Face transformers computes for the same weights."""

import pytest
import torch
from safetensors.torch import load_file

from rose.llm import LLM
from rose.protocol import SamplingParams

# How far rounding moves a random model: see the oracle's README. The relative error of the
# logits, and the share of positions with the same best token.
TOLERANCES = {
    ("bf16", "bfloat16"): (6e-2, 0.90),
    ("mxfp4", "bfloat16"): (6e-2, 0.90),
    ("fp8", "bfloat16"): (9e-2, 0.85),
}


def start(folder, **options):
    # Chunks, blocks and window border each other nowhere.
    defaults = {
        "chunk_size": 77,
        "max_batched_tokens": 128,
        "num_blocks": (64, 40),
        "device": "cpu",
    }
    return LLM(str(folder), **{**defaults, **options})


def check_float32(folder, **options):
    reference = load_file(folder / "reference.safetensors")
    prompt, greedy = reference["prompt"].tolist(), reference["greedy"].tolist()
    params = SamplingParams(temperature=0, max_tokens=len(greedy), ignore_eos=True)
    with start(folder, dtype="float32", **options) as llm:
        logits = llm.score(prompt)
        [result] = llm.generate([prompt], params)
    assert (logits - reference["logits"]).abs().max().item() < 2e-3
    assert result.token_ids == greedy


@pytest.mark.parametrize("name", ["a", "ragged"])
@pytest.mark.parametrize("quantization", ["bf16", "mxfp4"])
def test_float32_gives_the_oracles_logits_and_greedy_ids(oracle_dir, name, quantization):
    check_float32(oracle_dir / name, quantization=quantization)


@pytest.mark.parametrize("name", ["a", "ragged"])
@pytest.mark.parametrize(("quantization", "dtype"), TOLERANCES)
def test_rounded_logits_stay_within_tolerance(oracle_dir, name, quantization, dtype):
    reference = load_file(oracle_dir / name / "reference.safetensors")
    with start(oracle_dir / name, quantization=quantization, dtype=dtype) as llm:
        logits = llm.score(reference["prompt"].tolist())
    error, agreement = TOLERANCES[quantization, dtype]
    truth = reference["logits"]
    assert ((logits - truth).norm() / truth.norm()).item() < error
    assert (logits.argmax(-1) == truth.argmax(-1)).float().mean().item() >= agreement


@pytest.mark.parametrize("name", ["a", "ragged"])
def test_dense_layers_in_fp8_stay_within_their_own_rounding(oracle_dir, name):
    reference = load_file(oracle_dir / name / "reference.safetensors")
    options = {"quantization": "bf16", "dense_quantization": "fp8", "dtype": "float32"}
    with start(oracle_dir / name, **options) as llm:
        logits = llm.score(reference["prompt"].tolist())
    truth = reference["logits"]
    error = ((logits - truth).norm() / truth.norm()).item()
    assert 1e-3 < error < 9e-2, "rounded, and by no more than e4m3 does"


SHAPES = [
    {"layers": 3, "heads": 6, "kv_heads": 1, "head_dim": 32, "hidden": 96, "inter": 64,
     "experts": 5, "topk": 2, "window": 16, "prompt": 97, "vocab": 331, "seed": 11},
    {"layers": 5, "heads": 4, "kv_heads": 4, "head_dim": 64, "hidden": 160, "inter": 96,
     "experts": 12, "topk": 4, "window": 33, "prompt": 130, "vocab": 500, "seed": 12},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_other_shapes_match_their_oracles(make_checkpoint, shape, block_size):
    folder = make_checkpoint(**SHAPES[shape])
    # Chunks of the window's own length end where it does.
    chunk = SHAPES[shape]["window"]
    check_float32(folder, block_size=block_size, chunk_size=chunk, num_blocks=(200, 200))


def test_prompt_logprobs_are_those_of_the_oracle(oracle_dir):
    reference = load_file(oracle_dir / "a" / "reference.safetensors")
    prompt = reference["prompt"].tolist()
    truth = torch.log_softmax(reference["logits"].double(), dim=-1)
    params = SamplingParams(
        temperature=0, max_tokens=3, ignore_eos=True, prompt_logprobs=2, logprobs=1
    )
    with start(oracle_dir / "a", dtype="float32") as llm:
        results = llm.generate([prompt, prompt], params)
    for result in results:
        check_prompt_logprobs(result.prompt_logprobs, truth, prompt)
        best = result.logprobs[0]
        assert best.token_id == reference["greedy"][0].item()
        assert best.rank == 1
        assert best.top == [(best.token_id, best.logprob)]
        assert best.logprob == pytest.approx(truth[-1].max().item(), abs=1e-4)


def check_prompt_logprobs(entries, truth, prompt):
    assert len(entries) == len(prompt) - 1
    for row, token, entry in zip(truth, prompt[1:], entries, strict=False):
        assert entry.token_id == token
        assert entry.logprob == pytest.approx(row[token].item(), abs=1e-4)
        # Rounding may swap tokens that are all but equally likely.
        ahead = [(row > row[token] + slack).sum().item() for slack in (1e-5, -1e-5)]
        assert ahead[0] + 1 <= entry.rank <= ahead[1]
        assert [t for t, _ in entry.top] == row.topk(2).indices.tolist()
        assert [v for _, v in entry.top] == pytest.approx(row.topk(2).values.tolist(), abs=1e-4)

"""The engine on a GPU: the oracles, the CPU's own results, and models at full size."""

import json

import pytest
import torch
from safetensors.torch import load_file

from rose.llm import LLM
from rose.protocol import SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

TOLERANCES = [
    ("bf16", "float32", 1e-4, 0.99),
    ("mxfp4", "float32", 1e-4, 0.99),
    ("bf16", "bfloat16", 6e-2, 0.90),
    ("mxfp4", "bfloat16", 6e-2, 0.90),
    ("fp8", "bfloat16", 9e-2, 0.85),
]


def start(folder, device="cuda", **options):
    defaults = {"num_blocks": (128, 96), "chunk_size": 77, "max_batched_tokens": 160}
    return LLM(str(folder), device=device, **{**defaults, **options})


@pytest.mark.parametrize("name", ["a", "ragged"])
@pytest.mark.parametrize(("quantization", "dtype", "error", "agreement"), TOLERANCES)
def test_oracle_logits(oracle_dir, name, quantization, dtype, error, agreement):
    reference = load_file(oracle_dir / name / "reference.safetensors")
    truth = reference["logits"]
    with start(oracle_dir / name, quantization=quantization, dtype=dtype) as llm:
        logits = llm.score(reference["prompt"].tolist()).cpu()
    relative = ((logits - truth).norm() / truth.norm()).item()
    same = (logits.argmax(-1) == truth.argmax(-1)).float().mean().item()
    print(f"{name} {quantization} {dtype}: relative error {relative:.2e}, same best {same:.3f}")
    assert relative < error
    assert same >= agreement


@pytest.mark.parametrize("name", ["a", "ragged"])
def test_greedy_ids_one_ahead_in_company_with_a_tiny_cache(oracle_dir, name):
    reference = load_file(oracle_dir / name / "reference.safetensors")
    prompt, greedy = reference["prompt"].tolist(), reference["greedy"].tolist()
    prompts = [prompt, prompt[:40], prompt, prompt[7:90], prompt]
    params = SamplingParams(temperature=0, max_tokens=len(greedy), ignore_eos=True)
    blocks = (40, 40)  # barely more than one prompt: preemption
    with start(oracle_dir / name, dtype="float32", num_blocks=blocks) as llm:
        results = llm.generate(prompts, params)
        preempted = llm.stats.preemptions
    assert [results[i].token_ids for i in (0, 2, 4)] == [greedy] * 3
    print(f"{name}: {preempted} preemptions")


def test_seeded_samples_are_the_cpus(oracle_dir):
    params = SamplingParams(
        temperature=0.8, top_k=50, top_p=0.9, min_p=0.01, seed=5, max_tokens=24, n=3,
        repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.1, logprobs=3,
        prompt_logprobs=2, ignore_eos=True,
    )  # fmt: skip
    found = {}
    for device in ("cpu", "cuda"):
        with start(oracle_dir / "a", device=device, dtype="float32") as llm:
            [found[device]] = llm.generate([list(range(3, 120))], params)
    cpu, cuda = found["cpu"], found["cuda"]
    assert [o.token_ids for o in cpu.outputs] == [o.token_ids for o in cuda.outputs]
    for ours, theirs in zip(cuda.outputs[0].logprobs, cpu.outputs[0].logprobs, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        assert ours.rank == theirs.rank
    for ours, theirs in zip(cuda.prompt_logprobs, cpu.prompt_logprobs, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)


@pytest.mark.parametrize(("layers", "experts"), [(24, 32), (36, 128)], ids=["20b", "120b"])
def test_dummy_weights_at_full_size(tmp_path, layers, experts):
    (tmp_path / "config.json").write_text(json.dumps(full_size(layers, experts)))
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=4, ignore_eos=True)
    prompts = [list(range(1000, 1300)), list(range(50))]
    with LLM(str(tmp_path), device="cuda", load_format="dummy", max_num_seqs=8) as llm:
        used = torch.cuda.mem_get_info()
        results = llm.generate(prompts, params)
        print(f"{llm.info.description}; {used[0] / 1e9:.1f} GB free after start")
    assert [len(r.token_ids) for r in results] == [4, 4]
    del llm
    torch.cuda.empty_cache()


def full_size(layers, experts):
    return {
        "architectures": ["GptOssForCausalLM"],
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": layers,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 201088,
        "num_local_experts": experts,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
        "max_position_embeddings": 131072,
        "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
        "swiglu_limit": 7.0,
        "eos_token_id": 200002,
        "quantization_config": {"quant_method": "mxfp4"},
    }

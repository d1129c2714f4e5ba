"""GptOss against transformers' GptOssForCausalLM: two implementations of one model."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from transformers import GptOssConfig, GptOssForCausalLM

from rose.config import FULL, ModelConfig
from rose.core.mapping import ParallelMapping
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LayerKV
from rose.kernels.quantize import dequantize_mxfp4, quantize_mxfp4
from rose.models.gpt_oss import GptOss
from rose.quant import quant_scheme

CPU = torch.device("cpu")
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}
S, F = "sliding_attention", "full_attention"


def shape(**changes):
    """A small model's config.json."""
    config = {
        "architectures": ["GptOssForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 50,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "layer_types": [S, F],
        "sliding_window": 8,
        "max_position_embeddings": 4096,
        "rope_parameters": YARN,
        "rms_norm_eps": 1e-5,
        "attention_bias": True,
        "eos_token_id": 2,
        "pad_token_id": 1,
    }
    return {**config, **changes}


SHAPES = {
    "plain": shape(),
    "one_kv_head": shape(num_key_value_heads=1, num_local_experts=3),
    "no_groups": shape(num_key_value_heads=4, num_experts_per_tok=1),
    "all_experts": shape(num_local_experts=2, num_experts_per_tok=2),
    "full_first": shape(layer_types=[F, S], sliding_window=1),
    "all_sliding": shape(layer_types=[S, S, S], num_hidden_layers=3, sliding_window=5),
    "all_full": shape(layer_types=[F, F], head_dim=32),
    "truncated_ramp": shape(rope_parameters={**YARN, "truncate": True, "factor": 4.0}),
    "plain_rope": shape(rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    "ragged": shape(hidden_size=72, intermediate_size=40, num_attention_heads=6),
    "no_attention_bias": shape(attention_bias=False),
}


def transformers_model(config: dict) -> GptOssForCausalLM:
    """A random model whose parts all matter: biases, sinks and norms are not at their defaults."""
    names = ("architectures",)
    options = {key: value for key, value in config.items() if key not in names}
    model = GptOssForCausalLM(GptOssConfig(**options)).float().eval()
    model.set_attn_implementation("eager")
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.data = 1 + 0.2 * noise
        elif "sinks" in name or "embed" in name:
            parameter.data = noise
        elif "bias" in name:
            parameter.data = 0.3 * noise
        elif "experts" in name:
            parameter.data = noise / math.sqrt(parameter.shape[-2])
        else:
            parameter.data = 1.5 * noise / math.sqrt(parameter.shape[-1])
    return model


def fill(model: GptOss, state: dict[str, Tensor]) -> None:
    """Place transformers' weights in Rose's module tree."""
    model.embed.weight.copy_(state["model.embed_tokens.weight"])
    model.head.weight.values.copy_(state["lm_head.weight"])
    model.norm.weight.copy_(state["model.norm.weight"])
    for index, layer in enumerate(model.layers):
        part = {
            name.removeprefix(f"model.layers.{index}."): value
            for name, value in state.items()
            if name.startswith(f"model.layers.{index}.")
        }
        attention = layer.attention
        weights = [part[f"self_attn.{p}_proj.weight"] for p in "qkv"]
        attention.qkv.weight.put((), torch.cat(weights))
        attention.output.weight.put((), part["self_attn.o_proj.weight"])
        if attention.qkv.bias is not None:
            biases = [part[f"self_attn.{p}_proj.bias"] for p in "qkv"]
            attention.qkv.bias.copy_(torch.cat(biases))
            attention.output.bias.copy_(part["self_attn.o_proj.bias"])
        attention.sinks.copy_(part["self_attn.sinks"])
        layer.attention_norm.weight.copy_(part["input_layernorm.weight"])
        layer.moe_norm.weight.copy_(part["post_attention_layernorm.weight"])
        moe = layer.moe
        moe.router.weight.copy_(part["mlp.router.weight"])
        moe.router.bias.copy_(part["mlp.router.bias"])
        for expert in range(model.config.num_experts):
            gate_up = part["mlp.experts.gate_up_proj"][expert].t()
            moe.gate_up.put((expert, 0), gate_up[0::2])
            moe.gate_up.put((expert, 1), gate_up[1::2])
            moe.down.put((expert, 0), part["mlp.experts.down_proj"][expert].t())
        bias = part["mlp.experts.gate_up_proj_bias"]
        moe.gate_up_bias.copy_(torch.cat((bias[:, 0::2], bias[:, 1::2]), dim=1))
        moe.down_bias.copy_(part["mlp.experts.down_proj_bias"])


@dataclass
class Runner:
    """Runs sequences by chunks over a cache whose unused slots hold NaN."""

    model: GptOss
    num_sequences: int
    longest: int
    block_size: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        config = self.model.config
        width = -(-self.longest // self.block_size)
        num_blocks = self.num_sequences * width + 3
        generator = torch.Generator().manual_seed(self.seed)
        self.tables = [
            torch.randperm(num_blocks, generator=generator)[: self.num_sequences * width]
            .view(self.num_sequences, width)
            .int()
            for _ in range(2)
        ]
        self.windows = (None, config.sliding_window)
        size = (num_blocks, self.block_size, config.num_kv_heads, config.head_dim)
        dtype = self.model.norm.weight.dtype
        self.kv = [
            LayerKV(
                torch.full(size, torch.nan, dtype=dtype), torch.full(size, torch.nan, dtype=dtype)
            )
            for _ in config.layer_types
        ]

    def group(self, index: int, work: list[tuple[int, int, list[int]]]) -> KVGroupBatch:
        tables, window = self.tables[index].clone(), self.windows[index]
        slots = []
        for sequence, start, ids in work:
            position = torch.arange(start, start + len(ids))
            block = tables[sequence].long()[position // self.block_size]
            slots.append(block * self.block_size + position % self.block_size)
            # What no query sees is garbage: blocks that left the window, and those not reached.
            if window is not None:
                tables[sequence, : max(0, start - window + 1) // self.block_size] = 2**30
            tables[sequence, (start + len(ids) - 1) // self.block_size + 1 :] = -(2**30)
        rows = torch.tensor([sequence for sequence, _, _ in work])
        return KVGroupBatch(torch.cat(slots), tables[rows], window)

    def step(self, work: list[tuple[int, int, list[int]]]) -> list[Tensor]:
        """Run (sequence, start, ids) together; the logits of each."""
        lens = [len(ids) for _, _, ids in work]
        kv_lens = [start + len(ids) for _, start, ids in work]
        batch = AttentionBatch(
            query_start=torch.tensor([0, *lens]).cumsum(0).int(),
            kv_len=torch.tensor(kv_lens, dtype=torch.int32),
            query_lens=lens,
            kv_lens=kv_lens,
            groups=tuple(self.group(index, work) for index in range(2)),
        )
        ids = torch.tensor([token for _, _, ids in work for token in ids])
        positions = torch.cat([torch.arange(s, s + len(ids)) for _, s, ids in work])
        hidden = self.model(ids, positions, batch, self.kv)
        assert hidden.shape == (len(ids), self.model.config.hidden_size)
        return list(self.model.logits(hidden).split(lens))

    def run(self, prompts: list[list[int]], chunks: list[int]) -> list[Tensor]:
        """All logits of each prompt; in step i each sequence runs chunks[i] tokens (cyclic)."""
        found: list[list[Tensor]] = [[] for _ in prompts]
        done = [0] * len(prompts)
        turn = 0
        while any(d < len(p) for d, p in zip(done, prompts, strict=True)):
            work = []
            for sequence, prompt in enumerate(prompts):
                count = chunks[(turn + sequence) % len(chunks)]
                ids = prompt[done[sequence] : done[sequence] + count]
                if ids:
                    work.append((sequence, done[sequence], ids))
                    done[sequence] += len(ids)
            for (sequence, _, _), logits in zip(work, self.step(work), strict=True):
                found[sequence].append(logits)
            turn += 1
        return [torch.cat(parts) for parts in found]


def rose_model(config: dict, reference: GptOssForCausalLM, scheme="bf16", dtype=torch.float32):
    model = GptOss(
        ModelConfig.from_dicts(config, {}, source="test"),
        scheme=quant_scheme(scheme),
        mapping=ParallelMapping(),
        dtype=dtype,
        device=CPU,
    )
    fill(model, reference.state_dict())
    return model


def prompts_of(lengths: list[int], vocabulary: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(vocabulary, (n,), generator=generator).tolist() for n in lengths]


def truth(reference: GptOssForCausalLM, prompts: list[list[int]]) -> list[Tensor]:
    with torch.no_grad():
        return [reference(torch.tensor([prompt])).logits[0] for prompt in prompts]


@pytest.mark.parametrize("name", SHAPES)
def test_matches_transformers_by_chunks(name):
    config = SHAPES[name]
    reference = transformers_model(config)
    prompts = prompts_of([1, 17, 40, 23], config["vocab_size"])
    runner = Runner(rose_model(config, reference), len(prompts), 40)
    for found, wanted in zip(
        runner.run(prompts, [7, 1, 1, 16]), truth(reference, prompts), strict=True
    ):
        assert wanted.std() > 0.3  # or agreement would say little
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


@pytest.fixture(scope="module")
def plain():
    config = SHAPES["plain"]
    reference = transformers_model(config)
    return rose_model(config, reference), reference


@pytest.mark.parametrize("chunks", [[60], [1], [8], [3, 9]])
@pytest.mark.parametrize("block_size", [1, 4, 7, 64])
def test_chunks_and_blocks_do_not_matter(plain, chunks, block_size):
    model, _ = plain
    prompts = prompts_of([60, 9], 50)
    whole = [Runner(model, 1, 60).run([prompt], [60])[0] for prompt in prompts]
    found = Runner(model, 2, 60, block_size=block_size, seed=block_size).run(prompts, chunks)
    for a, b in zip(found, whole, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=0)


@pytest.fixture(scope="module")
def representable():
    """A model whose experts MXFP4 holds exactly, as the published checkpoints' are."""
    reference = transformers_model(SHAPES["plain"])
    for layer in reference.model.layers:
        for name in ("gate_up_proj", "down_proj"):
            weight = getattr(layer.mlp.experts, name)
            codes = quantize_mxfp4(weight.data.transpose(1, 2))
            weight.data = dequantize_mxfp4(*codes, torch.float32).transpose(1, 2).contiguous()
    return reference


FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16


@pytest.mark.parametrize(
    ("scheme", "dtype", "bound"),
    [
        ("bf16", FLOAT32, 1e-5),
        ("mxfp4", FLOAT32, 1e-5),
        ("fp8", FLOAT32, 9e-2),
        ("bf16", BFLOAT16, 6e-2),
        ("mxfp4", BFLOAT16, 6e-2),
        ("fp8", BFLOAT16, 9e-2),
    ],
)
def test_every_scheme_stays_near_transformers(representable, scheme, dtype, bound):
    prompts = prompts_of([50], 50)
    model = rose_model(SHAPES["plain"], representable, scheme, dtype)
    found = Runner(model, 1, 50).run(prompts, [16, 1])[0]
    wanted = truth(representable, prompts)[0]
    assert (found - wanted).norm() / wanted.norm() < bound


def test_mxfp4_and_bf16_storage_compute_the_same(representable):
    """The packed weights are exact in bfloat16, so only the storage differs."""
    prompts = prompts_of([30], 50)
    packed, plain = (
        Runner(rose_model(SHAPES["plain"], representable, scheme, BFLOAT16), 1, 30)
        for scheme in ("mxfp4", "bf16")
    )
    assert torch.equal(packed.run(prompts, [16, 1])[0], plain.run(prompts, [16, 1])[0])


def test_groups_follow_layer_types():
    config = ModelConfig.from_dicts(SHAPES["full_first"], {}, source="test")
    model = GptOss(
        config,
        scheme=quant_scheme("bf16"),
        mapping=ParallelMapping(),
        dtype=torch.float32,
        device=CPU,
    )
    assert [layer.attention.group == FULL for layer in model.layers] == [True, False]


def test_more_than_one_rank_is_refused():
    config = ModelConfig.from_dicts(SHAPES["plain"], {}, source="test")
    with pytest.raises(ValueError, match="one rank"):
        GptOss(
            config,
            scheme=quant_scheme("bf16"),
            mapping=ParallelMapping(tp=2),
            dtype=torch.float32,
            device=CPU,
        )

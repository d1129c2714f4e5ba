"""One random model written in every layout, with an MXFP4 codec that owes nothing to Rose's."""

import json
import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tools.make_tiny_checkpoint import Sizes, Weights, make_config

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])

RAGGED = Sizes(layers=2, hidden=288, intermediate=224, heads=2, kv_heads=1, experts=4, vocab=272)
SMALL = Sizes(layers=2, hidden=64, intermediate=96, heads=4, kv_heads=2, experts=4, vocab=272)

PREFIX = re.compile(r"model\.layers\.(\d+)\.")


def decode_mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    low, high = blocks & 15, blocks >> 4
    codes = torch.stack((low, high), dim=-1).flatten(-2).long()
    return (E2M1[codes] * torch.exp2(scales.double() - 127).unsqueeze(-1)).float().flatten(-2)


def random_tensors(sizes: Sizes) -> dict[str, Tensor]:
    """The published layout: Hugging Face names, MXFP4 experts."""
    return Weights(sizes).model()


def as_float(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same model saved in bf16: [experts, in, out]."""
    result = {}
    for name, value in tensors.items():
        if name.endswith("_blocks"):
            base = name.removesuffix("_blocks")
            matrix = decode_mxfp4(value, tensors[f"{base}_scales"])
            result[base] = matrix.mT.contiguous().to(torch.bfloat16)
        elif not name.endswith("_scales"):
            result[name] = value
    return result


def as_openai(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same bytes under OpenAI's names, with q, k and v in one tensor."""
    result = {
        "embedding.weight": tensors["model.embed_tokens.weight"],
        "norm.scale": tensors["model.norm.weight"],
        "unembedding.weight": tensors["lm_head.weight"],
    }
    layers = sorted({int(m.group(1)) for name in tensors if (m := PREFIX.match(name))})
    for i in layers:
        ours, theirs = f"model.layers.{i}", f"block.{i}"
        result[f"{theirs}.attn.norm.scale"] = tensors[f"{ours}.input_layernorm.weight"]
        result[f"{theirs}.mlp.norm.scale"] = tensors[f"{ours}.post_attention_layernorm.weight"]
        result[f"{theirs}.attn.sinks"] = tensors[f"{ours}.self_attn.sinks"]
        for kind in ("weight", "bias"):
            parts = [tensors[f"{ours}.self_attn.{p}_proj.{kind}"] for p in "qkv"]
            result[f"{theirs}.attn.qkv.{kind}"] = torch.cat(parts)
            result[f"{theirs}.attn.out.{kind}"] = tensors[f"{ours}.self_attn.o_proj.{kind}"]
            result[f"{theirs}.mlp.gate.{kind}"] = tensors[f"{ours}.mlp.router.{kind}"]
        for number, name in ((1, "gate_up_proj"), (2, "down_proj")):
            source = f"{ours}.mlp.experts.{name}"
            result[f"{theirs}.mlp.mlp{number}_weight.blocks"] = tensors[f"{source}_blocks"]
            result[f"{theirs}.mlp.mlp{number}_weight.scales"] = tensors[f"{source}_scales"]
            result[f"{theirs}.mlp.mlp{number}_bias"] = tensors[f"{source}_bias"]
    return result


def openai_config(sizes: Sizes) -> dict[str, object]:
    """config.json as OpenAI's own checkpoints have it."""
    return {
        "num_hidden_layers": sizes.layers,
        "num_experts": sizes.experts,
        "experts_per_token": 4,
        "vocab_size": sizes.vocab,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "swiglu_limit": 7.0,
        "head_dim": 64,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "sliding_window": 128,
        "initial_context_length": 4096,
        "rope_theta": 150000,
        "rope_scaling_factor": 32.0,
        "rope_ntk_alpha": 1,
        "rope_ntk_beta": 32,
    }


def write_folder(
    folder: Path, tensors: dict[str, Tensor], config: dict[str, object], *, shards: int = 1
) -> Path:
    """A checkpoint; over several shards, neighbours in name never lie together."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map = {}
    for number in range(shards):
        names = sorted(tensors)[number::shards]
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        save_file({name: tensors[name] for name in names}, folder / file)
        weight_map |= dict.fromkeys(names, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_published(folder: Path, sizes: Sizes, *, shards: int = 1) -> Path:
    return write_folder(folder, random_tensors(sizes), make_config(sizes), shards=shards)


def write_float(folder: Path, sizes: Sizes, *, shards: int = 1) -> Path:
    config = {k: v for k, v in make_config(sizes).items() if k != "quantization_config"}
    return write_folder(folder, as_float(random_tensors(sizes)), config, shards=shards)


def write_openai(folder: Path, sizes: Sizes, *, shards: int = 1) -> Path:
    return write_folder(
        folder, as_openai(random_tensors(sizes)), openai_config(sizes), shards=shards
    )

"""Write a small random gpt-oss checkpoint in the published layout, with a byte-level tokenizer.

    python tools/make_tiny_checkpoint.py OUT [--seed N --layers N --hidden N ...]

It stands in for a real model where only the machinery matters: `make serve`, server tests. The
experts are MXFP4, everything else bfloat16, as in the published files. The tokenizer has one token
a byte and Harmony's special tokens by their true names; other ids are never text.
"""

import argparse
import json
import math
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

BYTES = 256
SPECIAL_TOKENS = (
    "<|startoftext|>",
    "<|endoftext|>",
    "<|return|>",
    "<|constrain|>",
    "<|channel|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|call|>",
)
TOKEN_IDS = {token: BYTES + i for i, token in enumerate(SPECIAL_TOKENS)}
MXFP4_GROUP = 32
CODE_RMS = math.sqrt(8.5625)
"""Root mean square of the eight E2M1 magnitudes, for codes drawn uniformly."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model, and the seed of its weights. A head is 64 wide."""

    layers: int = 4
    hidden: int = 64
    intermediate: int = 64
    heads: int = 4
    kv_heads: int = 2
    experts: int = 8
    vocab: int = 1280
    seed: int = 0


def make_tokenizer() -> Tokenizer:
    """One token a byte, no merges, and the special tokens behind them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_TOKENS])
    return tokenizer


def make_config(sizes: Sizes) -> dict[str, object]:
    """The config.json of a model of these sizes."""
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "attention_bias": True,
        "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": 64,
        "vocab_size": sizes.vocab,
        "num_local_experts": sizes.experts,
        "num_experts_per_tok": 4,
        "experts_per_token": 4,
        "sliding_window": 128,
        "layer_types": [
            "full_attention" if i % 2 else "sliding_attention" for i in range(sizes.layers)
        ],
        "max_position_embeddings": 131072,
        "initial_context_length": 4096,
        "rope_theta": 150000,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "eos_token_id": TOKEN_IDS["<|return|>"],
        "pad_token_id": TOKEN_IDS["<|endoftext|>"],
        "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        },
    }


class Weights:
    """Random tensors of one model, drawn from one generator."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.generator = torch.Generator().manual_seed(sizes.seed)
        self.tensors: dict[str, torch.Tensor] = {}

    def normal(self, name: str, *shape: int, std: float, mean: float = 0.0) -> None:
        """A bfloat16 tensor."""
        value = torch.randn(shape, generator=self.generator) * std + mean
        self.tensors[name] = value.to(torch.bfloat16)

    def linear(self, name: str, out_features: int, in_features: int) -> None:
        """A weight that keeps the size of what it multiplies, and a bias."""
        self.normal(f"{name}.weight", out_features, in_features, std=in_features**-0.5)
        self.normal(f"{name}.bias", out_features, std=0.1)

    def experts(self, name: str, out_features: int, in_features: int) -> None:
        """Uniform MXFP4 codes under scales of about in_features ** -0.5, and a bias."""
        shape = (self.sizes.experts, out_features, in_features // MXFP4_GROUP)
        exponent = 127 + round(math.log2(in_features**-0.5 / CODE_RMS))
        scales = torch.randint(exponent - 1, exponent + 2, shape, generator=self.generator)
        blocks = torch.randint(0, 256, (*shape, MXFP4_GROUP // 2), generator=self.generator)
        self.tensors[f"{name}_blocks"] = blocks.to(torch.uint8)
        self.tensors[f"{name}_scales"] = scales.to(torch.uint8)
        self.normal(f"{name}_bias", self.sizes.experts, out_features, std=0.1)

    def layer(self, prefix: str) -> None:
        """One transformer block."""
        s = self.sizes
        self.normal(f"{prefix}.input_layernorm.weight", s.hidden, std=0.1, mean=1.0)
        self.normal(f"{prefix}.post_attention_layernorm.weight", s.hidden, std=0.1, mean=1.0)
        self.normal(f"{prefix}.self_attn.sinks", s.heads, std=1.0)
        self.linear(f"{prefix}.self_attn.q_proj", s.heads * 64, s.hidden)
        self.linear(f"{prefix}.self_attn.k_proj", s.kv_heads * 64, s.hidden)
        self.linear(f"{prefix}.self_attn.v_proj", s.kv_heads * 64, s.hidden)
        self.linear(f"{prefix}.self_attn.o_proj", s.hidden, s.heads * 64)
        self.linear(f"{prefix}.mlp.router", s.experts, s.hidden)
        self.experts(f"{prefix}.mlp.experts.gate_up_proj", 2 * s.intermediate, s.hidden)
        self.experts(f"{prefix}.mlp.experts.down_proj", s.hidden, s.intermediate)

    def model(self) -> dict[str, torch.Tensor]:
        """Every tensor of the checkpoint."""
        s = self.sizes
        self.normal("model.embed_tokens.weight", s.vocab, s.hidden, std=1.0)
        for i in range(s.layers):
            self.layer(f"model.layers.{i}")
        self.normal("model.norm.weight", s.hidden, std=0.1, mean=1.0)
        self.normal("lm_head.weight", s.vocab, s.hidden, std=3 * s.hidden**-0.5)
        # A random model should write text: ids that are none keep logit 0 and lose to most bytes.
        ids = torch.arange(s.vocab)
        silent = (ids >= BYTES) & (ids != TOKEN_IDS["<|return|>"])
        self.tensors["lm_head.weight"][silent] = 0
        return self.tensors


def write_json(path: Path, value: object) -> None:
    """Write indented JSON."""
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_checkpoint(out: Path, sizes: Sizes) -> None:
    """Write all files; config.json last, so that a folder that has one is complete."""
    out.mkdir(parents=True, exist_ok=True)
    save_file(Weights(sizes).model(), out / "model.safetensors", metadata={"format": "pt"})
    make_tokenizer().save(str(out / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|startoftext|>",
        "eos_token": "<|return|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 131072,
    }
    write_json(out / "tokenizer_config.json", tokenizer_config)
    stops = [TOKEN_IDS[t] for t in ("<|return|>", "<|endoftext|>", "<|call|>")]
    generation = {
        "bos_token_id": TOKEN_IDS["<|startoftext|>"],
        "eos_token_id": stops,
        "pad_token_id": TOKEN_IDS["<|endoftext|>"],
        "do_sample": True,
    }
    write_json(out / "generation_config.json", generation)
    write_json(out / "config.json", make_config(sizes))


def main() -> None:
    """Parse the sizes and write the checkpoint."""
    parser = argparse.ArgumentParser(description="Write a small random gpt-oss checkpoint.")
    parser.add_argument("out", type=Path)
    for field in fields(Sizes):
        flag = f"--{field.name.replace('_', '-')}"
        parser.add_argument(flag, type=int, default=field.default)
    args = parser.parse_args()
    if args.hidden % MXFP4_GROUP or args.intermediate % MXFP4_GROUP:
        parser.error(f"--hidden and --intermediate must be multiples of {MXFP4_GROUP}")
    if args.vocab < BYTES + len(SPECIAL_TOKENS):
        parser.error(f"--vocab must be at least {BYTES + len(SPECIAL_TOKENS)}")
    if args.experts < 4:
        parser.error("--experts must be at least 4: each token goes to four")
    if args.heads % args.kv_heads:
        parser.error("--heads must be a multiple of --kv-heads")
    sizes = Sizes(**{field.name: getattr(args, field.name) for field in fields(Sizes)})
    write_checkpoint(args.out, sizes)
    size = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{args.out}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

"""The config.json of a converted checkpoint."""

import json
from pathlib import Path

from rose.config import ConfigError, ModelConfig
from rose.kernels.quantize import FP8_BLOCK

_FP8 = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "scale_fmt": "ue8m0",
    "activation_scheme": "dynamic",
    "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}


def converted_config(source: Path, config: ModelConfig) -> dict[str, object]:
    """The source's config.json, in Hugging Face's terms, with FP8 experts.

    Args:
        source: the folder that `config` was read from.
        config: decides what an original config of OpenAI's leaves to the reader.

    Raises:
        ConfigError: config.json cannot be read.
    """
    path = source / "config.json"
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    if "architectures" not in found:
        found = _huggingface_form(config)
    return {**found, "quantization_config": _FP8}


def _huggingface_form(config: ModelConfig) -> dict[str, object]:
    rope = config.rope
    scaling = {
        "rope_type": "yarn",
        "factor": rope.factor,
        "beta_fast": rope.beta_fast,
        "beta_slow": rope.beta_slow,
        "original_max_position_embeddings": rope.original_max_position,
        "truncate": rope.truncate,
    }
    form = {
        "architectures": [config.architecture],
        "model_type": "gpt_oss",
        "attention_bias": config.attention_bias,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "num_local_experts": config.num_experts,
        "num_experts_per_tok": config.experts_per_token,
        "layer_types": list(config.layer_types),
        "sliding_window": config.sliding_window,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": rope.theta,
        "rope_scaling": scaling if rope.factor != 1 else None,
        "rms_norm_eps": config.rms_norm_eps,
        "swiglu_limit": config.swiglu_limit,
        "tie_word_embeddings": config.tie_word_embeddings,
        "torch_dtype": "bfloat16",
    }
    if config.eos_token_ids:
        form["eos_token_id"] = list(config.eos_token_ids)
    return form

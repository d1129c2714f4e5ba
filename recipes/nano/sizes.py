"""The sizes of the models that this recipe trains, as config.json of the published layout."""

from rose.config import ModelConfig

SEQUENCE_LENGTH = 1024
"""Tokens in a row of training data; contexts beyond it are YaRN's."""

VOCABULARY = 2560
STOP_TOKENS = ("<|return|>", "<|endoftext|>", "<|call|>")
PAD_TOKEN = "<|endoftext|>"
START_TOKEN = "<|startoftext|>"

SIZES: dict[str, dict[str, int]] = {
    "nano": {
        "hidden_size": 256,
        "intermediate_size": 128,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 12,
    },
    "draft": {
        "hidden_size": 128,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_local_experts": 8,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_local_experts": 4,
    },
}


def published_config(size: str, token_ids: dict[str, int]) -> dict[str, object]:
    """The config.json of a size.

    Args:
        size: a key of SIZES.
        token_ids: of the special tokens.
    """
    sizes = SIZES[size]
    layers = sizes["num_hidden_layers"]
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "attention_bias": True,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "head_dim": 64,
        **sizes,
        "vocab_size": VOCABULARY,
        "num_experts_per_tok": 4,
        "experts_per_token": 4,
        "sliding_window": 128,
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)],
        "max_position_embeddings": 4 * SEQUENCE_LENGTH,
        "initial_context_length": SEQUENCE_LENGTH,
        "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": SEQUENCE_LENGTH,
            "truncate": False,
        },
        "rms_norm_eps": 1e-5,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "output_router_logits": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": token_ids[START_TOKEN],
        "eos_token_id": token_ids[STOP_TOKENS[0]],
        "pad_token_id": token_ids[PAD_TOKEN],
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


def generation_config(token_ids: dict[str, int]) -> dict[str, object]:
    """The generation_config.json: where a turn stops."""
    return {
        "bos_token_id": token_ids[START_TOKEN],
        "eos_token_id": [token_ids[token] for token in STOP_TOKENS],
        "pad_token_id": token_ids[PAD_TOKEN],
        "do_sample": True,
    }


def model_config(size: str, token_ids: dict[str, int]) -> ModelConfig:
    """A size as the engine reads it."""
    return ModelConfig.from_dicts(
        published_config(size, token_ids), generation_config(token_ids), source=f"size {size}"
    )

"""Reading config.json: typed, complete, and clear about what is wrong."""

import json

import pytest

from rose.config import (
    FULL,
    SLIDING,
    CacheConfig,
    ConfigError,
    ModelConfig,
    SchedulerConfig,
)

CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 201088,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
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
    "eos_token_id": 200002,
    "quantization_config": {"quant_method": "mxfp4"},
}


def read(changes=None, drop=(), generation=None):
    config = {k: v for k, v in {**CONFIG, **(changes or {})}.items() if k not in drop}
    return ModelConfig.from_dicts(config, generation or {}, source="config.json")


def test_the_published_form_is_read_whole():
    config = read(generation={"eos_token_id": [200002, 199999, 200012]})
    assert config.layers_of_group(FULL) == config.layers_of_group(SLIDING) == 2
    assert config.eos_token_ids == (200002, 199999, 200012)
    assert config.rope.factor == 32.0
    assert config.rope.truncate is False
    assert config.checkpoint_quantization == "mxfp4"


def test_eos_falls_back_to_config_json():
    assert read().eos_token_ids == (200002,)


def test_layer_types_default_to_alternating_from_a_sliding_layer():
    assert read(drop=["layer_types"]).layer_types == tuple(CONFIG["layer_types"])


@pytest.mark.parametrize(
    ("changes", "drop", "says"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, (), "unknown architecture.*LlamaForCausalLM"),
        ({}, ("hidden_size",), "hidden_size is missing"),
        ({"hidden_size": "big"}, (), "hidden_size must be a positive integer; found 'big'"),
        ({"num_hidden_layers": 0}, (), "num_hidden_layers must be a positive integer"),
        ({"num_key_value_heads": 7}, (), "64 attention heads do not divide into 7"),
        ({"num_experts_per_tok": 64}, (), "64 experts a token, but only 32"),
        ({"layer_types": ["full_attention"]}, (), "1 layer_types for 4 layers"),
        ({"layer_types": ["round"] * 4}, (), "layer_types must list"),
        ({"rope_scaling": {"rope_type": "linear"}}, (), "rope type 'linear'"),
        ({"quantization_config": {"quant_method": "awq"}}, (), "quantization method 'awq'"),
        ({"rms_norm_eps": float("nan")}, (), "rms_norm_eps must be a number"),
        ({"rms_norm_eps": 10**400}, (), "rms_norm_eps must be a number"),
        ({"eos_token_id": "end"}, (), "eos_token_id must be token ids"),
        ({"eos_token_id": -1}, (), "eos_token_id must be token ids below vocab_size 201088"),
        ({"eos_token_id": [201088]}, (), "eos_token_id must be token ids below vocab_size 201088"),
        ({"num_hidden_layers": 10**12}, ("layer_types",), "num_hidden_layers must be at most 1024"),
        ({"hidden_size": 10**18}, (), "hidden_size must be at most 2147483647"),
        ({"head_dim": 0}, (), "head_dim must be a positive integer"),
        ({"head_dim": 15}, (), "head_dim must be even"),
        ({"sliding_window": 0}, (), "sliding_window must be a positive integer"),
        ({"num_local_experts": 0}, (), "num_local_experts must be a positive integer"),
        ({"attention_bias": "false"}, (), "attention_bias must be true or false; found 'false'"),
        ({"rope_theta": 1}, (), "rope_theta must be a number above 1; found 1"),
        ({"swiglu_limit": -7.0}, (), "swiglu_limit must be a number above 0"),
    ],
)
def test_what_is_wrong_is_named(changes, drop, says):
    with pytest.raises(ConfigError, match=says):
        read(changes, drop)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"config.json not found"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="not valid JSON"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="must hold a JSON object"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert ModelConfig.load(tmp_path).num_experts == 32


def test_every_sequence_of_a_step_can_decode():
    with pytest.raises(ConfigError, match="max_batched_tokens"):
        SchedulerConfig(max_num_seqs=64, max_batched_tokens=32)


def test_windowed_blocks_is_the_exact_worst_case():
    for block in (1, 3, 4, 16):
        for window in (1, 2, 8, 17):
            cache = CacheConfig(block_size=block, num_blocks=(10, 50), window=window)
            for tokens in (1, 2, 5, 16, 33):
                span = tokens + window - 1
                worst = max((first + span - 1) // block + 1 for first in range(block))
                assert cache.windowed_blocks(tokens) == worst


def test_the_longest_sequence_is_bounded_by_both_groups():
    cache = CacheConfig(block_size=4, num_blocks=(10, 5), window=8)
    assert cache.longest_sequence(chunk_size=1) == 40
    assert cache.longest_sequence(chunk_size=10) == 40
    assert cache.longest_sequence(chunk_size=11) == 0

"""Splitting the KV memory between the groups, and the longest sequence that follows."""

import dataclasses
import logging
from pathlib import Path

import pytest

from rose.config import (
    FULL,
    SLIDING,
    CacheConfig,
    ConfigError,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
)
from rose.engine.start import resolve_cache

GPT_OSS_20B = {
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 201088,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "max_position_embeddings": 131072,
    "eos_token_id": 200002,
}


class Memory:
    """An executor that only knows its memory; bytes of a block by group, per token."""

    def __init__(self, kv_bytes, token_bytes=(24576, 24576)):
        self._kv_bytes, self._token_bytes = kv_bytes, token_bytes

    def kv_bytes(self):
        return self._kv_bytes

    def block_bytes(self, block_size):
        return [block_size * b for b in self._token_bytes]


def config(**changes):
    scheduler = {k: changes.pop(k) for k in list(changes) if k in SchedulerConfig.__slots__}
    return EngineConfig(
        model=ModelConfig.from_dicts(GPT_OSS_20B, {}, source="test"),
        path=Path(),
        served_name="test",
        scheduler=SchedulerConfig(**scheduler),
        **changes,
    )


def bytes_of(cache, memory):
    full, sliding = memory.block_bytes(cache.block_size)
    return cache.num_blocks[FULL] * full + cache.num_blocks[SLIDING] * sliding


@pytest.mark.parametrize("gigabytes", [0.3, 1, 8, 60])
def test_all_memory_is_used_and_none_beyond(gigabytes):
    memory = Memory(int(gigabytes * 1e9))
    cache, _ = resolve_cache(config(), memory)
    used = bytes_of(cache, memory)
    assert memory.kv_bytes() - memory.block_bytes(16)[FULL] < used <= memory.kv_bytes()
    assert cache.num_blocks[SLIDING] >= cache.windowed_blocks(2048)


def test_the_sliding_group_holds_what_a_full_step_can_use():
    cache, max_model_len = resolve_cache(config(), Memory(60 * 10**9))
    # 63 sequences that decode and one that runs a chunk, each with its window.
    worst = 63 * cache.windowed_blocks(1) + cache.windowed_blocks(2048 - 63)
    assert worst <= cache.num_blocks[SLIDING] < 4 * worst
    assert cache.num_blocks[FULL] > 30 * cache.num_blocks[SLIDING]
    assert max_model_len == 131072


def test_short_memory_goes_to_both_groups_and_shortens_sequences(caplog):
    with caplog.at_level(logging.WARNING):
        cache, max_model_len = resolve_cache(config(), Memory(10**9))
    assert cache.num_blocks[FULL] >= cache.num_blocks[SLIDING]
    assert max_model_len == cache.num_blocks[FULL] * 16 < 131072
    assert str(max_model_len) in caplog.text


def test_short_sequences_need_no_more_sliding_blocks_than_they_have():
    small = config(max_model_len=64, max_num_seqs=4, chunk_size=64)
    cache, max_model_len = resolve_cache(small, Memory(10**9))
    assert cache.num_blocks[SLIDING] <= 4 * 4
    assert max_model_len == 64


def test_block_counts_that_were_asked_for_are_kept():
    cache, max_model_len = resolve_cache(config(num_blocks=(70, 200)), Memory(0))
    assert cache == CacheConfig(block_size=16, num_blocks=(70, 200), window=128)
    assert max_model_len == 70 * 16


def test_a_model_without_layers_of_a_kind_still_gets_blocks_to_count():
    for token_bytes in ((24576, 0), (0, 24576)):
        cache, max_model_len = resolve_cache(config(), Memory(10**9, token_bytes))
        assert min(cache.num_blocks) >= cache.windowed_blocks(2048)
        assert max_model_len > 2048


@pytest.mark.parametrize(
    ("changes", "kv_bytes", "message"),
    [
        ({}, 10**7, "set kv_cache_bytes to at least"),
        ({"max_model_len": 131073}, 10**9, "positions end at 131072"),
        ({"max_model_len": 100_000}, 10**9, "larger cache"),
        ({"num_blocks": (500, 100)}, 0, "raise the second of num_blocks"),
        ({"num_blocks": (10, 200), "max_model_len": 161}, 0, "needs 11 KV blocks .* at most 160"),
    ],
)
def test_what_cannot_fit_is_refused_with_what_would(changes, kv_bytes, message):
    with pytest.raises(ConfigError, match=message):
        resolve_cache(config(**changes), Memory(kv_bytes))


def test_the_least_memory_named_by_the_error_is_enough():
    with pytest.raises(ConfigError) as caught:
        resolve_cache(config(), Memory(10**7))
    least = int(str(caught.value).split("at least ")[1].split(",")[0])
    cache, _ = resolve_cache(config(), Memory(least))
    assert cache.longest_sequence(2048) >= 16
    with pytest.raises(ConfigError):
        resolve_cache(config(), Memory(least - 1))


def test_a_smaller_chunk_makes_a_small_cache_do():
    with pytest.raises(ConfigError):
        resolve_cache(config(), Memory(5 * 10**7))
    small = dataclasses.replace(config(), scheduler=SchedulerConfig(chunk_size=64))
    cache, _ = resolve_cache(small, Memory(5 * 10**7))
    assert cache.longest_sequence(64) > 0

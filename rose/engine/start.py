"""From a configuration to an engine that is ready to run."""

import logging

from rose.config import FULL, SLIDING, CacheConfig, ConfigError, EngineConfig
from rose.engine.engine import Engine
from rose.engine.executor import Executor
from rose.engine.local_executor import LocalExecutor
from rose.worker.model_runner import LogitsObserver

_LOG = logging.getLogger(__name__)


def start_engine(config: EngineConfig, observer: LogitsObserver | None = None) -> Engine:
    """Load the model in this process and allocate its KV cache.

    Raises:
        ConfigError: the cache cannot hold what the configuration asks for.
    """
    executor = LocalExecutor(config, observer=observer)
    try:
        cache, max_model_len = resolve_cache(config, executor)
        executor.allocate(cache, max_model_len)
        return Engine(config, executor, cache, max_model_len)
    except BaseException:
        executor.shutdown()
        raise


def resolve_cache(config: EngineConfig, executor: Executor) -> tuple[CacheConfig, int]:
    """Count the KV blocks of each group, and the longest sequence that they hold.

    Returns:
        The cache, and max_model_len: what was asked for, or what model and cache hold.

    Raises:
        ConfigError: one chunk, or the max_model_len that was asked for, does not fit.
    """
    if config.num_blocks is not None:
        num_blocks = config.num_blocks
    else:
        full_bytes, sliding_bytes = executor.block_bytes(config.block_size)
        num_blocks = _split_memory(config, executor.kv_bytes(), full_bytes, sliding_bytes)
    cache = _cache(config, num_blocks)
    return cache, _max_model_len(config, cache)


def _cache(config: EngineConfig, num_blocks: tuple[int, int]) -> CacheConfig:
    return CacheConfig(
        block_size=config.block_size,
        num_blocks=num_blocks,
        window=config.model.sliding_window,
        prefix_cache=config.prefix_cache,
    )


def _chunk(config: EngineConfig) -> int:
    return min(config.scheduler.chunk_size, config.scheduler.max_batched_tokens)


def _split_memory(
    config: EngineConfig, budget: int, full_bytes: int, sliding_bytes: int
) -> tuple[int, int]:
    """Blocks for the full and the sliding group out of `budget` bytes.

    The sliding group is bounded: it gets what a full step can use, and as much again for prefix
    reuse, but not more than half the memory. The full group, which bounds the total length of
    what runs, gets the rest.
    """
    scheduler, size = config.scheduler, config.block_size
    everything = scheduler.max_num_seqs * _blocks(config.longest_sequence, size)
    windowed_blocks = _cache(config, (1, 1)).windowed_blocks
    decoding = scheduler.max_num_seqs * (windowed_blocks(1) + 1)
    reserve = decoding if config.prefix_cache else 0
    least = windowed_blocks(_chunk(config))
    sliding = decoding + _blocks(scheduler.max_batched_tokens, size) + reserve
    sliding = max(least, min(sliding, everything))
    if sliding_bytes:
        sliding = max(least, min(sliding, budget // 2 // sliding_bytes))
    # A group without layers costs nothing; its blocks are only counted.
    rest = budget - sliding * sliding_bytes
    full = rest // full_bytes if full_bytes else everything
    if full < 1 or rest < 0:
        needed = least * sliding_bytes + full_bytes
        raise ConfigError(
            f"the KV cache may take {_megabytes(budget)}, but one chunk of {_chunk(config)} tokens "
            f"needs {_megabytes(needed)}: set kv_cache_bytes to at least {needed}, or chunk_size "
            f"(or max_batched_tokens) lower"
        )
    return full, sliding


def _blocks(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _max_model_len(config: EngineConfig, cache: CacheConfig) -> int:
    limit, asked = config.model.max_position_embeddings, config.max_model_len
    if asked is not None and asked > limit:
        raise ConfigError(
            f"max_model_len={asked}, but the model's positions end at {limit}: ask for at most that"
        )
    chunk = _chunk(config)
    fits = cache.longest_sequence(chunk)
    if fits == 0:
        raise ConfigError(
            f"a chunk of {chunk} tokens needs {cache.windowed_blocks(chunk)} blocks of the sliding "
            f"group, which has {cache.num_blocks[SLIDING]}: lower chunk_size, or raise the second "
            f"of num_blocks"
        )
    if asked is not None and asked > fits:
        raise ConfigError(
            f"max_model_len={asked} needs {_blocks(asked, cache.block_size)} KV blocks in the full "
            f"group, which has {cache.num_blocks[FULL]}: ask for at most {fits}, or for a larger "
            f"cache (kv_cache_bytes, or the first of num_blocks)"
        )
    if asked is None and fits < limit:
        _LOG.warning("max_model_len is %d, what the KV cache holds; the model's is %d", fits, limit)
    return asked or min(limit, fits)

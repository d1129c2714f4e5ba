"""An executor with one worker in the engine's own process."""

from collections.abc import Sequence

from rose.config import CacheConfig, ConfigError, EngineConfig
from rose.core.mapping import ParallelMapping
from rose.core.step import SchedulerOutput
from rose.engine.executor import StepHandle
from rose.protocol import Grammar
from rose.worker.model_runner import LogitsObserver
from rose.worker.worker import Worker


class LocalExecutor:
    """Loads the model here, and runs steps on this process's one device."""

    def __init__(self, config: EngineConfig, *, observer: LogitsObserver | None = None) -> None:
        parallel = config.parallel
        if parallel.tp * parallel.dp != 1:
            raise ConfigError(
                f"one process runs one device; got tp={parallel.tp}, dp={parallel.dp}: use 1 and 1"
            )
        self._worker: Worker | None = Worker(config, ParallelMapping(), observer)

    def _live(self) -> Worker:
        if self._worker is None:
            raise RuntimeError("this executor was shut down")
        return self._worker

    def kv_bytes(self) -> int:
        """Bytes that the KV cache may take, once the weights are placed."""
        return self._live().kv_bytes()

    def block_bytes(self, block_size: int) -> Sequence[int]:
        """Bytes of one block of `block_size` tokens over all layers of each KV group."""
        return self._live().block_bytes(block_size)

    def allocate(self, cache: CacheConfig, max_model_len: int) -> None:
        """Allocate the KV cache and per-slot state."""
        self._live().allocate(cache, max_model_len)

    def check_grammar(self, grammar: Grammar) -> None:
        """Compile a grammar that sequences of coming steps follow; refuse an unfit one."""
        self._live().check_grammar(grammar)

    def submit(self, step: SchedulerOutput) -> StepHandle:
        """Enqueue a step; on the CPU it has run when this returns."""
        return self._live().run(step)

    def shutdown(self) -> None:
        """Let go of model and cache."""
        self._worker = None

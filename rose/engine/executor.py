"""Executors run steps: the engine's only way to reach workers."""

from collections.abc import Sequence
from typing import Protocol

from rose.config import CacheConfig
from rose.core.step import ModelRunnerOutput, SchedulerOutput
from rose.protocol import Grammar


class StepHandle(Protocol):
    """A step that was enqueued; its result may not exist yet."""

    def result(self) -> ModelRunnerOutput:
        """Wait for the step and return what it computed. Raises what the step raised."""
        ...


class Executor(Protocol):
    """Loads a model and runs steps in the order of submission."""

    def kv_bytes(self) -> int:
        """Bytes that the KV cache may take, once the weights are placed."""
        ...

    def block_bytes(self, block_size: int) -> Sequence[int]:
        """Bytes of one block of `block_size` tokens over all layers of each KV group."""
        ...

    def allocate(self, cache: CacheConfig, max_model_len: int) -> None:
        """Allocate the KV cache and per-slot state; call once, before the first step."""
        ...

    def check_grammar(self, grammar: Grammar) -> None:
        """Compile a grammar that sequences of coming steps follow.

        Raises:
            InvalidRequestError: it cannot be followed.
        """
        ...

    def submit(self, step: SchedulerOutput) -> StepHandle:
        """Enqueue a step behind those submitted before."""
        ...

    def shutdown(self) -> None:
        """Free what the executor holds. No step may follow."""
        ...

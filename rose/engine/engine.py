"""The engine: requests in, outputs out, one step at a time, one step ahead of the device."""

import random

from rose.config import FULL, SLIDING, CacheConfig, ConfigError, EngineConfig
from rose.core.scheduler import Scheduler
from rose.core.sequence import make_sequences
from rose.core.step import SchedulerOutput
from rose.engine.executor import Executor, StepHandle
from rose.engine.validation import check_request
from rose.protocol import (
    SEED_LIMIT,
    EngineDeadError,
    EngineInfo,
    EngineStats,
    InvalidRequestError,
    Request,
    RequestOutput,
)


class Engine:
    """Drives an executor.

    Args:
        config: what the engine was started with.
        executor: loaded, its KV cache allocated as `cache` says.
        cache: the KV cache.
        max_model_len: longest sequence, prompt and output, in tokens; the engine lowers it to
            what the cache can hold.

    Raises:
        ConfigError: the cache cannot hold even one chunk, or no prompt with one token of output.
    """

    def __init__(
        self, config: EngineConfig, executor: Executor, cache: CacheConfig, max_model_len: int
    ) -> None:
        self._config = config
        self._executor = executor
        self._cache = cache
        self._scheduler = Scheduler(config.scheduler, cache)
        self._longest = min(max_model_len, self._scheduler.longest_sequence)
        if self._longest < 2:
            raise ConfigError(
                f"the longest sequence would be {self._longest} tokens (max_model_len "
                f"{max_model_len}, KV cache {self._scheduler.longest_sequence}); a prompt and its "
                "output need at least 2"
            )
        self._random = random.Random(config.seed)
        self._next_sequence_id = 0
        self._in_flight: tuple[SchedulerOutput, StepHandle] | None = None
        self._aborted: list[RequestOutput] = []
        self._death = ""  # why no more work is taken
        self._open = True

    def add_request(self, request: Request) -> None:
        """Queue a request.

        Raises:
            InvalidRequestError: it can never be served as it stands.
            EngineDeadError: a step failed earlier, or the engine was shut down.
        """
        self._check_alive()
        if self._scheduler.has_request(request.request_id):
            raise InvalidRequestError(
                f"request_id {request.request_id!r} is in flight already; ids must be unique",
                "request_id",
            )
        vocab_size = self._config.model.vocab_size
        check_request(request, vocab_size=vocab_size, longest=self._longest)
        if request.grammar is not None:
            self._executor.check_grammar(request.grammar)
        seed = request.sampling.seed
        sequences = make_sequences(
            request,
            first_id=self._next_sequence_id,
            seed=self._random.randrange(SEED_LIMIT) if seed is None else seed,
            eos_token_ids=self._config.model.eos_token_ids,
            longest=self._longest,
        )
        self._next_sequence_id += len(sequences)
        self._scheduler.add(sequences)

    def abort(self, request_id: str, index: int | None = None) -> None:
        """End one sequence of a request, or all; the next step returns their last outputs.

        Nothing happens if it is unknown or has just ended.
        """
        self._aborted += self._scheduler.abort(request_id, index)

    def has_work(self) -> bool:
        """Whether `step` has something to do or to return."""
        return self._in_flight is not None or self._scheduler.has_sequences() or bool(self._aborted)

    def step(self) -> list[RequestOutput]:
        """Enqueue a step, then return what the step before it yielded.

        One ahead: the device works on the new step while the caller handles the outputs. Else
        the new step's own outputs. The list is empty when no result was due.

        Raises:
            EngineDeadError: a step failed earlier, or the engine was shut down.
            Exception: whatever the executor raised; the engine is of no use afterwards.
        """
        self._check_alive()
        outputs, self._aborted = self._aborted, []
        try:
            self._run_step(outputs)
        except BaseException as error:
            self._death = f"a step failed: {type(error).__name__}: {error}"
            raise
        return outputs

    def _run_step(self, outputs: list[RequestOutput]) -> None:
        due, step = self._in_flight, self._scheduler.schedule()
        self._in_flight = (step, self._executor.submit(step)) if step.sequences else None
        if not self._config.scheduler.one_ahead:
            due, self._in_flight = self._in_flight, None
        if due is not None:
            earlier, handle = due
            outputs += self._scheduler.update(earlier, handle.result())

    def stats(self) -> EngineStats:
        """Counters and gauges as of now."""
        return self._scheduler.stats()

    def info(self) -> EngineInfo:
        """What a front end needs to know."""
        config, cache = self._config, self._cache
        return EngineInfo(
            model=config.served_name,
            model_path=str(config.path),
            max_model_len=self._longest,
            vocab_size=config.model.vocab_size,
            eos_token_ids=config.model.eos_token_ids,
            max_num_seqs=config.scheduler.max_num_seqs,
            description=(
                f"{config.device}, {config.quantization} experts, {config.dtype}; KV cache of "
                f"{cache.num_blocks[FULL]} full and {cache.num_blocks[SLIDING]} sliding blocks of "
                f"{cache.block_size} tokens"
            ),
        )

    def check_integrity(self) -> None:
        """Check the scheduler's and the block manager's books; for tests and debugging.

        Raises:
            IntegrityError: they disagree.
        """
        self._scheduler.check_integrity()

    def shutdown(self) -> None:
        """Stop for good and free the executor; a second call does nothing."""
        if self._open:
            self._death = self._death or "it was shut down"
            self._open = False
            self._executor.shutdown()

    def _check_alive(self) -> None:
        if self._death:
            raise EngineDeadError(f"the engine takes no more work: {self._death}")

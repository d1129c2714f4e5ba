"""Rose as the subject of a measurement, in this process and through its public engine API."""

import gc
from contextlib import suppress

from rose.bench.results import BenchError
from rose.bench.subject import TEMPERATURE, DecodeRun, time_steps, time_to_first_tokens
from rose.config import FULL, EngineConfig
from rose.core.scheduler import WATERMARK
from rose.engine.start import start_engine
from rose.protocol import EngineDeadError, FinishReason, Request, SamplingParams
from rose.version import __version__


class OwnEngine:
    """A Subject and a Stepper over one engine.

    Raises:
        ConfigError: the engine cannot start.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._engine = start_engine(config)
        self._open: list[str] = []
        self._cached = 0  # tokens of the prompts in flight that the prefix cache held
        # As a server does: what is loaded stays, and is not to be looked through while timing.
        gc.collect()
        gc.freeze()

    @property
    def name(self) -> str:
        """Rose and its version."""
        return f"rose {__version__}"

    def refuse_prefill(self, tokens: int) -> str | None:
        """See Subject."""
        longest = self._engine.info().max_model_len
        if tokens + 1 <= longest:
            return None
        return f"{tokens} tokens and one more exceed the longest sequence here, {longest}"

    def refuse_decode(self, batch: int, context: int, steps: int) -> str | None:
        """See Subject."""
        limit = self._config.scheduler.max_num_seqs
        if batch > limit:
            return f"{batch} sequences, but a step holds {limit}: raise --max-num-seqs"
        longest = self._engine.info().max_model_len
        ramp = self._ramp(batch, context)
        if context + ramp + steps > longest:
            return (
                f"{context} tokens and up to {ramp + steps} more exceed the longest sequence here, "
                f"{longest}"
            )
        total = self._engine.stats().kv_blocks_total[FULL]
        needed = self._blocks_needed(batch, context, steps) + max(1, total // WATERMARK)
        if needed > total:
            return (
                f"the KV cache has {total} blocks of {self._config.block_size} tokens, and "
                f"{batch} sequences of {context} tokens need {needed}: ask for a smaller batch, "
                "or give it more memory (--kv-cache-bytes, a smaller --quantization, more GPUs)"
            )
        return None

    def prefill(self, prompts: list[list[int]]) -> float:
        """See Subject."""
        self._cached = 0
        try:
            seconds = time_to_first_tokens(self, prompts)
        finally:
            self.drop()
        if self._cached:
            raise BenchError(
                f"{self._cached} prompt tokens came from the prefix cache: not a cold prefill"
            )
        return seconds

    def decode(self, prompts: list[list[int]], warmup: int, steps: int) -> DecodeRun:
        """See Subject."""
        ramp = 2 * self._ramp(len(prompts), len(prompts[0])) + 16
        return time_steps(self, prompts, warmup=warmup, steps=steps, ramp=ramp)

    def close(self) -> None:
        """See Subject."""
        gc.unfreeze()
        self._engine.shutdown()

    # The Stepper

    def submit(self, prompts: list[list[int]], max_tokens: int) -> None:
        """See Stepper; fewer tokens where the longest sequence ends sooner."""
        room = self._engine.info().max_model_len - max(map(len, prompts))
        sampling = SamplingParams(
            max_tokens=min(max_tokens, room), temperature=TEMPERATURE, ignore_eos=True
        )
        for index, prompt in enumerate(prompts):
            name = str(index)
            request = Request(request_id=name, prompt_token_ids=prompt, sampling=sampling)
            self._engine.add_request(request)
            self._open.append(name)

    def step(self) -> list[int]:
        """See Stepper."""
        indices = []
        for output in self._engine.step():
            if output.finish_reason is FinishReason.ERROR:
                raise BenchError(f"sequence {output.request_id} failed in the engine")
            self._cached += output.num_cached_tokens
            if output.token_ids:
                indices.append(int(output.request_id))
        return indices

    def drop(self) -> None:
        """See Stepper."""
        for name in self._open:
            self._engine.abort(name)
        self._open.clear()
        # A step that failed or was interrupted leaves a dead engine, and its error is on its way.
        with suppress(EngineDeadError):
            while self._engine.has_work():
                self._engine.step()

    # Sizes

    def _ramp(self, batch: int, context: int) -> int:
        """Steps until the last of `batch` prompts is computed; the first decodes meanwhile."""
        budget = self._config.scheduler.max_batched_tokens
        return -(-batch * context // max(1, budget - batch)) + 2

    def _blocks_needed(self, batch: int, context: int, steps: int) -> int:
        """Full blocks at the end: those that began to decode earlier have come further."""
        ramp, size = self._ramp(batch, context), self._config.block_size
        ends = (context + steps + ramp * (batch - i) // batch for i in range(batch))
        return sum(-(-end // size) for end in ends)

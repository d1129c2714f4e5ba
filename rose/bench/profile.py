"""Records a window of an engine's steps with torch's profiler."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from rose.bench.results import BenchError, Phase
from rose.bench.step_work import Window, decode_window, prefill_window
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.engine.start import start_engine
from rose.progress import Progress
from rose.protocol import Request, RequestOutput, SamplingParams

WARM_UP_STEPS = 5
STALLED_STEPS = 16
"""After as many steps without a new sequence those that wait have no room."""


@dataclass(frozen=True, slots=True)
class ProfilePlan:
    """What to record.

    Attributes:
        phase: "prefill": whole prompts to their first token; "decode": steps in which every
            sequence yields a token.
        tokens: of each prompt, random; of decode thus the context before the first token.
        batch: sequences at once.
        steps: prefill: how often the batch runs; decode: steps.
        cpu_ops: record what torch does on the host beside a GPU's kernels; it slows the host.
    """

    phase: Phase
    tokens: int
    batch: int
    steps: int
    cpu_ops: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded.

    Attributes:
        window: the steps.
        done: of `ProfilePlan.steps`; fewer if it was interrupted.
    """

    window: Window
    done: int


def record(config: EngineConfig, plan: ProfilePlan, trace: Path) -> Recording:
    """Start an engine, warm it up, record the window and write the trace.

    ^C during the window ends it; what was recorded by then is written and returned.

    Args:
        config: of the engine.
        plan: what to record.
        trace: Chrome's JSON to write, compressed if the name ends in ".gz".

    Raises:
        BenchError: the engine cannot run the batch at once, or not for as long.
        InvalidRequestError: the prompts do not fit the model or the cache.
        KeyboardInterrupt: nothing was recorded yet.
    """
    most = config.scheduler.max_num_seqs
    if plan.batch > most:
        raise BenchError(
            f"a batch of {plan.batch} sequences needs --max-num-seqs {plan.batch}; it is {most}"
        )
    engine = start_engine(config)
    try:
        return _Session(engine, config, plan).record(trace)
    finally:
        engine.shutdown()


class _Session:
    """One engine and the sequences that it runs for the recording."""

    def __init__(self, engine: Engine, config: EngineConfig, plan: ProfilePlan) -> None:
        self._engine = engine
        self._config = config
        self._plan = plan
        self._device = torch.device(config.device)
        self._random = random.Random(config.seed)
        self._ids = map(str, count())
        self._generated: Counter[str] = Counter()

    def record(self, trace: Path) -> Recording:
        if self._plan.phase == "prefill":
            self._prefill()
            return self._record_prefill(trace)
        self._decode_all()
        for _ in range(WARM_UP_STEPS):
            self._decode_step()
        return self._record_decode(trace)

    def _record_prefill(self, trace: Path) -> Recording:
        plan, before = self._plan, self._engine.stats().steps
        done = self._trace(self._prefill, trace)
        steps = max(1, self._engine.stats().steps - before)
        window = prefill_window(
            self._config.model, prompts=done * plan.batch, tokens=plan.tokens, steps=steps
        )
        return Recording(window, done)

    def _record_decode(self, trace: Path) -> Recording:
        contexts = [self._plan.tokens + new for new in self._generated.values()]
        done = self._trace(self._decode_step, trace)
        return Recording(decode_window(self._config.model, contexts=contexts, steps=done), done)

    def _trace(self, unit: Callable[[], object], trace: Path) -> int:
        """Run `unit` as often as planned under the profiler; how often it was."""
        cuda = self._device.type == "cuda"
        activities = {ProfilerActivity.CUDA} if cuda else {ProfilerActivity.CPU}
        if self._plan.cpu_ops:
            activities.add(ProfilerActivity.CPU)
        with profile(activities=activities):  # the tracer starts slowly, once
            torch.ones(1, device=self._device)
        done = 0
        with (
            Progress("recording", total=self._plan.steps, unit="steps") as progress,
            profile(activities=activities) as profiler,
        ):
            # A step that is in flight would be recorded in part.
            self._synchronize()
            try:
                while done < self._plan.steps:
                    unit()
                    done += 1
                    progress.advance()
            except KeyboardInterrupt:
                if not done:
                    raise
            self._synchronize()
        profiler.export_chrome_trace(str(trace))
        return done

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _submit(self, max_tokens: int | None) -> None:
        """New prompts of random ids, so that no prefix is cached."""
        vocabulary = range(self._config.model.vocab_size)
        for request_id in islice(self._ids, self._plan.batch):
            request = Request(
                request_id=request_id,
                prompt_token_ids=self._random.choices(vocabulary, k=self._plan.tokens),
                sampling=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
            )
            self._engine.add_request(request)

    def _prefill(self) -> None:
        self._submit(max_tokens=1)
        while self._engine.has_work():
            self._engine.step()

    def _decode_all(self) -> None:
        """Run the prompts until every sequence yields a token a step."""
        plan, seen, stalled = self._plan, 0, 0
        self._submit(max_tokens=None)
        with Progress("prefill", total=plan.batch * plan.tokens, unit="tokens") as progress:
            while len(self._decode_step()) < plan.batch:
                stats = self._engine.stats()
                progress.advance(stats.prompt_tokens - seen)
                stalled = stalled + 1 if stats.prompt_tokens == seen else 0
                seen = stats.prompt_tokens
                if stalled > STALLED_STEPS:
                    raise self._no_room()

    def _decode_step(self) -> list[RequestOutput]:
        """A step in which no sequence may end or lose its cache."""
        outputs = self._engine.step()
        for output in outputs:
            self._generated[output.request_id] += len(output.token_ids)
            if output.finish_reason is not None:
                raise BenchError(
                    f"a sequence reached the longest length, {self._engine.info().max_model_len} "
                    "tokens, before the recording ended: lower --tokens or --steps, or raise "
                    "--max-model-len or --kv-cache-bytes"
                )
        if self._engine.stats().preemptions:
            raise self._no_room()
        return outputs

    def _no_room(self) -> BenchError:
        return BenchError(
            f"the KV cache does not hold {self._plan.batch} sequences of {self._plan.tokens} "
            "tokens at once: lower --batch or --tokens, or raise --kv-cache-bytes"
        )

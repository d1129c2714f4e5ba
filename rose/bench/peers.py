"""vLLM and SGLang as subjects of the same measurement, where they are installed.

Both are given the checkpoint's folder (or only its config.json and random weights) and token ids,
and do without a tokenizer. Written for vLLM 0.26 and SGLang 0.5.17.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from rose.bench.machine import package_version
from rose.bench.results import BenchError, Sharding
from rose.bench.subject import (
    TEMPERATURE,
    DecodeRun,
    DoesNotFitError,
    time_steps,
    time_to_first_tokens,
)

LEAST_CHUNK = 2048
"""Prompt tokens that a peer computes in a step, at least: bounds how far the first sequence may run
ahead of the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """What a peer is started with; None leaves its own default.

    Attributes:
        folder: the checkpoint.
        load_format: "auto", or "dummy" for random weights.
        longest: the model's longest sequence in tokens, or a lower one asked for.
        max_batched_tokens: tokens in a step.
    """

    folder: Path
    load_format: Literal["auto", "dummy"]
    sharding: Sharding
    longest: int
    max_num_seqs: int | None
    max_batched_tokens: int | None
    seed: int


class _Peer:
    """What both share: neither tells its cache's size, so that only lengths are refused."""

    def __init__(self, name: str, longest: int) -> None:
        self.name = name
        self._longest = longest

    def refuse_prefill(self, tokens: int) -> str | None:
        """See Subject."""
        return self._refuse(tokens, 1)

    def refuse_decode(self, batch: int, context: int, steps: int) -> str | None:
        """See Subject."""
        return self._refuse(context, steps)

    @staticmethod
    def _ramp(prompts: list[list[int]]) -> int:
        return len(prompts) * (len(prompts[0]) // LEAST_CHUNK + 2) + 16

    def _refuse(self, tokens: int, more: int) -> str | None:
        if tokens + more <= self._longest:
            return None
        return f"{tokens} tokens and {more} more exceed the longest sequence, {self._longest}"


class Vllm(_Peer):
    """vLLM's offline class: a Subject, and a Stepper by its engine's own steps.

    Raises:
        BenchError: it is not installed.
    """

    def __init__(self, options: PeerOptions) -> None:
        vllm = _module("vllm")
        super().__init__(f"vllm {package_version('vllm')}", options.longest)
        self._params = vllm.SamplingParams
        # Only what is new in each output; the default repeats all ids of a sequence every step.
        self._kind = import_module("vllm.sampling_params").RequestOutputKind.DELTA
        self._llm = vllm.LLM(
            model=str(options.folder),
            skip_tokenizer_init=True,
            load_format=options.load_format,
            tensor_parallel_size=options.sharding.tp,
            enable_expert_parallel=options.sharding.ep > 1,
            max_model_len=options.longest,
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.max_batched_tokens,
            seed=options.seed,
        )
        self._open: dict[str, int] = {}
        self._count = 0

    def prefill(self, prompts: list[list[int]]) -> float:
        """See Subject; random prompts are not in any cache."""
        try:
            return time_to_first_tokens(self, prompts)
        finally:
            self.drop()

    def decode(self, prompts: list[list[int]], warmup: int, steps: int) -> DecodeRun:
        """See Subject."""
        return time_steps(self, prompts, warmup=warmup, steps=steps, ramp=self._ramp(prompts))

    def submit(self, prompts: list[list[int]], max_tokens: int) -> None:
        """See Stepper."""
        params = self._params(
            max_tokens=max_tokens,
            temperature=TEMPERATURE,
            ignore_eos=True,
            detokenize=False,
            output_kind=self._kind,
        )
        for index, prompt in enumerate(prompts):
            name = f"bench-{self._count}"
            self._count += 1
            self._open[name] = index
            self._llm.llm_engine.add_request(name, {"prompt_token_ids": prompt}, params)

    def step(self) -> list[int]:
        """See Stepper."""
        outputs = self._llm.llm_engine.step()
        return [self._open[o.request_id] for o in outputs if o.outputs[0].token_ids]

    def drop(self) -> None:
        """See Stepper."""
        engine = self._llm.llm_engine
        engine.abort_request(list(self._open))
        while engine.has_unfinished_requests():
            engine.step()
        self._open.clear()

    def close(self) -> None:
        """See Subject; vLLM frees its memory when nothing refers to it."""
        del self._llm


class Sglang(_Peer):
    """SGLang's Engine: it cannot be stepped, so that steps are times between streamed tokens.

    Raises:
        BenchError: it is not installed.
    """

    def __init__(self, options: PeerOptions) -> None:
        sglang = _module("sglang")
        super().__init__(f"sglang {package_version('sglang')}", options.longest)
        self._engine = sglang.Engine(
            model_path=str(options.folder),
            skip_tokenizer_init=True,
            load_format=options.load_format,
            tp_size=options.sharding.tp,
            ep_size=options.sharding.ep,
            context_length=options.longest,
            max_running_requests=options.max_num_seqs,
            chunked_prefill_size=options.max_batched_tokens,
            stream_interval=1,
            random_seed=options.seed,
        )

    def prefill(self, prompts: list[list[int]]) -> float:
        """See Subject; random prompts are not in any cache."""
        begin = time.perf_counter()
        self._engine.generate(input_ids=prompts, sampling_params=_sglang_sampling(1))
        return time.perf_counter() - begin

    def decode(self, prompts: list[list[int]], warmup: int, steps: int) -> DecodeRun:
        """See Subject."""
        length = len(prompts[0])
        # The first to start must still run when the last has done all its steps.
        most = min(self._ramp(prompts) + warmup + steps + 1, self._longest - length)
        sampling = _sglang_sampling(most)
        chunks = self._engine.generate(input_ids=prompts, sampling_params=sampling, stream=True)
        events = []
        for chunk in chunks:
            tokens = chunk["meta_info"]["completion_tokens"]
            events.append((time.perf_counter(), chunk.get("index", 0), tokens))
        samples, contexts = steady_steps(events, len(prompts), warmup, steps)
        return DecodeRun(samples, (length + contexts[0], length + contexts[1]))

    def close(self) -> None:
        """See Subject."""
        self._engine.shutdown()


def steady_steps(
    events: Iterable[tuple[float, int, int]], batch: int, warmup: int, steps: int
) -> tuple[list[float], tuple[int, int]]:
    """Seconds between the tokens of the sequence that started last, while all run beside it.

    Args:
        events: time, sequence, and its tokens so far, in the order of time.
        batch: sequences.
        warmup: steps after the last has started, which do not count.
        steps: to return.

    Returns:
        The samples, and the least and the most tokens of a sequence before the first of them.

    Raises:
        DoesNotFitError: the sequences did not run together for so long.
    """
    counts, times = [0] * batch, []
    last, before = -1, (0, 0)
    final = [0] * batch
    for when, index, tokens in events:
        final[index] = tokens
        if last < 0:
            counts[index] = tokens
            if all(counts):
                last = index
                before = (min(counts) + warmup, max(counts) + warmup)
        if index == last:
            times.append(when)
    window = times[warmup : warmup + steps + 1]
    needed = before[1] + steps
    if len(window) < steps + 1 or max(final) < needed:
        raise DoesNotFitError(
            f"the {batch} sequences did not run side by side for {warmup + steps} steps: give the "
            "engine more memory, or ask for a smaller batch"
        )
    return [b - a for a, b in pairwise(window)], before


def _sglang_sampling(max_tokens: int) -> dict[str, object]:
    return {"max_new_tokens": max_tokens, "temperature": TEMPERATURE, "ignore_eos": True}


def _module(name: str) -> Any:  # noqa: ANN401  # an optional package without types
    try:
        return import_module(name)
    except ImportError as error:
        raise BenchError(
            f"--engine {name}: {name} cannot be imported here ({error}); install it, best in an "
            "environment of its own beside Rose"
        ) from None

"""The public Python API: token ids in, token ids out.

with LLM("openai/gpt-oss-20b") as llm:
    [result] = llm.generate([[200006, 1428, 200008]], SamplingParams(max_tokens=100))
    print(result.token_ids)
"""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from rose.async_llm import AsyncLLM
from rose.config import EngineConfig
from rose.engine.start import start_engine
from rose.engine.validation import make_requests
from rose.options import EngineOptions
from rose.progress import Progress
from rose.protocol import (
    EngineInfo,
    EngineStats,
    FinishReason,
    Request,
    RequestOutput,
    SamplingParams,
    TokenLogprobs,
)

__all__ = ["LLM", "AsyncLLM", "Completion", "Generation", "OutputStream"]


@dataclass(slots=True)
class Completion:
    """One of a prompt's n continuations.

    Attributes:
        index: which of the n.
        token_ids: the new ids, a stop token included.
        finish_reason: why it ended.
        logprobs: one entry an id, if asked for.
    """

    index: int
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprobs] | None = None


@dataclass(slots=True)
class Generation:
    """All that came of one prompt.

    Attributes:
        prompt_token_ids: the prompt.
        outputs: n of them.
        prompt_logprobs: for each prompt token from the second on, if asked for.
        num_cached_tokens: prompt tokens that the prefix cache held.
    """

    prompt_token_ids: list[int]
    outputs: list[Completion]
    prompt_logprobs: list[TokenLogprobs] | None = None
    num_cached_tokens: int = 0

    @property
    def token_ids(self) -> list[int]:
        """The first completion's ids."""
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> FinishReason | None:
        """The first completion's end."""
        return self.outputs[0].finish_reason

    @property
    def logprobs(self) -> list[TokenLogprobs] | None:
        """The first completion's log-probabilities."""
        return self.outputs[0].logprobs

    def add(self, step: RequestOutput) -> None:
        """Take in what one step of the engine added."""
        output = self.outputs[step.index]
        output.token_ids += step.token_ids
        output.finish_reason = step.finish_reason
        if step.logprobs is not None:
            output.logprobs = (output.logprobs or []) + step.logprobs
        if step.prompt_logprobs is not None:
            self.prompt_logprobs = step.prompt_logprobs
        if step.index == 0:
            self.num_cached_tokens = step.num_cached_tokens


class _LogitsRecorder:
    """Copies every position's logits into a tensor while there is one; a LogitsObserver."""

    def __init__(self) -> None:
        self.target: Tensor | None = None
        self.recorded = 0

    def wants(self, sequence_id: int) -> bool:
        return self.target is not None

    def observe(self, sequence_id: int, start: int, logits: Tensor) -> None:
        if self.target is not None:
            kept = logits[: max(0, self.target.shape[0] - start)]
            self.target[start : start + kept.shape[0]] = kept
            self.recorded += kept.shape[0]


class LLM:
    """An engine in this process. Use it from one thread; `AsyncLLM` serves many callers.

    The arguments are those of `EngineOptions`.

    Raises:
        ConfigError: an argument, the checkpoint or the cache size cannot work.
    """

    def __init__(
        self,
        model: str,
        *,
        quantization: str = "auto",
        dense_quantization: str = "bf16",
        dtype: str = "bfloat16",
        device: str = "auto",
        load_format: str = "auto",
        block_size: int | None = None,
        chunk_size: int | None = None,
        max_num_seqs: int | None = None,
        max_batched_tokens: int | None = None,
        max_model_len: int | None = None,
        prefix_cache: bool = True,
        one_ahead: bool = True,
        cuda_graphs: bool = True,
        kernels: str = "auto",
        kv_cache_bytes: int | None = None,
        num_blocks: tuple[int, int] | None = None,
        cpu_threads: int | None = None,
        seed: int = 0,
    ) -> None:
        options = EngineOptions(
            model=model,
            quantization=quantization,
            dense_quantization=dense_quantization,
            dtype=dtype,
            device=device,
            load_format=load_format,
            block_size=block_size,
            chunk_size=chunk_size,
            max_num_seqs=max_num_seqs,
            max_batched_tokens=max_batched_tokens,
            max_model_len=max_model_len,
            prefix_cache=prefix_cache,
            one_ahead=one_ahead,
            cuda_graphs=cuda_graphs,
            kernels=kernels,
            kv_cache_bytes=kv_cache_bytes,
            num_blocks=num_blocks,
            cpu_threads=cpu_threads,
            seed=seed,
        )
        self._start(options.resolve())

    @classmethod
    def from_options(cls, options: EngineOptions) -> Self:
        """The same, from options made elsewhere."""
        return cls.from_config(options.resolve())

    @classmethod
    def from_config(cls, config: EngineConfig) -> Self:
        """The same, from options that are resolved already."""
        llm = cls.__new__(cls)
        llm._start(config)
        return llm

    def _start(self, config: EngineConfig) -> None:
        self._recorder = _LogitsRecorder()
        self._engine = start_engine(config, self._recorder)
        self._open: dict[str, deque[RequestOutput]] = {}
        self._ids = itertools.count()

    @property
    def info(self) -> EngineInfo:
        """What the engine is and holds."""
        return self._engine.info()

    @property
    def stats(self) -> EngineStats:
        """The engine's counters."""
        return self._engine.stats()

    def check(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> None:
        """Refuse what `generate` or `score` would refuse, and run nothing.

        Raises:
            InvalidRequestError: a prompt can never be served; names the first.
        """
        self._requests(prompts, params)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = False,
    ) -> list[Generation]:
        """Continue every prompt.

        Args:
            prompts: token ids of each prompt.
            params: for all prompts alike, or one for each; None: the defaults.
            progress: show how many prompts are done, on standard error.

        Returns:
            One result a prompt, in their order.

        Raises:
            InvalidRequestError: a prompt can never be served; then none was run.
        """
        requests = self._requests(prompts, params)
        generations = {r.request_id: _empty_generation(r) for r in requests}
        bar = Progress("generating", total=len(requests), unit="prompts") if progress else None
        try:
            for request in requests:
                self._submit(request)
            with bar or nullcontext():
                while open_ids := self._open.keys() & generations.keys():
                    self._step()
                    done = sum(self._collect(i, generations[i]) for i in open_ids)
                    if bar is not None and done:
                        bar.advance(done)
        finally:
            for request_id in generations:
                self._forget(request_id)
        return list(generations.values())

    def stream(self, prompt: Sequence[int], params: SamplingParams | None = None) -> "OutputStream":
        """Continue one prompt, and get each new token as it comes.

        Raises:
            InvalidRequestError: the prompt can never be served.
        """
        [request] = self._requests([prompt], params)
        self._submit(request)
        return OutputStream(self, request)

    def score(self, token_ids: Sequence[int]) -> Tensor:
        """Logits at every position: float32 [tokens, vocabulary], on the CPU.

        The tokens run through the engine, in chunks and over the paged cache, without prefix
        reuse.

        Raises:
            InvalidRequestError: the tokens do not fit the model or the cache, which must hold one
                token more.
            RuntimeError: a stream is open.
        """
        if self._open:
            raise RuntimeError("score() while a stream is open: finish or close the stream first")
        # Prompts whose log-probabilities are wanted are computed in full, whatever is cached.
        params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
        target = torch.empty((len(token_ids), self.info.vocab_size), dtype=torch.float32)
        self._recorder.target, self._recorder.recorded = target, 0
        try:
            self.generate([token_ids], params)
        finally:
            self._recorder.target = None
        if self._recorder.recorded != len(token_ids):
            raise RuntimeError(
                f"the engine computed {self._recorder.recorded} of {len(token_ids)} positions"
            )
        return target

    def close(self) -> None:
        """Free the model and the cache. What was in flight is lost."""
        self._open.clear()
        self._engine.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _requests(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> list[Request]:
        """A valid request for each prompt."""
        info = self.info
        return make_requests(
            prompts,
            params,
            request_ids=map(str, self._ids),
            vocab_size=info.vocab_size,
            longest=info.max_model_len,
        )

    def _submit(self, request: Request) -> None:
        self._engine.add_request(request)
        self._open[request.request_id] = deque()

    def _step(self) -> None:
        for output in self._engine.step():
            # Outputs of forgotten requests have nobody to go to.
            queue = self._open.get(output.request_id)
            if queue is not None:
                queue.append(output)

    def _collect(self, request_id: str, generation: Generation) -> bool:
        """Take in the outputs that came; whether they were the last."""
        queue = self._open[request_id]
        while queue:
            generation.add(queue.popleft())
        done = all(output.finish_reason is not None for output in generation.outputs)
        if done:
            del self._open[request_id]
        return done

    def _next_output(self, request_id: str) -> RequestOutput:
        queue = self._open[request_id]
        while not queue:
            self._step()
        return queue.popleft()

    def _forget(self, request_id: str) -> None:
        if self._open.pop(request_id, None) is not None:
            self._engine.abort(request_id)


class OutputStream(Iterator[RequestOutput]):
    """The outputs of one request as they come; closing it early aborts the request."""

    def __init__(self, llm: LLM, request: Request) -> None:
        self._llm = llm
        self._request_id = request.request_id
        self._unfinished = request.sampling.n

    def __next__(self) -> RequestOutput:
        if self._unfinished == 0:
            raise StopIteration
        output = self._llm._next_output(self._request_id)
        if output.finish_reason is not None:
            self._unfinished -= 1
            if self._unfinished == 0:
                del self._llm._open[self._request_id]
        return output

    def close(self) -> None:
        """Abort what is left; nothing if all of it came."""
        self._unfinished = 0
        self._llm._forget(self._request_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _empty_generation(request: Request) -> Generation:
    outputs = [Completion(index, []) for index in range(request.sampling.n)]
    return Generation(request.prompt_token_ids, outputs)

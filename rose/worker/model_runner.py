"""Runs one step of the model: batch in, accepted tokens out. Nothing waits for the device.

Steps in which every sequence decodes one token run by CUDA graphs, where there are some; mixed
ones run eagerly.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from rose.core.step import ScheduledSequence, SchedulerOutput
from rose.decoders.decoder import Decoder, SampleRows
from rose.kernels import sampling
from rose.kernels.paged_kv import LayerKV
from rose.models.gpt_oss import GptOss
from rose.worker.cuda_graph import DecodeGraphs
from rose.worker.forward_batch import BatchBuilder, DecodeRow, ForwardBatch
from rose.worker.grammar import SlotGrammars
from rose.worker.sampler import Sampler, SlotParams
from rose.worker.step_result import LogprobRows, PendingStep
from rose.worker.token_pool import TokenPool
from rose.worker.upload import Download, upload

LOGITS_TILE = 256
"""Prompt positions whose logits exist at once: 256 x 201,088 float32 are 206 MB."""


class LogitsObserver(Protocol):
    """Sees the logits of every position of chosen sequences; for `score` and for tests."""

    def wants(self, sequence_id: int) -> bool:
        """Whether `observe` is to be called for this sequence."""
        ...

    def observe(self, sequence_id: int, start: int, logits: Tensor) -> None:
        """Take float32 [n, vocabulary]: the logits at positions start ... start + n - 1."""
        ...


@dataclass(frozen=True, slots=True)
class _Forward:
    """What the model made of a step.

    Attributes:
        logits: float32 [rows, vocabulary]; None if no sequence samples.
        rows: the sequences that sample.
        sampled_index: int64 [rows], where in the token pool the sampled id goes.
        prompt_logprobs: of the prompts that ask.
    """

    logits: Tensor | None
    rows: SampleRows
    sampled_index: Tensor
    prompt_logprobs: list[LogprobRows]


class ModelRunner:
    """The model, its KV cache and the slots' state, put together.

    `graphs` may be set later, since their capture needs all of it.
    """

    def __init__(
        self,
        *,
        model: GptOss,
        kv: list[LayerKV],
        builder: BatchBuilder,
        pool: TokenPool,
        params: SlotParams,
        sampler: Sampler,
        decoder: Decoder,
        grammars: SlotGrammars,
        observer: LogitsObserver | None,
    ) -> None:
        self._model = model
        self._kv = kv
        self._builder = builder
        self._pool = pool
        self._params = params
        self._sampler = sampler
        self._decoder = decoder
        self._grammars = grammars
        self._observer = observer
        self.graphs: DecodeGraphs | None = None

    def run(self, step: SchedulerOutput) -> PendingStep:
        """Enqueue a step that runs at least one sequence."""
        if not step.sequences:
            raise ValueError(f"step {step.step_id} runs no sequence; an idle engine submits none")
        for new in step.new_sequences:
            self._builder.admit(new)
            self._params.admit(new)
            self._grammars.admit(new)
        # Before the model, so that they are computed while it runs.
        masks = self._grammars.start(step)
        self._builder.extend(step)
        forward = self._replay(step) or self._eager(step)
        token_ids = counts = logprobs = None
        failed: frozenset[int] = frozenset()
        if forward.logits is not None:
            allowed = forward.logits
            if masks is not None:
                allowed, failed = masks.apply(allowed)
            accepted = self._decoder.decode(allowed, forward.rows)
            token_ids, counts = accepted.token_ids, accepted.counts
            self._pool.put(forward.sampled_index, token_ids[:, 0])
            logprobs = self._logprobs(step, forward.logits, token_ids[:, 0], forward.rows)
        return PendingStep(
            step.step_id,
            token_ids=token_ids,
            counts=counts,
            logprobs=logprobs,
            prompt_logprobs=forward.prompt_logprobs,
            failed=failed,
            download=Download(forward.sampled_index.device),
        )

    def _replay(self, step: SchedulerOutput) -> _Forward | None:
        """Run the step by a graph, if there is one for it."""
        if self.graphs is None or not all(self._decodes(s) for s in step.sequences):
            return None
        bucket = self.graphs.bucket_for(len(step.sequences))
        if bucket is None:
            return None
        inputs, rows = self._builder.decode_inputs(step, bucket)
        on_device, logits = self.graphs.run(inputs)
        n = len(step.sequences)
        return _Forward(logits[:n], rows, on_device[DecodeRow.NEXT, :n], [])

    def _decodes(self, s: ScheduledSequence) -> bool:
        """Whether the sequence runs one token, of which nothing but a token is wanted.

        It samples, so it is the sequence's newest: behind it stands no token of a prompt to score.
        """
        if not s.samples or s.num_tokens != 1:
            return False
        return self._observer is None or not self._observer.wants(s.sequence_id)

    def _eager(self, step: SchedulerOutput) -> _Forward:
        batch = self._builder.build(step)
        hidden = self._model(batch.token_ids, batch.positions, batch.attention, self._kv)
        self._show(step, batch, hidden)
        # Before the decoder runs, since the sampled token belongs to no prompt.
        prompt_logprobs = self._prompt_logprobs(step, batch, hidden)
        logits = None
        if batch.rows.slots.size:
            logits = self._model.logits(hidden.index_select(0, batch.logits_index))
        return _Forward(logits, batch.rows, batch.sampled_index, prompt_logprobs)

    def _show(self, step: SchedulerOutput, batch: ForwardBatch, hidden: Tensor) -> None:
        if self._observer is None:
            return
        for i, sequence in enumerate(step.sequences):
            if self._observer.wants(sequence.sequence_id):
                rows = hidden[batch.query_start[i] : batch.query_start[i + 1]]
                for first in range(0, sequence.num_tokens, LOGITS_TILE):
                    logits = self._model.logits(rows[first : first + LOGITS_TILE])
                    self._observer.observe(sequence.sequence_id, sequence.start + first, logits)

    def _logprobs(
        self, step: SchedulerOutput, logits: Tensor, tokens: Tensor, rows: SampleRows
    ) -> LogprobRows | None:
        found = self._sampler.logprobs(logits, tokens, rows)
        if found is None:
            return None
        which, tensors = found
        ids = [s.sequence_id for s in step.sequences if s.samples]
        top = self._params.logprobs[rows.slots[which]].tolist()
        return LogprobRows([ids[i] for i in which], top, tensors)

    def _prompt_logprobs(
        self, step: SchedulerOutput, batch: ForwardBatch, hidden: Tensor
    ) -> list[LogprobRows]:
        found: list[LogprobRows] = []
        for i, s in enumerate(step.sequences):
            if self._params.prompt_logprobs[s.slot] >= 0:
                rows = hidden[batch.query_start[i] : batch.query_start[i + 1]]
                found += self._prompt_logprobs_of(s, rows)
        return found

    def _prompt_logprobs_of(self, s: ScheduledSequence, hidden: Tensor) -> list[LogprobRows]:
        """Score the prompt's tokens at positions start + 1 ... start + num_tokens."""
        last = int(self._params.prompt_length[s.slot]) - 1
        end = min(s.start + s.num_tokens, last)
        top = int(self._params.prompt_logprobs[s.slot])
        found = []
        for first in range(s.start, end, LOGITS_TILE):
            positions = np.arange(first + 1, min(first + LOGITS_TILE, end) + 1)
            index = self._pool.flat_index(np.full_like(positions, s.slot), positions)
            tokens = self._pool.gather(upload(index, hidden.device))
            n = positions.size
            logits = self._model.logits(hidden[first - s.start : first - s.start + n])
            tensors = sampling.token_logprobs(logits, tokens, top)
            found.append(LogprobRows([s.sequence_id] * n, [top] * n, tensors))
        return found

"""A step's results on their way back to the scheduler."""

from dataclasses import dataclass

from torch import Tensor

from rose.core.step import ModelRunnerOutput
from rose.kernels.sampling import LogprobTensors
from rose.protocol import TokenLogprobs
from rose.worker.upload import Download


@dataclass(frozen=True, slots=True)
class LogprobRows:
    """Log-probabilities of some rows, and whose they are.

    Attributes:
        sequence_ids: one a row; a sequence with several rows is named several times, in order.
        top: how many alternatives each row asked for; `tensors` may hold more.
        tensors: rows as in `sequence_ids`.
    """

    sequence_ids: list[int]
    top: list[int]
    tensors: LogprobTensors

    def download(self, to: Download) -> "LogprobRows":
        """The same, with the tensors on their way to the host."""
        t = self.tensors
        copied = LogprobTensors(
            to.add(t.token),
            to.add(t.logprob),
            to.add(t.rank),
            to.add(t.top_token),
            to.add(t.top_logprob),
        )
        return LogprobRows(self.sequence_ids, self.top, copied)

    def collect(self, into: dict[int, list[TokenLogprobs]]) -> None:
        """Append each row to its sequence's list."""
        t = self.tensors
        columns = zip(
            self.sequence_ids,
            self.top,
            t.token.tolist(),
            t.logprob.tolist(),
            t.rank.tolist(),
            t.top_token.tolist(),
            t.top_logprob.tolist(),
            strict=True,
        )
        for sequence_id, top, token, logprob, rank, ids, values in columns:
            best = list(zip(ids[:top], values[:top], strict=True))
            into.setdefault(sequence_id, []).append(TokenLogprobs(token, logprob, rank, best))


class PendingStep:
    """A StepHandle: the step is enqueued, its results are being copied to the host."""

    def __init__(
        self,
        step_id: int,
        *,
        token_ids: Tensor | None,
        counts: Tensor | None,
        logprobs: LogprobRows | None,
        prompt_logprobs: list[LogprobRows],
        failed: frozenset[int],
        download: Download,
    ) -> None:
        self._step_id = step_id
        self._failed = failed
        self._download = download
        self._token_ids = None if token_ids is None else download.add(token_ids)
        self._counts = None if counts is None else download.add(counts)
        self._logprobs = None if logprobs is None else logprobs.download(download)
        self._prompt_logprobs = [rows.download(download) for rows in prompt_logprobs]
        download.close()

    def result(self) -> ModelRunnerOutput:
        """Wait for the step, and for nothing enqueued after it."""
        self._download.wait()
        output = ModelRunnerOutput(self._step_id, token_ids=self._accepted(), failed=self._failed)
        if self._logprobs is not None:
            self._logprobs.collect(output.logprobs)
        for rows in self._prompt_logprobs:
            rows.collect(output.prompt_logprobs)
        return output

    def _accepted(self) -> list[list[int]]:
        if self._token_ids is None:
            return []
        rows: list[list[int]] = self._token_ids.tolist()
        if self._counts is None:
            return rows
        counts: list[int] = self._counts.tolist()
        return [ids[:count] for ids, count in zip(rows, counts, strict=True)]

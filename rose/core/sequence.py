"""A sequence: one continuation of a request's prompt, in flight."""

from dataclasses import dataclass, field, replace
from enum import Enum

from rose.core.block_manager import BlockTable
from rose.core.step import NewSequence
from rose.protocol import (
    SEED_LIMIT,
    FinishReason,
    Grammar,
    Request,
    RequestOutput,
    SamplingParams,
    TokenLogprobs,
)


class SequenceStatus(Enum):
    """Where a sequence stands."""

    WAITING = "waiting"  # holds no slot and no block: new, or preempted
    RUNNING = "running"  # holds a slot and blocks
    FINISHED = "finished"


_LEGAL = frozenset(
    {
        (SequenceStatus.WAITING, SequenceStatus.RUNNING),
        (SequenceStatus.RUNNING, SequenceStatus.WAITING),
        (SequenceStatus.WAITING, SequenceStatus.FINISHED),
        (SequenceStatus.RUNNING, SequenceStatus.FINISHED),
    }
)


class IllegalTransitionError(RuntimeError):
    """A sequence was to change into a status that does not follow from its own: a bug in Rose."""


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """All that the scheduler knows of a sequence.

    Attributes:
        sequence_id: unique over the engine's life.
        request_id: whose sequence it is.
        index: which of the request's n.
        priority: the request's.
        token_ids: prompt and output, as far as known.
        num_prompt_tokens: where the output starts in `token_ids`.
        sampling: as the worker shall see it; without prompt_logprobs once those are delivered.
        seed: its own.
        stop_token_ids: ids that end it.
        length_limit: prompt and output together never exceed this many tokens.
        grammar: what its output must follow. Such a sequence runs only when all its ids are known.
        queue_key: its place among others, lowest first; set once, on arrival.
        status: see SequenceStatus; changed through `change_status` only.
        slot: its row of the worker's state, or -1.
        num_computed: positions that enqueued steps compute.
        num_pending: ids that enqueued steps sample and that are not yet known.
        table: its KV blocks.
        num_cached_tokens: prompt tokens that the prefix cache held when it first ran.
        num_admissions: how often it took a slot.
        prompt_logprobs: by position from the second token on, until delivered; None if unwanted.
    """

    sequence_id: int
    request_id: str
    index: int
    priority: int
    token_ids: list[int]
    num_prompt_tokens: int
    sampling: SamplingParams
    seed: int
    stop_token_ids: tuple[int, ...]
    length_limit: int
    grammar: Grammar | None = None
    queue_key: tuple[int, int, int] = (0, 0, 0)
    status: SequenceStatus = SequenceStatus.WAITING
    slot: int = -1
    num_computed: int = 0
    num_pending: int = 0
    table: BlockTable = field(default_factory=BlockTable)
    num_cached_tokens: int = 0
    num_admissions: int = 0
    prompt_logprobs: list[TokenLogprobs | None] | None = None

    def change_status(self, status: SequenceStatus) -> None:
        """Move on.

        Raises:
            IllegalTransitionError: `status` cannot follow the present one.
        """
        if (self.status, status) not in _LEGAL:
            raise IllegalTransitionError(
                f"sequence {self.sequence_id} ({self.request_id!r}) is {self.status.value} and "
                f"cannot become {status.value}"
            )
        self.status = status

    def new_sequence(self) -> NewSequence:
        """What the worker needs to set up its slot; a copy, since more ids will follow here."""
        return NewSequence(
            self.sequence_id,
            self.slot,
            list(self.token_ids),
            self.num_prompt_tokens,
            self.sampling,
            self.seed,
            self.stop_token_ids,
            self.grammar,
        )

    def accept(self, ids: list[int]) -> FinishReason | None:
        """Append sampled ids; `ids` itself is cut after the one that ends the sequence.

        Raises:
            ValueError: there are none.
        """
        if not ids:
            raise ValueError(f"sequence {self.sequence_id} was sampled and got no id")
        token_ids, least = self.token_ids, self.num_prompt_tokens + self.sampling.min_tokens
        for position, token in enumerate(ids):
            token_ids.append(token)
            if token in self.stop_token_ids and len(token_ids) > least:
                del ids[position + 1 :]
                return FinishReason.STOP
            if len(token_ids) >= self.length_limit:
                del ids[position + 1 :]
                return FinishReason.LENGTH
        return None

    def output(self, ids: list[int], reason: FinishReason | None) -> RequestOutput:
        """What the client is told of new ids."""
        return RequestOutput(
            self.request_id,
            self.index,
            ids,
            reason,
            None,
            None,
            self.num_prompt_tokens,
            self.num_cached_tokens,
        )

    def collect_prompt_logprobs(self, start: int, entries: list[TokenLogprobs]) -> None:
        """Keep what a step from position `start` found for the tokens after each of its own.

        By position: after a preemption the same positions come again.
        """
        if self.prompt_logprobs is not None:
            self.prompt_logprobs[start : start + len(entries)] = entries

    def inherit_prompt_logprobs(self, ended: "Sequence") -> None:
        """Deliver, in place of a sibling that ended before its first id, what it still owed."""
        if ended.prompt_logprobs is not None:
            self.prompt_logprobs, self.sampling = ended.prompt_logprobs, ended.sampling

    def take_prompt_logprobs(self) -> list[TokenLogprobs] | None:
        """The collected entries, once; the worker need not compute them again."""
        if self.prompt_logprobs is None:
            return None
        entries = [entry for entry in self.prompt_logprobs if entry is not None]
        if len(entries) != self.num_prompt_tokens - 1:
            raise RuntimeError(
                f"request {self.request_id!r}: {len(entries)} prompt logprobs arrived for "
                f"{self.num_prompt_tokens - 1} prompt tokens"
            )
        self.prompt_logprobs = None
        self.sampling = replace(self.sampling, prompt_logprobs=None)
        return entries


def sequence_seed(request_seed: int, index: int) -> int:
    """A seed in [0, SEED_LIMIT) for one of a request's sequences.

    Two rounds of SplitMix64's finalizer (Steele et al. 2014), so that neighbouring seeds and
    indices give unrelated streams.
    """
    return _mix(_mix(request_seed) + index) % SEED_LIMIT


def _mix(value: int) -> int:
    mask = 2**64 - 1
    value = (value + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def make_sequences(
    request: Request,
    *,
    first_id: int,
    seed: int,
    eos_token_ids: tuple[int, ...],
    longest: int,
) -> list[Sequence]:
    """The n sequences of a request.

    Args:
        request: a valid one.
        first_id: sequence id of the first; the others follow.
        seed: the request's, or one drawn for it.
        eos_token_ids: the model's.
        longest: the longest sequence that the engine holds, in tokens.
    """
    sampling = request.sampling
    eos = () if sampling.ignore_eos else eos_token_ids
    stop_ids = tuple(dict.fromkeys((*sampling.stop_token_ids, *eos)))
    num_prompt = len(request.prompt_token_ids)
    limit = longest
    if sampling.max_tokens is not None:
        limit = min(longest, num_prompt + sampling.max_tokens)
    # Prompt logprobs are delivered once, with sequence 0; the others need not compute them.
    others = sampling if sampling.n == 1 else replace(sampling, prompt_logprobs=None)
    wanted = sampling.prompt_logprobs is not None
    return [
        Sequence(
            sequence_id=first_id + index,
            request_id=request.request_id,
            index=index,
            priority=request.priority,
            token_ids=list(request.prompt_token_ids),
            num_prompt_tokens=num_prompt,
            sampling=others if index else sampling,
            seed=sequence_seed(seed, index),
            stop_token_ids=stop_ids,
            length_limit=limit,
            grammar=request.grammar,
            prompt_logprobs=[None] * (num_prompt - 1) if wanted and index == 0 else None,
        )
        for index in range(sampling.n)
    ]

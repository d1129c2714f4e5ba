"""The scheduler: which sequences run next, how many tokens of each, and what came of it.

Continuous batching with chunked prefill. `schedule()` may be called for step N+1 before
`update()` of step N: a sequence whose newest id is still pending is scheduled all the same, since
the worker finds the id in its token pool. A sequence with a grammar waits for its id, which decides
what may follow; the others go on meanwhile. What cannot be foreseen, a stop token in N, makes one
row of N+1 void; `update()` ignores it. Blocks that were freed may be reused at once, because
steps run in the order in which they are enqueued.
"""

from bisect import insort

from rose.config import FULL, SLIDING, CacheConfig, ConfigError, SchedulerConfig
from rose.core.block_manager import BlockManager
from rose.core.block_pool import IntegrityError
from rose.core.sequence import Sequence, SequenceStatus
from rose.core.step import ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from rose.core.waiting_queue import WaitingQueue
from rose.protocol import EngineStats, FinishReason, RequestOutput, TokenLogprobs

WATERMARK = 64
"""An admission beside running sequences leaves 1/WATERMARK of each group's blocks free, so that
those do not run into preemption right away."""


class Scheduler:
    """Keeps every live sequence, and decides step by step.

    Sequences run in the order of their queue keys: arrival + priority * priority_aging, fixed on
    arrival. Only finitely many sequences can ever come before a given one, so none starves.

    Raises:
        ConfigError: the KV cache cannot hold one chunk.
    """

    def __init__(self, config: SchedulerConfig, cache: CacheConfig) -> None:
        self.chunk_size = min(config.chunk_size, config.max_batched_tokens)
        self.longest_sequence = cache.longest_sequence(self.chunk_size)
        if self.longest_sequence < 1:
            raise ConfigError(
                f"a chunk of {self.chunk_size} tokens needs "
                f"{cache.windowed_blocks(self.chunk_size)} blocks of the sliding group, which has "
                f"{cache.num_blocks[SLIDING]}: make the chunk size smaller or the cache larger"
            )
        self.blocks = BlockManager(cache)
        self._cache = cache
        self._budget = config.max_batched_tokens
        self._aging = config.priority_aging
        # A chunk cut smaller than this by the budget waits for a later step. A sequence's even
        # share of the budget always passes, so the first in order never waits.
        self._least_chunk = min(cache.block_size, self._budget // config.max_num_seqs)
        full, sliding = cache.num_blocks
        self._watermark = (max(1, full // WATERMARK), max(1, sliding // WATERMARK))
        self._free_slots = list(range(config.max_num_seqs - 1, -1, -1))
        self._num_slots = config.max_num_seqs
        self._sequences: dict[int, Sequence] = {}
        self._requests: dict[str, list[Sequence]] = {}
        self._held_back: dict[str, list[Sequence]] = {}  # siblings that wait for the first
        self._waiting = WaitingQueue()
        self._running: list[Sequence] = []  # by queue key
        self._chunked: list[Sequence] = []  # ran more than one token in the latest step
        self._arrivals = 0
        self._next_step_id = 0
        self._counters = EngineStats()

    # Requests in and out

    def add(self, sequences: list[Sequence]) -> None:
        """Queue the sequences of one request, in the order of their index.

        Raises:
            ValueError: the request is known already, or could outgrow the cache.
        """
        request_id = sequences[0].request_id
        if request_id in self._requests:
            raise ValueError(f"request {request_id!r} is in flight already")
        arrival = self._arrivals
        for sequence in sequences:
            if sequence.length_limit > self.longest_sequence:
                raise ValueError(
                    f"request {request_id!r} may grow to {sequence.length_limit} tokens; the "
                    f"cache holds {self.longest_sequence}"
                )
            key = arrival + sequence.priority * self._aging
            sequence.queue_key = (key, arrival, sequence.index)
        self._arrivals += 1
        self._sequences.update((sequence.sequence_id, sequence) for sequence in sequences)
        self._requests[request_id] = list(sequences)
        self._waiting.push(sequences[0])
        if len(sequences) > 1:
            # They share the prompt's blocks once the first has filled them.
            self._held_back[request_id] = sequences[1:]

    def abort(self, request_id: str, index: int | None = None) -> list[RequestOutput]:
        """End one sequence of a request, or all that are left, and free its blocks at once.

        Nothing happens if it is unknown or has ended.

        Returns:
            The last output of each sequence that this ended.
        """
        live = self._requests.get(request_id, ())
        sequences = [sequence for sequence in live if index in (None, sequence.index)]
        for sequence in sequences:
            self._finish(sequence)
        self._drop_finished()
        self._replace_first(request_id, sequences)
        return [sequence.output([], FinishReason.ABORT) for sequence in sequences]

    def _replace_first(self, request_id: str, ended: list[Sequence]) -> None:
        """If the sequence that its siblings wait for has ended, let the next one go first."""
        held_back = self._held_back.get(request_id)
        if held_back and len(held_back) == len(self._requests[request_id]):
            successor = held_back.pop(0)
            for sequence in ended:
                successor.inherit_prompt_logprobs(sequence)
            self._waiting.push(successor)

    def has_request(self, request_id: str) -> bool:
        """Whether any sequence of this request is live."""
        return request_id in self._requests

    def has_sequences(self) -> bool:
        """Whether anything is live."""
        return bool(self._sequences)

    def stats(self) -> EngineStats:
        """Counters and gauges as of now; a fresh object."""
        counters = self._counters
        return EngineStats(
            running=len(self._running),
            waiting=len(self._sequences) - len(self._running),
            kv_blocks_used=self.blocks.num_used(),
            kv_blocks_total=self._cache.num_blocks,
            steps=counters.steps,
            prompt_tokens=counters.prompt_tokens,
            cached_prompt_tokens=counters.cached_prompt_tokens,
            generated_tokens=counters.generated_tokens,
            preemptions=counters.preemptions,
        )

    # One step

    def schedule(self) -> SchedulerOutput:
        """Choose the next step; its blocks are taken, and its positions count as computed.

        Without any sequence to run, the step is empty and need not be executed.
        """
        step = SchedulerOutput(self._next_step_id)
        for sequence in self._chunked:
            # One that has left has no computed positions, so this does nothing for it.
            self.blocks.register(sequence.table, sequence.token_ids, sequence.num_computed)
        self._chunked.clear()
        self._schedule_running(step)
        self._admit_waiting(step)
        if step.sequences:
            self._next_step_id += 1
            self._counters.steps += 1
        return step

    def _schedule_running(self, step: SchedulerOutput) -> None:
        running, append = self._running, step.sequences.append
        block_size, used = self.blocks.block_size, 0
        # Preemption removes from the end of the list, never before the sequence at hand.
        for index, sequence in enumerate(running):
            constrained = sequence.grammar is not None
            if constrained and sequence.num_pending:
                continue  # the id on its way decides what may follow
            start = sequence.num_computed
            known_or_pending = len(sequence.token_ids) + sequence.num_pending
            count = known_or_pending - start
            if count > 1:
                # One token each stays reserved for those that come after.
                limit = self._budget - used - (len(running) - index - 1)
                count = self._chunk(count, limit)
                if not count:
                    continue
            elif known_or_pending >= sequence.length_limit:
                continue  # pending ids will finish it
            new_blocks = None
            if count > 1 or not start % block_size:
                new_blocks = self._grow(sequence, start, count)
                if new_blocks is None:
                    break
            end = start + count
            samples = end == known_or_pending
            known_ids = sequence.token_ids[start:] if constrained and samples else None
            append(
                ScheduledSequence(
                    sequence.sequence_id,
                    sequence.slot,
                    start,
                    count,
                    samples,
                    new_blocks,
                    known_ids,
                )
            )
            sequence.num_computed = end
            if samples:
                sequence.num_pending += 1
            if count > 1:
                self._chunked.append(sequence)
            used += count
        step.num_tokens = used

    def _chunk(self, count: int, limit: int) -> int:
        """How many of `count` tokens to run under a budget of `limit`; 0: wait."""
        count = min(count, self.chunk_size)
        if limit >= count:
            return count
        return limit if limit >= self._least_chunk else 0

    def _grow(
        self, sequence: Sequence, start: int, count: int
    ) -> tuple[tuple[int, ...], ...] | None:
        """New blocks for a running sequence; None if it had to give way itself."""
        while True:
            blocks = self.blocks.grow(sequence.table, sequence.token_ids, start, count)
            if blocks is not None:
                return blocks
            victim = self._running.pop()
            self._leave(victim)
            victim.change_status(SequenceStatus.WAITING)
            self._waiting.push(victim)
            self._counters.preemptions += 1
            if victim is sequence:
                return None

    def _admit_waiting(self, step: SchedulerOutput) -> None:
        # Strictly in order: one that does not fit holds up the rest, or it might never fit.
        while self._free_slots:
            sequence = self._waiting.peek()
            if sequence is None or sequence.num_pending or not self._admit(step, sequence):
                return

    def _admit(self, step: SchedulerOutput, sequence: Sequence) -> bool:
        """Let a sequence run its first chunk, unless budget or blocks are short."""
        blocks, table, token_ids = self.blocks, sequence.table, sequence.token_ids
        length = len(token_ids)
        # The logits of a prompt come only from computing it.
        wants_all = sequence.prompt_logprobs is not None
        prefix = 0 if wants_all else blocks.find_prefix(table, token_ids)
        count = self._chunk(length - prefix, self._budget - step.num_tokens)
        if not count:
            return False
        # Room for the rest of its tokens too, or it would soon be preempted.
        rest = blocks.still_to_come(length, prefix, count, self.chunk_size)
        spare = self._watermark if self._running else (0, 0)
        reserve = (rest[FULL] + spare[FULL], rest[SLIDING] + spare[SLIDING])
        new_blocks = blocks.admit(table, prefix, count, reserve)
        if new_blocks is None:
            return False
        self._waiting.pop()
        sequence.change_status(SequenceStatus.RUNNING)
        sequence.slot = self._free_slots.pop()
        insort(self._running, sequence, key=_queue_key)
        if sequence.num_admissions == 0:
            sequence.num_cached_tokens = prefix
            self._counters.prompt_tokens += length
            self._counters.cached_prompt_tokens += prefix
        sequence.num_admissions += 1
        samples = prefix + count == length
        sequence.num_computed = prefix + count
        sequence.num_pending += samples
        self._chunked.append(sequence)
        step.new_sequences.append(sequence.new_sequence())
        step.sequences.append(
            ScheduledSequence(
                sequence.sequence_id, sequence.slot, prefix, count, samples, new_blocks
            )
        )
        step.num_tokens += count
        return True

    # Results

    def update(self, step: SchedulerOutput, result: ModelRunnerOutput) -> list[RequestOutput]:
        """Take in what a step computed.

        Args:
            step: what `schedule` returned; steps are updated in the order of their ids.
            result: its result.

        Returns:
            One output for each sequence that got ids.

        Raises:
            ValueError: the result is not this step's.
        """
        if result.step_id != step.step_id:
            raise ValueError(f"result of step {result.step_id} given for step {step.step_id}")
        if result.prompt_logprobs:
            self._collect_prompt_logprobs(step, result.prompt_logprobs)
        outputs: list[RequestOutput] = []
        sequences, logprobs = self._sequences, result.logprobs
        position, finished = 0, False
        for row in step.sequences:
            if not row.samples:
                continue
            ids = result.token_ids[position]
            position += 1
            sequence = sequences.get(row.sequence_id)
            if sequence is None:
                continue  # it ended while this step was in flight
            sequence.num_pending -= 1
            first = len(sequence.token_ids) == sequence.num_prompt_tokens
            reason: FinishReason | None = FinishReason.ERROR
            if row.sequence_id in result.failed:
                ids = []
            else:
                reason = sequence.accept(ids)
            output = sequence.output(ids, reason)
            if logprobs:
                entries = logprobs.get(row.sequence_id)
                output.logprobs = None if entries is None else entries[: len(output.token_ids)]
            if first:
                self._first_output(sequence, output)
            if reason is not None:
                self._finish(sequence)
                finished = True
            outputs.append(output)
            self._counters.generated_tokens += len(output.token_ids)
        if finished:
            self._drop_finished()
        return outputs

    def _collect_prompt_logprobs(
        self, step: SchedulerOutput, entries: dict[int, list[TokenLogprobs]]
    ) -> None:
        for row in step.sequences:
            sequence = self._sequences.get(row.sequence_id)
            if sequence is not None and row.sequence_id in entries:
                sequence.collect_prompt_logprobs(row.start, entries[row.sequence_id])

    def _first_output(self, sequence: Sequence, output: RequestOutput) -> None:
        """The prompt is done: deliver its logprobs, and let the siblings share its blocks."""
        output.prompt_logprobs = sequence.take_prompt_logprobs()
        if sequence.request_id in self._held_back:  # then this is the first of its siblings
            self.blocks.register(sequence.table, sequence.token_ids, sequence.num_computed)
            for sibling in self._held_back.pop(sequence.request_id):
                self._waiting.push(sibling)

    def _leave(self, sequence: Sequence) -> None:
        """Give up slot and blocks; the blocks' content stays findable."""
        self.blocks.register(sequence.table, sequence.token_ids, sequence.num_computed)
        self.blocks.free(sequence.table)
        self._free_slots.append(sequence.slot)
        sequence.slot = -1
        sequence.num_computed = 0

    def _finish(self, sequence: Sequence) -> None:
        """End a live sequence. The caller drops it from the running ones, all in one go."""
        was_running = sequence.status is SequenceStatus.RUNNING
        sequence.change_status(SequenceStatus.FINISHED)
        held_back = self._held_back.get(sequence.request_id, [])
        if was_running:
            self._leave(sequence)
        elif sequence in held_back:
            held_back.remove(sequence)
        else:
            self._waiting.discard()
        del self._sequences[sequence.sequence_id]
        siblings = self._requests[sequence.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self._requests[sequence.request_id]
            self._held_back.pop(sequence.request_id, None)

    def _drop_finished(self) -> None:
        alive = SequenceStatus.RUNNING
        self._running = [sequence for sequence in self._running if sequence.status is alive]

    def check_integrity(self) -> None:
        """Check the books against each other and against the block manager's.

        Raises:
            IntegrityError: they disagree.
        """
        live = self._sequences.values()
        self.blocks.check_integrity(sequence.table for sequence in live)
        running = [s for s in live if s.status is SequenceStatus.RUNNING]
        if sorted(running, key=_queue_key) != self._running:
            raise IntegrityError("the running list is not the running sequences by queue key")
        slots = sorted([*self._free_slots, *(s.slot for s in running)])
        if slots != list(range(self._num_slots)):
            raise IntegrityError(f"free and used slots together are {slots}")
        held_back = sum(len(siblings) for siblings in self._held_back.values())
        if len(running) + len(self._waiting) + held_back != len(live):
            raise IntegrityError("a live sequence is neither running nor waiting, or is both")
        for sequence in live:
            table = sequence.table
            held = 0 if sequence.status is not SequenceStatus.RUNNING else sequence.num_computed
            if len(table.groups[FULL]) != self.blocks.blocks_for(held):
                raise IntegrityError(
                    f"sequence {sequence.sequence_id} has {len(table.groups[FULL])} blocks for "
                    f"{held} positions"
                )


def _queue_key(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.queue_key

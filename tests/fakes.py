"""A fake executor: a "model" that is a pure function, behind the real protocol.

Like a worker, it knows only what the steps tell it: it keeps a token pool and block tables a slot,
and a simulated KV cache in which each place holds a digest of all tokens up to its position. Before
a row runs, every place that attention would read must hold the sequence's own prefix. So a bug in
prefix reuse, sliding windows, preemption or freeing shows at once, and a skipped or repeated
position changes the output, which `expected_output` computes without any of this machinery.
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from rose.config import (
    FULL,
    SLIDING,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    RopeConfig,
    SchedulerConfig,
)
from rose.core.sequence import sequence_seed
from rose.core.step import ModelRunnerOutput, NewSequence, ScheduledSequence, SchedulerOutput
from rose.engine.engine import Engine
from rose.protocol import Grammar, Request, SamplingParams, TokenLogprobs

MASK = 2**64 - 1
EMPTY = 0x243F6A8885A308D3


def extend_digest(digest: int, token: int) -> int:
    """The digest of a prefix and one more token; 64 bits."""
    value = ((digest ^ token) * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & MASK
    return value ^ (value >> 29)


def digest_of(tokens: Sequence[int]) -> int:
    digest = EMPTY
    for token in tokens:
        digest = extend_digest(digest, token)
    return digest


def next_token(
    digest: int,
    num_output: int,
    sampling: SamplingParams,
    seed: int,
    stop_ids: tuple[int, ...],
    vocab_size: int,
) -> int:
    """The fake model: a function of all tokens so far and, unless greedy, of the seed."""
    salt = seed if sampling.temperature > 0 else 0
    token = (extend_digest(digest, salt) >> 7) % vocab_size
    while num_output < sampling.min_tokens and token in stop_ids:
        token = (token + 1) % vocab_size
    return token


def token_logprobs(digest: int, token: int, count: int) -> TokenLogprobs:
    """Made-up log-probabilities, a function of the prefix before the token and the token."""
    value = -((extend_digest(digest, token) >> 11) % 1000) / 100
    return TokenLogprobs(token, value, 1, [(token, value)] * count)


def expected_output(
    request: Request, index: int, *, vocab_size: int, eos: tuple[int, ...], longest: int
) -> list[int]:
    """The output ids of one of a request's sequences, by the fake model's definition alone.

    A request without a seed must be greedy, since the engine draws the seed.
    """
    sampling = request.sampling
    seed = sequence_seed(sampling.seed or 0, index)
    stop_ids = (*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos))
    limit = longest - len(request.prompt_token_ids)
    if sampling.max_tokens is not None:
        limit = min(limit, sampling.max_tokens)
    digest, output = digest_of(request.prompt_token_ids), list[int]()
    while len(output) < limit:
        token = next_token(digest, len(output), sampling, seed, stop_ids, vocab_size)
        output.append(token)
        digest = extend_digest(digest, token)
        if token in stop_ids and len(output) > sampling.min_tokens:
            break
    return output


class _Slot:
    def __init__(self, new: NewSequence) -> None:
        self.new = new
        self.tokens: list[int] = []
        self.digests: list[int] = []  # of the prefix that ends with each token
        self.tables: tuple[list[int], list[int]] = ([], [])
        self.computed: int | None = None  # positions in the KV cache; None until the first row
        for token in new.token_ids:
            self.append(token)

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.digests.append(extend_digest(self.digests[-1] if self.digests else EMPTY, token))


class FakeHandle:
    """A step that runs, behind all steps before it, when its result is asked for."""

    def __init__(self, executor: "FakeExecutor", step: SchedulerOutput) -> None:
        self.executor = executor
        self.step = step
        self.num_new_tokens = [len(new.token_ids) for new in step.new_sequences]
        self.output: ModelRunnerOutput | None = None

    def result(self) -> ModelRunnerOutput:
        while self.output is None:
            self.executor.run_oldest()
        return self.output


class FakeExecutor:
    """Runs steps on the fake model and checks every rule of the protocol on the way.

    Args:
        vocab_size: ids are in [0, vocab_size).
        ids_per_step: accepted ids a sampling row, as a speculative decoder would give.
        fail_at_step: raise RuntimeError in the result of this step.
    """

    def __init__(
        self, vocab_size: int = 256, ids_per_step: int = 1, fail_at_step: int | None = None
    ) -> None:
        self.vocab_size = vocab_size
        self.ids_per_step = ids_per_step
        self.fail_at_step = fail_at_step
        self.is_shut_down = False
        self.num_rows = 0
        self.most_tokens = 0  # of any step
        self.most_rows = 0
        self._queue: deque[FakeHandle] = deque()
        self._slots: dict[int, _Slot] = {}
        self._next_step_id = 0

    def kv_bytes(self) -> int:
        return 1 << 20

    def block_bytes(self, block_size: int) -> Sequence[int]:
        return [64 * block_size, 64 * block_size]

    def allocate(self, cache: CacheConfig, max_model_len: int) -> None:
        self.cache = cache
        self.max_model_len = max_model_len
        size = cache.block_size
        self._kv = tuple([0] * (count * size) for count in cache.num_blocks)

    def check_grammar(self, grammar: Grammar) -> None:
        """Take any: the ids that come back follow none."""

    def submit(self, step: SchedulerOutput) -> FakeHandle:
        assert not self.is_shut_down, "a step after shutdown"
        assert step.step_id == self._next_step_id, "steps come out of order"
        self._next_step_id += 1
        self._check_step(step)
        self.most_tokens = max(self.most_tokens, step.num_tokens)
        self.most_rows = max(self.most_rows, len(step.sequences))
        handle = FakeHandle(self, step)
        self._queue.append(handle)
        return handle

    def shutdown(self) -> None:
        self.is_shut_down = True

    @staticmethod
    def _check_step(step: SchedulerOutput) -> None:
        rows = step.sequences
        assert rows, "an empty step"
        assert step.num_tokens == sum(row.num_tokens for row in rows)
        assert len({row.sequence_id for row in rows}) == len(rows), "a sequence runs twice"
        assert len({row.slot for row in rows}) == len(rows), "two rows share a slot"
        placed = {(row.sequence_id, row.slot) for row in rows}
        for new in step.new_sequences:
            assert (new.sequence_id, new.slot) in placed, "a new sequence does not run"

    def run_oldest(self) -> None:
        handle = self._queue.popleft()
        step = handle.step
        if step.step_id == self.fail_at_step:
            raise RuntimeError(f"step {step.step_id} was told to fail")
        for new, length in zip(step.new_sequences, handle.num_new_tokens, strict=True):
            assert len(new.token_ids) == length, "a step changed after it was submitted"
            self._slots[new.slot] = _Slot(new)
        rows = [(row, self._slots[row.slot]) for row in step.sequences]
        for row, slot in rows:
            self._begin_row(row, slot)
        # What a step reads beside its own tokens must have been written by earlier steps.
        for row, slot in rows:
            self._check_visible(row, slot, row.start)
        for row, slot in rows:
            self._write(row, slot)
        for row, slot in rows:
            self._check_visible(row, slot, row.start + row.num_tokens)
        handle.output = self._sample(step.step_id, rows)
        self.num_rows += len(rows)

    def _begin_row(self, row: ScheduledSequence, slot: _Slot) -> None:
        size = self.cache.block_size
        assert slot.new.sequence_id == row.sequence_id, "the slot holds another sequence"
        if slot.computed is None:
            assert row.start % size == 0, "a reused prefix ends inside a block"
        else:
            assert row.start == slot.computed, "a position was skipped or repeated"
        end = row.start + row.num_tokens
        assert row.num_tokens >= 1
        assert end <= len(slot.tokens), "a token runs that nobody knows"
        assert end < self.max_model_len
        assert row.samples == (end == len(slot.tokens))
        slot.computed = end
        for group in (FULL, SLIDING):
            table = slot.tables[group]
            table.extend(row.new_blocks[group] if row.new_blocks else ())
            assert len(table) == -(-end // size), "the block table does not fit the positions"
            assert all(0 <= block < self.cache.num_blocks[group] for block in table)

    def _check_visible(self, row: ScheduledSequence, slot: _Slot, end: int) -> None:
        size = self.cache.block_size
        for group in (FULL, SLIDING):
            first = max(0, row.start - self.cache.window + 1) if group == SLIDING else 0
            position = first
            while position < end:
                stop = min(end, (position // size + 1) * size)
                place = slot.tables[group][position // size] * size + position % size
                found = self._kv[group][place : place + stop - position]
                assert found == slot.digests[position:stop], (
                    f"sequence {row.sequence_id} at {row.start}: group {group} holds foreign KV "
                    f"at positions {position} to {stop}"
                )
                position = stop

    def _write(self, row: ScheduledSequence, slot: _Slot) -> None:
        size = self.cache.block_size
        for position in range(row.start, row.start + row.num_tokens):
            for group in (FULL, SLIDING):
                place = slot.tables[group][position // size] * size + position % size
                self._kv[group][place] = slot.digests[position]

    def _sample(
        self, step_id: int, rows: list[tuple[ScheduledSequence, _Slot]]
    ) -> ModelRunnerOutput:
        output = ModelRunnerOutput(step_id, [])
        for row, slot in rows:
            sampling = slot.new.sampling
            if sampling.prompt_logprobs is not None:
                output.prompt_logprobs[row.sequence_id] = _prompt_entries(row, slot)
            if not row.samples:
                continue
            ids, entries = list[int](), list[TokenLogprobs]()
            for _ in range(self.ids_per_step):
                token = self._next(slot)
                ids.append(token)
                if sampling.logprobs is not None:
                    entries.append(token_logprobs(slot.digests[-1], token, sampling.logprobs))
                slot.append(token)
            output.token_ids.append(ids)
            if sampling.logprobs is not None:
                output.logprobs[row.sequence_id] = entries
        return output

    def _next(self, slot: _Slot) -> int:
        new = slot.new
        return next_token(
            slot.digests[-1],
            len(slot.tokens) - new.num_prompt_tokens,
            new.sampling,
            new.seed,
            new.stop_token_ids,
            self.vocab_size,
        )


def _prompt_entries(row: ScheduledSequence, slot: _Slot) -> list[TokenLogprobs]:
    end = min(row.start + row.num_tokens + 1, slot.new.num_prompt_tokens)
    count = slot.new.sampling.prompt_logprobs or 0
    return [
        token_logprobs(slot.digests[position - 1], slot.tokens[position], count)
        for position in range(row.start + 1, end)
    ]


def expected_prompt_logprobs(request: Request) -> list[TokenLogprobs]:
    """What the fake model reports for a prompt."""
    entries, digest = list[TokenLogprobs](), EMPTY
    for position, token in enumerate(request.prompt_token_ids):
        if position:
            count = request.sampling.prompt_logprobs or 0
            entries.append(token_logprobs(digest, token, count))
        digest = extend_digest(digest, token)
    return entries


def fake_model_config(
    *, vocab_size: int = 256, window: int = 8, eos: tuple[int, ...] = (1,)
) -> ModelConfig:
    """A model configuration that no one computes with."""
    return ModelConfig(
        architecture="GptOssForCausalLM",
        num_layers=2,
        hidden_size=64,
        intermediate_size=64,
        num_heads=2,
        num_kv_heads=1,
        head_dim=32,
        vocab_size=vocab_size,
        num_experts=4,
        experts_per_token=2,
        layer_types=("sliding_attention", "full_attention"),
        sliding_window=window,
        max_position_embeddings=4096,
        rope=RopeConfig(150000.0, 1.0, 32.0, 1.0, 4096, False),
        rms_norm_eps=1e-5,
        swiglu_limit=7.0,
        attention_bias=True,
        checkpoint_quantization="",
        eos_token_ids=eos,
    )


def fake_engine(
    executor: FakeExecutor | None = None,
    *,
    scheduler: SchedulerConfig | None = None,
    cache: CacheConfig | None = None,
    max_model_len: int = 512,
    eos: tuple[int, ...] = (1,),
) -> Engine:
    """A real engine over a fake executor; defaults suit most tests."""
    executor = executor or FakeExecutor()
    scheduler = scheduler or SchedulerConfig(max_num_seqs=8, max_batched_tokens=64, chunk_size=32)
    cache = cache or CacheConfig(block_size=4, num_blocks=(256, 128), window=8)
    model = fake_model_config(vocab_size=executor.vocab_size, window=cache.window, eos=eos)
    config = EngineConfig(
        model=model,
        path=Path("fake"),
        served_name="fake",
        scheduler=scheduler,
        block_size=cache.block_size,
        num_blocks=cache.num_blocks,
        prefix_cache=cache.prefix_cache,
    )
    executor.allocate(cache, max_model_len)
    return Engine(config, executor, cache, max_model_len)

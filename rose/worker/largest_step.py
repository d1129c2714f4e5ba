"""Steps to be run before the KV cache is allocated: the largest, and a rehearsal of all sizes.

The largest takes the most memory. It is full in both ways in which a step can be: in tokens and in
sequences, all of which sample, with everything that sampling can be asked for. One sequence is as
long as any can be, which is what the length of block tables, split attention and penalties grow
with.
"""

from collections.abc import Iterator

from rose.config import FULL, SLIDING, CacheConfig, EngineConfig
from rose.core.step import NewSequence, ScheduledSequence, SchedulerOutput
from rose.protocol import SamplingParams

LONG_ROWS = 256
"""More tokens of a chunk fill the chip, so that attention does not split their keys."""

LOGPROBS = 20
"""Alternatives a token; what they take grows with the vocabulary, hardly with their number."""


def scratch_cache(config: EngineConfig) -> CacheConfig:
    """A cache of one block: memory depends on the lengths of sequences, not on their blocks."""
    return CacheConfig(
        block_size=config.block_size, num_blocks=(1, 1), window=config.model.sliding_window
    )


def largest_step(config: EngineConfig) -> SchedulerOutput:
    """A step that no other exceeds, for a worker with a `scratch_cache`.

    Chunks are as long as the scheduler makes them, the first at the end of the longest sequence;
    what is left of the sequences run one token each. All keys lie in the one block.
    """
    scheduler, longest = config.scheduler, config.longest_sequence
    chunk = min(scheduler.chunk_size, longest)
    spare = scheduler.max_batched_tokens - scheduler.max_num_seqs
    step = SchedulerOutput(step_id=0)
    for slot in range(scheduler.max_num_seqs):
        tokens = 1 + min(chunk - 1, spare)
        spare -= tokens - 1
        _add(step, config, tokens, longest if slot == 0 else tokens)
    return step


def rehearsal(config: EngineConfig) -> Iterator[SchedulerOutput]:
    """Steps of every size, for a worker with a `scratch_cache`.

    Fused kernels come in variants by how many rows they serve, and by whether few rows have many
    keys; each is compiled when it is first launched, which takes up to seconds. Powers of two meet
    every range of rows that ends at twice its start or later. Triton's tiles for MXFP4 experts of
    24 to 40 rows each have a narrower one: 3, 6, 12, ... lie halfway between, so that what ends at
    one and a half times its start is met; no variant for many keys, or for decoding alone, needs
    them. The largest size may be all that a variant serves. In steps of three tokens or more one
    sequence decodes, unless the others cannot hold the rest; in the last steps all do.
    """
    most, rows = config.scheduler.max_batched_tokens, config.scheduler.max_num_seqs
    chunk = min(config.scheduler.chunk_size, config.longest_sequence)
    for size in sorted(_sizes(most) | _between(most)):
        yield _step_of(config, size, chunk, long=False)
    for size in sorted(_sizes(min(most, LONG_ROWS))):
        yield _step_of(config, size, chunk, long=True)
    for size in sorted(_sizes(rows)):
        yield _step_of(config, size, 1, long=True)


def _sizes(most: int) -> set[int]:
    return {2**n for n in range(most.bit_length())} | {most}


def _between(most: int) -> set[int]:
    return {3 * 2**n for n in range((most // 3).bit_length())}


def _step_of(config: EngineConfig, size: int, chunk: int, *, long: bool) -> SchedulerOutput:
    """A step of `size` tokens, or as many as fit; `long`: two sequences are as long as can be."""
    scheduler, longest = config.scheduler, config.longest_sequence
    one_decodes = 2 < size <= 1 + (scheduler.max_num_seqs - 1) * chunk
    step = SchedulerOutput(step_id=0)
    while step.num_tokens < size and len(step.sequences) < scheduler.max_num_seqs:
        decodes = one_decodes and not step.sequences
        tokens = 1 if decodes else min(chunk, size - step.num_tokens)
        _add(step, config, tokens, longest if long and len(step.sequences) < 2 else tokens)
    return step


def _add(step: SchedulerOutput, config: EngineConfig, tokens: int, length: int) -> None:
    """One more sequence, of which the step runs the last `tokens` of `length` tokens."""
    slot = len(step.sequences)
    step.new_sequences.append(_new_sequence(slot, length, config.model.vocab_size))
    blocks = (0,) * -(-length // config.block_size)
    step.sequences.append(
        ScheduledSequence(
            sequence_id=slot,
            slot=slot,
            start=length - tokens,
            num_tokens=tokens,
            samples=True,
            new_blocks=tuple(blocks for _ in (FULL, SLIDING)),
        )
    )
    step.num_tokens += tokens


def _new_sequence(slot: int, length: int, vocab_size: int) -> NewSequence:
    # Each of these takes memory of its own.
    everything = SamplingParams(
        temperature=1.0,
        top_k=50,
        top_p=0.9,
        min_p=0.01,
        min_tokens=1,
        repetition_penalty=1.1,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        logit_bias={0: 1.0},
        logprobs=min(LOGPROBS, vocab_size),
        prompt_logprobs=min(LOGPROBS, vocab_size),
    )
    return NewSequence(
        sequence_id=slot,
        slot=slot,
        token_ids=[0] * length,
        num_prompt_tokens=length,
        sampling=everything,
        seed=slot,
        stop_token_ids=(0,),
    )

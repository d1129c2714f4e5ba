"""The step that takes the most memory, to be run once before the KV cache is allocated.

It is full in both ways in which a step can be: in tokens and in sequences, all of which sample,
with everything that sampling can be asked for. One sequence is as long as any can be, which is
what the length of block tables, split attention and penalties grow with.
"""

from rose.config import FULL, SLIDING, CacheConfig, EngineConfig
from rose.core.step import NewSequence, ScheduledSequence, SchedulerOutput
from rose.protocol import SamplingParams

LOGPROBS = 20
"""Alternatives a token; what they take grows with the vocabulary, hardly with their number."""


def scratch_cache(config: EngineConfig) -> CacheConfig:
    """A cache of one block: memory depends on the lengths of sequences, not on their blocks."""
    return CacheConfig(
        block_size=config.block_size, num_blocks=(1, 1), window=config.model.sliding_window
    )


def longest_sequence(config: EngineConfig) -> int:
    """Tokens of the longest sequence that may ever run."""
    limit = config.model.max_position_embeddings
    return min(config.max_model_len or limit, limit)


def largest_step(config: EngineConfig) -> SchedulerOutput:
    """A step that no other exceeds, for a worker with a `scratch_cache`.

    Chunks are as long as the scheduler makes them, the first at the end of the longest sequence;
    what is left of the sequences run one token each. All keys lie in the one block.
    """
    scheduler, longest = config.scheduler, longest_sequence(config)
    chunk = min(scheduler.chunk_size, longest)
    spare = scheduler.max_batched_tokens - scheduler.max_num_seqs
    step = SchedulerOutput(step_id=0)
    for slot in range(scheduler.max_num_seqs):
        tokens = 1 + min(chunk - 1, spare)
        spare -= tokens - 1
        length = longest if slot == 0 else tokens
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
    return step


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

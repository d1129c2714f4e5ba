"""One step of the engine as data: what the scheduler asks for, what the model runner answers.

There is no prefill and no decode here: each scheduled sequence runs `num_tokens` tokens from
position `start`. The worker keeps a row of state for each slot (token ids, block tables, sampling
parameters), so a step carries only what changed. Ids sampled by step N may not be known yet when
step N+1 is scheduled: they are in the worker's token pool already, which is all that N+1 needs.
"""

from dataclasses import dataclass, field

from rose.protocol import Grammar, SamplingParams, TokenLogprobs


@dataclass(slots=True)
class NewSequence:
    """A sequence that takes a slot: on admission, and again after a preemption.

    Attributes:
        sequence_id: unique over the engine's life.
        slot: row of the worker's state, in [0, max_num_seqs); what it held before is void.
        token_ids: prompt, then the output known so far (after a preemption).
        num_prompt_tokens: where the output starts in `token_ids`.
        sampling: how to sample.
        seed: the sequence's own seed, drawn from the request's seed and the sequence's index.
        stop_token_ids: all ids that end it (the model's own included, unless ignored).
        grammar: what its output must follow; None: anything goes.
    """

    sequence_id: int
    slot: int
    token_ids: list[int]
    num_prompt_tokens: int
    sampling: SamplingParams
    seed: int
    stop_token_ids: tuple[int, ...]
    grammar: Grammar | None = None


@dataclass(slots=True)
class ScheduledSequence:
    """Run tokens [start, start + num_tokens) of one sequence.

    Attributes:
        sequence_id: whose tokens.
        slot: its row of the worker's state.
        start: position of the first token; everything before it is in the KV cache.
        num_tokens: at least 1.
        samples: the last of these tokens is the sequence's newest, so its logits yield a token,
            which belongs at position start + num_tokens.
        new_blocks: for each KV group, blocks that join the sequence's block table at the end of
            those it has; () for a group that gains none. None: no group gains any. Blocks that
            left a sliding window keep their place in the table (and are never read).
        known_ids: of a sequence with a grammar that samples, and is not new: its ids from `start`
            on. It runs only when they are all known, since its mask depends on each of them.
    """

    sequence_id: int
    slot: int
    start: int
    num_tokens: int
    samples: bool
    new_blocks: tuple[tuple[int, ...], ...] | None
    known_ids: list[int] | None = None


@dataclass(slots=True)
class SchedulerOutput:
    """One step.

    Attributes:
        step_id: counts up from 0.
        new_sequences: slots to set up before the step runs.
        sequences: what to run; the order of the batch.
        num_tokens: sum over `sequences`.
    """

    step_id: int
    new_sequences: list[NewSequence] = field(default_factory=list)
    sequences: list[ScheduledSequence] = field(default_factory=list)
    num_tokens: int = 0


@dataclass(slots=True)
class ModelRunnerOutput:
    """What one step computed.

    Attributes:
        step_id: of the step that this answers.
        token_ids: for each scheduled sequence that `samples`, in the step's order, the accepted
            ids (one from a plain decoder, up to k+1 from a speculative one).
        logprobs: by sequence id, one entry an accepted id, for those that asked.
        prompt_logprobs: by sequence id, for the tokens at positions start+1 ... start+num_tokens
            that belong to the prompt, for those that asked.
        failed: sequences that cannot go on, since their grammar grew beyond llguidance's limits;
            what they sampled is void.
    """

    step_id: int
    token_ids: list[list[int]]
    logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    prompt_logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    failed: frozenset[int] = frozenset()

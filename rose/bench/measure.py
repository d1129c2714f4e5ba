"""The two measurements of an engine: time to first token, and the steady decode step."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from rose.bench.results import EngineCell, Phase, Sharding, SkippedCell
from rose.bench.subject import DoesNotFitError, Subject

CONTEXT_TOLERANCE = 0.02
"""Sequences may be longer than asked for by this share before a reader is told."""


MOST_TOKENS = 2**26
"""Of the prompts of a cell, which are held in memory: some 2 GB."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What is measured, as cells name it.

    Attributes:
        vocab_size: prompts are random ids below it.
    """

    model: str
    quantization: str
    sharding: Sharding
    vocab_size: int

    def cell(self, phase: Phase, batch: int, tokens: int, samples: list[float]) -> EngineCell:
        """A cell of it."""
        return EngineCell(
            phase=phase,
            model=self.model,
            quantization=self.quantization,
            sharding=self.sharding,
            batch=batch,
            tokens=tokens,
            samples=samples,
        )

    def skipped(self, phase: Phase, batch: int, tokens: int, reason: str) -> SkippedCell:
        """A cell that cannot be."""
        return SkippedCell(
            phase=phase,
            model=self.model,
            sharding=self.sharding,
            batch=batch,
            tokens=tokens,
            reason=reason,
        )


def measure_prefill(
    subject: Subject,
    identity: Identity,
    *,
    inputs: tuple[int, ...],
    batches: tuple[int, ...],
    runs: int,
    warmup: int,
    seed: int,
) -> Iterator[EngineCell | SkippedCell]:
    """Time to first token of every input length and batch, each on prompts never seen before.

    Args:
        subject: the engine.
        identity: how its cells are named.
        inputs: tokens of each prompt.
        batches: prompts at once.
        runs: samples a cell.
        warmup: runs before them, so that kernels are compiled and chosen.
        seed: of the prompts.
    """
    source = random.Random(seed)
    for tokens in inputs:
        for batch in batches:
            refusal = subject.refuse_prefill(tokens) or _refuse_prompts(batch, tokens)
            if refusal is not None:
                yield identity.skipped("prefill", batch, tokens, refusal)
                continue
            samples = []
            for number in range(warmup + runs):
                seconds = subject.prefill(_prompts(source, batch, tokens, identity.vocab_size))
                if number >= warmup:
                    samples.append(seconds)
            yield identity.cell("prefill", batch, tokens, samples)


def measure_decode(
    subject: Subject,
    identity: Identity,
    *,
    contexts: tuple[int, ...],
    batches: tuple[int, ...],
    steps: int,
    warmup: int,
    seed: int,
) -> Iterator[EngineCell | SkippedCell | str]:
    """The steady decode step of every context and batch.

    The largest batch goes first: the smaller ones take its first prompts, which the prefix cache
    still holds. No two sequences of a batch share a prompt.

    Args:
        subject: the engine.
        identity: how its cells are named.
        contexts: tokens of each sequence when decoding begins.
        batches: sequences at once.
        steps: samples a cell.
        warmup: steps of the whole batch before them.
        seed: of the prompts.

    Yields:
        Cells, and lines on what a reader must know of the cell before.
    """
    source = random.Random(seed)
    for context in contexts:
        prompts: list[list[int]] = []
        for batch in sorted(batches, reverse=True):
            refusal = _refuse_prompts(batch, context) or subject.refuse_decode(
                batch, context, warmup + steps
            )
            if refusal is not None:
                yield identity.skipped("decode", batch, context, refusal)
                continue
            prompts = prompts or _prompts(source, batch, context, identity.vocab_size)
            try:
                run = subject.decode(prompts[:batch], warmup, steps)
            except DoesNotFitError as error:
                yield identity.skipped("decode", batch, context, str(error))
                continue
            yield identity.cell("decode", batch, context, run.samples)
            shortest, longest = run.contexts
            if longest - warmup > context * (1 + CONTEXT_TOLERANCE):
                yield (
                    f"decode at batch {batch}, context {context}: at the first measured step the "
                    f"sequences held {shortest} to {longest} tokens"
                )


def _refuse_prompts(batch: int, tokens: int) -> str | None:
    if batch * tokens <= MOST_TOKENS:
        return None
    return f"{batch} prompts of {tokens} tokens are over {MOST_TOKENS} tokens to hold at once"


def _prompts(source: random.Random, batch: int, tokens: int, vocab_size: int) -> list[list[int]]:
    ids = range(vocab_size)
    return [source.choices(ids, k=tokens) for _ in range(batch)]

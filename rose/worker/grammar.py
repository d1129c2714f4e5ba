"""Grammars of slots: which tokens each constrained row may sample next.

A mask is computed on the host, in threads of its own, while the device runs the model. It needs
the ids of all tokens before it as numbers: the scheduler runs a constrained sequence only when
they are known, and tells them (`NewSequence.token_ids`, `ScheduledSequence.known_ids`).
"""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from torch import Tensor

from rose.core.step import NewSequence, SchedulerOutput
from rose.grammar import compile_grammar, load_tokenizer
from rose.kernels.bitmask import keep_allowed, words_for
from rose.protocol import Grammar
from rose.worker.upload import upload

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher, LLTokenizer

MAX_COMPILED = 64
"""Compiled grammars that are kept for requests with the same one."""


class SlotMatcher:
    """A matcher, and what of its sequence's output it has not read yet."""

    def __init__(self, matcher: LLMatcher, new: NewSequence) -> None:
        self.matcher = matcher
        self._unread = new.token_ids[new.num_prompt_tokens :]
        self._told = len(new.token_ids)

    def tell(self, start: int, token_ids: list[int]) -> None:
        """Take note of the tokens from position `start` on, of which some may be known already."""
        fresh = token_ids[self._told - start :]
        self._unread += fresh
        self._told += len(fresh)

    def catch_up(self) -> None:
        """Let the matcher read all it was told; one that refuses an id stays in error."""
        self.matcher.consume_tokens(self._unread)
        self._unread = []


@dataclass(frozen=True, slots=True)
class _Row:
    """A row to mask: its place among those that sample, its sequence's id and its matcher."""

    index: int
    sequence_id: int
    slot: SlotMatcher


class PendingMasks:
    """Masks on their way, for the constrained ones among a step's sampling rows."""

    def __init__(
        self,
        rows: list[_Row],
        bits: npt.NDArray[np.int32],
        done: Future[frozenset[int]],
    ) -> None:
        self._rows = rows
        self._bits = bits
        self._done = done

    def wait(self) -> None:
        """Return once the masks are computed."""
        self._done.result()

    def apply(self, logits: Tensor) -> tuple[Tensor, frozenset[int]]:
        """Wait for the masks, and mask float32 [rows, vocabulary] logits, left as they are.

        A decoder that verifies proposals needs a mask a proposed position: they would be
        computed here, each after the proposals before it, from a copy of the matcher.

        Returns:
            Masked logits, and the ids of the sequences whose matcher failed: theirs are unmasked.
        """
        failed = self._done.result()
        bits = upload(self._bits, logits.device)
        if len(self._rows) == len(logits):
            return keep_allowed(logits, bits), failed
        index = upload(np.array([row.index for row in self._rows], dtype=np.int64), logits.device)
        masked = keep_allowed(logits.index_select(0, index), bits)
        return logits.index_copy(0, index, masked), failed


class SlotGrammars:
    """The matchers of all slots.

    Args:
        tokenizer_path: the checkpoint's tokenizer.json; read by `preload` or for the first grammar.
        vocab_size: the model's.
        eos_token_ids: what may follow where a grammar is complete.
    """

    def __init__(
        self, tokenizer_path: Path, *, vocab_size: int, eos_token_ids: tuple[int, ...]
    ) -> None:
        self._path = tokenizer_path
        self._vocab_size = vocab_size
        # A model may name an end token beyond a cut-down vocabulary; it can never be sampled.
        self._eos = tuple(token for token in eos_token_ids if token < vocab_size)
        self._loading: Future[LLTokenizer] | None = None
        self._slots: dict[int, SlotMatcher] = {}
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()

    def preload(self) -> None:
        """Read the tokenizer before there are streams: reading it stops all Python for a second.

        In a thread, beside which only what needs no Python goes on, such as compilers of kernels.
        """
        self._tokenizer()

    def _tokenizer(self) -> Future[LLTokenizer]:
        if self._loading is None:
            self._loading = self._background.submit(
                load_tokenizer, self._path, self._vocab_size, self._eos
            )
        return self._loading

    @cached_property
    def _mask_threads(self) -> LLExecutor:
        from llguidance import LLExecutor

        return LLExecutor()

    @cached_property
    def _background(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="grammar-masks")

    def check(self, grammar: Grammar) -> None:
        """Compile a grammar, and keep it for the sequences that will follow it.

        Raises:
            InvalidRequestError: it cannot be followed; the message says why.
        """
        self._compile(grammar)

    def _compile(self, grammar: Grammar) -> LLMatcher:
        found = self._compiled.get(grammar)
        if found is None:
            found = compile_grammar(grammar.source, self._tokenizer().result())
            self._compiled[grammar] = found
            if len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(grammar)
        return found

    def admit(self, new: NewSequence) -> None:
        """Give a slot to a sequence, constrained or not."""
        self._slots.pop(new.slot, None)
        if new.grammar is not None:
            matcher = self._compile(new.grammar).deep_copy()
            self._slots[new.slot] = SlotMatcher(matcher, new)

    def start(self, step: SchedulerOutput) -> PendingMasks | None:
        """Start to compute the step's masks; None if no row needs one."""
        if not self._slots:
            return None
        sampling = (sequence for sequence in step.sequences if sequence.samples)
        rows = []
        for index, sequence in enumerate(sampling):
            slot = self._slots.get(sequence.slot)
            if slot is not None:
                if sequence.known_ids is not None:
                    slot.tell(sequence.start, sequence.known_ids)
                rows.append(_Row(index, sequence.sequence_id, slot))
        if not rows:
            return None
        # All bits set: what a row keeps whose matcher fails.
        bits = np.full((len(rows), words_for(self._vocab_size)), -1, dtype=np.int32)
        return PendingMasks(rows, bits, self._background.submit(self._compute, rows, bits))

    def _compute(self, rows: list[_Row], bits: npt.NDArray[np.int32]) -> frozenset[int]:
        """Fill the rows of `bits`; tell which sequences' matchers failed."""
        for row in rows:
            row.slot.catch_up()
        matchers = [row.slot.matcher for row in rows]
        sound = [(matcher, n) for n, matcher in enumerate(matchers) if not matcher.is_error()]
        if sound:
            count, words = bits.shape
            row_bytes = words * bits.itemsize
            self._mask_threads.unsafe_compute_mask_ptr(sound, bits.ctypes.data, row_bytes, count)
        failed = [n for n, matcher in enumerate(matchers) if matcher.is_error()]
        bits[failed] = -1
        return frozenset(rows[n].sequence_id for n in failed)

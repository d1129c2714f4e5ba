"""Training data: examples to packed rows of tokens, made by worker processes.

A row is uint16 [3, length]: token ids, the number of each token's document in the row (0: padding)
and what kind of target the token is. Documents are whole; they share a row with others.
"""

import itertools
import multiprocessing
import os
import queue
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.queues import Queue

import numpy as np
from numpy.typing import NDArray

from recipes.nano import corpus
from recipes.nano.example import Example
from recipes.nano.sizes import PAD_TOKEN, SEQUENCE_LENGTH
from recipes.nano.vocabulary import codec, special_token_ids
from rose.server.chat.harmony import Special, render_pieces, render_turn_pieces

Rows = NDArray[np.uint16]

TOKEN, DOCUMENT, KIND = 0, 1, 2
NO_TARGET, PROMPT, TURN = 0, 1, 2
"""Kinds of tokens as targets: padding and a document's first, the prompt's, the assistant's."""

ROWS_A_CHUNK = 16
OPEN_ROWS = 24
CACHED_TEXTS = 50_000


@dataclass(frozen=True, slots=True)
class Document:
    """An example as tokens.

    Attributes:
        tokens: the prompt's and the turn's.
        prompt_length: how many are the prompt's.
    """

    tokens: list[int]
    prompt_length: int


class Encoder:
    """Examples to tokens. Texts that recur, as system messages do, are encoded once."""

    def __init__(self) -> None:
        self._codec = codec()
        names = special_token_ids()
        self._specials = {special: names[special.value] for special in Special}
        self._texts: dict[str, list[int]] = {}

    def document(self, example: Example) -> Document:
        """An example's prompt and turn."""
        prompt = self._ids(render_pieces(example.conversation))
        turn = self._ids(render_turn_pieces(example.turn, tools=example.conversation.tools))
        return Document(prompt + turn, len(prompt))

    def _ids(self, pieces: Iterable[Special | str]) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, Special):
                ids.append(self._specials[piece])
            else:
                ids.extend(self._text(piece))
        return ids

    def _text(self, text: str) -> list[int]:
        known = self._texts.get(text)
        if known is None:
            if len(self._texts) >= CACHED_TEXTS:
                self._texts.clear()
            known = self._texts[text] = self._codec.encode_plain(text)
        return known


class Packer:
    """Fills rows with whole documents, each where it fits most tightly.

    Args:
        length: tokens in a row.
        pad_id: fills what no document fits.
    """

    def __init__(self, length: int, pad_id: int) -> None:
        self._length = length
        self._pad_id = pad_id
        self._open: list[list[Document]] = []
        self._room: list[int] = []

    def add(self, document: Document) -> Rows | None:
        """Place a document; the row [3, length] that had to be closed for it, if any.

        Raises:
            ValueError: it is longer than a row.
        """
        size = len(document.tokens)
        if size > self._length:
            raise ValueError(f"a document of {size} tokens; rows hold {self._length}")
        fitting = [(room, i) for i, room in enumerate(self._room) if room >= size]
        if fitting:
            _, best = min(fitting)
            self._open[best].append(document)
            self._room[best] -= size
            return None
        closed = self._close_fullest() if len(self._open) == OPEN_ROWS else None
        self._open.append([document])
        self._room.append(self._length - size)
        return closed

    def _close_fullest(self) -> Rows:
        fullest = self._room.index(min(self._room))
        self._room.pop(fullest)
        return self._row(self._open.pop(fullest))

    def flush(self) -> list[Rows]:
        """The rows that are still open."""
        rows = [self._row(documents) for documents in self._open]
        self._open, self._room = [], []
        return rows

    def _row(self, documents: list[Document]) -> Rows:
        row = np.zeros((3, self._length), dtype=np.uint16)
        row[TOKEN] = self._pad_id
        start = 0
        for number, document in enumerate(documents, 1):
            stop = start + len(document.tokens)
            row[TOKEN, start:stop] = document.tokens
            row[DOCUMENT, start:stop] = number
            row[KIND, start + 1 : start + document.prompt_length] = PROMPT
            row[KIND, start + document.prompt_length : stop] = TURN
            start = stop
        return row


def pack(examples: Iterable[Example], length: int = SEQUENCE_LENGTH) -> Iterator[Rows]:
    """Rows [3, length] of endless examples."""
    encoder = Encoder()
    packer = Packer(length, special_token_ids()[PAD_TOKEN])
    for example in examples:
        row = packer.add(encoder.document(example))
        if row is not None:
            yield row


def training_examples(seed: int, task_weights: Mapping[str, float]) -> Iterator[Example]:
    """The training split.

    Args:
        seed: of the corpus.
        task_weights: how often a task occurs, relative to its share in the corpus; 1 for those
            that are not named.

    Raises:
        ValueError: a task is named that the corpus does not have.
    """
    unknown = sorted(set(task_weights) - set(corpus.TASKS))
    if unknown:
        raise ValueError(f"no tasks {', '.join(unknown)}; there are {', '.join(corpus.TASKS)}")
    rng = random.Random(seed)
    most = max([1.0, *task_weights.values()])
    for example in corpus.stream(seed, "train"):
        # Drawing is cheap; what costs is encoding.
        if rng.random() * most < task_weights.get(example.task, 1.0):
            yield example


def heldout_rows(seed: int, examples: int) -> tuple[list[str], Rows]:
    """Held-out examples in rows that are each of one task.

    Returns:
        The rows' tasks, and uint16 [rows, 3, length].
    """
    encoder, pad = Encoder(), special_token_ids()[PAD_TOKEN]
    packers: dict[str, Packer] = defaultdict(lambda: Packer(SEQUENCE_LENGTH, pad))
    rows: dict[str, list[Rows]] = defaultdict(list)
    for example in itertools.islice(corpus.stream(seed, "heldout"), examples):
        row = packers[example.task].add(encoder.document(example))
        if row is not None:
            rows[example.task].append(row)
    for task in sorted(packers):
        rows[task] += packers[task].flush()
    tasks = [task for task in sorted(rows) for _ in rows[task]]
    return tasks, np.stack([row for task in sorted(rows) for row in rows[task]])


def _work(
    make: Callable[[int], Iterator[Rows]], seed: int, chunks: "Queue[Rows]", parent: int
) -> None:
    """Fill the queue until the parent process is gone."""
    rows = make(seed)
    while True:
        chunk = np.stack([next(rows) for _ in range(ROWS_A_CHUNK)])
        while True:
            try:
                chunks.put(chunk, timeout=5)
                break
            except queue.Full:
                if os.getppid() != parent:
                    return


class RowFeed:
    """Rows from worker processes.

    Create it before the process touches CUDA: the workers are forks.

    Args:
        make: the rows of a seed; every worker has a seed of its own.
        seed: of the run.
        first: the number of the first worker; each number draws other rows.
        workers: how many processes.

    Attributes:
        waited: seconds that `take` has waited for workers.
    """

    def __init__(
        self, make: Callable[[int], Iterator[Rows]], *, seed: int, first: int, workers: int
    ) -> None:
        context = multiprocessing.get_context("fork")
        self._chunks: Queue[Rows] = context.Queue(maxsize=8 * workers)
        self._spare: list[Rows] = []
        self.waited = 0.0
        self._processes = [
            context.Process(
                target=_work,
                args=(make, 10_000 * seed + number, self._chunks, os.getpid()),
                daemon=True,
            )
            for number in range(first, first + workers)
        ]
        for process in self._processes:
            process.start()

    def take(self, rows: int) -> Rows:
        """The next rows, uint16 [rows, 3, length].

        Raises:
            RuntimeError: a worker has died.
        """
        while sum(len(chunk) for chunk in self._spare) < rows:
            self._spare.append(self._next_chunk())
        joined = np.concatenate(self._spare)
        self._spare = [joined[rows:]]
        return joined[:rows]

    def _next_chunk(self) -> Rows:
        began = time.monotonic()
        while True:
            try:
                chunk = self._chunks.get(timeout=1)
                break
            except queue.Empty:
                dead = [p.exitcode for p in self._processes if p.exitcode is not None]
                if dead:
                    raise RuntimeError(f"data workers have ended, exit codes {dead}") from None
        self.waited += time.monotonic() - began
        return chunk

    def close(self) -> None:
        """End the workers."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()

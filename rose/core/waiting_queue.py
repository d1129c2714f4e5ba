"""Sequences that wait for a slot and blocks, by queue key."""

import heapq

from rose.core.sequence import Sequence, SequenceStatus


class WaitingQueue:
    """A heap; sequences that finish while they wait are dropped when they surface.

    `discard` tells of such a sequence, so that the dead never outnumber the living.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int, int], Sequence]] = []
        self._num_dead = 0

    def __len__(self) -> int:
        return len(self._heap) - self._num_dead

    def push(self, sequence: Sequence) -> None:
        """Add a sequence; its queue key is unique, so no two sequences are ever compared."""
        heapq.heappush(self._heap, (sequence.queue_key, sequence))

    def peek(self) -> Sequence | None:
        """The sequence with the lowest key; None if none waits."""
        heap = self._heap
        while heap and heap[0][1].status is SequenceStatus.FINISHED:
            heapq.heappop(heap)
            self._num_dead -= 1
        return heap[0][1] if heap else None

    def pop(self) -> None:
        """Remove the sequence that `peek` returned."""
        heapq.heappop(self._heap)

    def discard(self) -> None:
        """Take note that a sequence in the queue has just finished."""
        self._num_dead += 1
        if 2 * self._num_dead > len(self._heap):
            self._heap = [e for e in self._heap if e[1].status is not SequenceStatus.FINISHED]
            heapq.heapify(self._heap)
            self._num_dead = 0

"""Bytes of a checkpoint on their way to a device: several threads read, one places.

Readers fill buffers of a ring in turn and hand them over in the order in which they are full. The
calling thread copies each to the device and places it there, which frees the buffer: memory on the
host never exceeds the ring, or a tensor that is larger than all of it and must stay whole. On a GPU
the buffers are pinned, each has a twin on the device, and the copies run on a stream of their own,
so that reading, copying and placing overlap.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from rose.models.checkpoint import CheckpointError, StoredRows

_ALIGNMENT = 256
"""Bytes: where a tensor begins in a buffer, so that it may be seen as any dtype."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """How a checkpoint is read.

    Attributes:
        threads: that read.
        buffers: in the ring.
        piece_bytes: larger tensors are cut where they can be; the size of a buffer, unless a
            matrix that must stay whole is larger, but less than the ring.
    """

    threads: int
    buffers: int
    piece_bytes: int

    @classmethod
    def for_device(cls, device: torch.device) -> "Streaming":
        """What suits a device.

        On a GPU half a gigabyte is under way: enough requests for a fast disk, and pieces so large
        that neither Python's share nor a copy's start matters. A CPU places no faster than one
        thread reads; its memory holds the weights too, and what a scheme makes of one piece.
        """
        if device.type == "cuda":
            return cls(threads=8, buffers=16, piece_bytes=32 << 20)
        return cls(threads=1, buffers=2, piece_bytes=16 << 20)


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of a tensor, and the name that errors call it by."""

    name: str
    rows: StoredRows


@dataclass(frozen=True, slots=True)
class Placement:
    """Rows that are read together, and what becomes of them.

    Attributes:
        sources: at least one.
        place: takes the rows as tensors on the device, in the order of `sources`. They are void
            once the work that it enqueues is done, so it keeps none of them.
    """

    sources: tuple[Source, ...]
    place: Callable[[list[Tensor]], None]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return sum(source.rows.nbytes for source in self.sources)

    @property
    def buffer_bytes(self) -> int:
        """Bytes that the rows take in a buffer."""
        return sum(_aligned(source.rows.nbytes) for source in self.sources)

    def spans(self) -> Iterator[tuple[Source, slice]]:
        """Where in a buffer the rows of each source lie."""
        start = 0
        for source in self.sources:
            yield source, slice(start, start + source.rows.nbytes)
            start += _aligned(source.rows.nbytes)


def stream(
    placements: Sequence[Placement],
    device: torch.device,
    streaming: Streaming,
    arrived: Callable[[Placement, list[Tensor]], None],
) -> None:
    """Read all placements' sources and place them, in any order, from the calling thread.

    Args:
        placements: what to read; begun in this order, but for those larger than the whole ring,
            which come last and one by one.
        device: where the tensors arrive.
        streaming: how to read.
        arrived: called after each placement with what it was given, as long as that is valid.

    Raises:
        CheckpointError: a file cannot be read, or what it holds cannot be placed; the message names
            the tensor.
    """
    ring = streaming.buffers * streaming.piece_bytes
    fitting = [placement for placement in placements if placement.buffer_bytes <= ring]
    outsized = [placement for placement in placements if placement.buffer_bytes > ring]
    _stream(fitting, device, streaming, arrived)
    # Every buffer is as large as the largest of what it is for.
    _stream(outsized, device, replace(streaming, threads=1, buffers=1), arrived)


def _stream(
    placements: Sequence[Placement],
    device: torch.device,
    streaming: Streaming,
    arrived: Callable[[Placement, list[Tensor]], None],
) -> None:
    if not placements:
        return
    buffers = _make_buffers(placements, device, streaming)
    with _Readers(placements, buffers, streaming.threads) as readers:
        for placement, buffer in readers:
            received = buffer.to_device(placement.buffer_bytes)
            tensors = [
                received[span].view(source.rows.dtype).view(source.rows.shape)
                for source, span in placement.spans()
            ]
            try:
                placement.place(tensors)
                arrived(placement, tensors)
            except ValueError as error:
                # Numbers that a scheme cannot store.
                names = ", ".join(source.name for source in placement.sources)
                raise CheckpointError(f"{error} (tensor {names})") from error
            buffer.placed()
            readers.reuse(buffer)


class _Buffer:
    """One of the ring, on the CPU: what was read is where it is placed from."""

    def __init__(self, host: Tensor) -> None:
        self._host = host

    def fill(self, placement: Placement) -> None:
        """Read a placement's sources, once the buffer's last content is placed."""
        view = self._host.numpy().data
        for source, span in placement.spans():
            try:
                source.rows.read_into(view[span])
            except CheckpointError as error:
                raise CheckpointError(f"{error} (tensor {source.name})") from None

    def to_device(self, nbytes: int) -> Tensor:
        """The first bytes where they are placed from, uint8 [nbytes]."""
        return self._host[:nbytes]

    def placed(self) -> None:
        """All work that uses the content is enqueued."""


class _CudaBuffer(_Buffer):
    """A pinned one, with its twin on the device."""

    def __init__(self, host: Tensor, twin: Tensor, copies: torch.cuda.Stream) -> None:
        super().__init__(host)
        self._twin = twin
        self._copies = copies
        self._placed: torch.cuda.Event | None = None

    def fill(self, placement: Placement) -> None:
        """Wait for the device to be done with the last content, then read."""
        if self._placed is not None:
            self._placed.synchronize()
        super().fill(placement)

    def to_device(self, nbytes: int) -> Tensor:
        """Enqueue the copy, and let the current stream wait for it."""
        with torch.cuda.stream(self._copies):
            self._twin[:nbytes].copy_(self._host[:nbytes], non_blocking=True)
        torch.cuda.current_stream(self._twin.device).wait_stream(self._copies)
        return self._twin[:nbytes]

    def placed(self) -> None:
        self._placed = torch.cuda.current_stream(self._twin.device).record_event()


def _make_buffers(
    placements: Sequence[Placement], device: torch.device, streaming: Streaming
) -> list[_Buffer]:
    size = max((placement.buffer_bytes for placement in placements), default=0)
    count = min(streaming.buffers, len(placements))
    if device.type != "cuda":
        # numpy's memory shows in tracemalloc.
        return [_Buffer(torch.from_numpy(np.empty(size, dtype=np.uint8))) for _ in range(count)]
    # One allocation, since torch rounds each pinned one up to a power of two.
    host = torch.empty(count * size, dtype=torch.uint8, pin_memory=True)
    twins = torch.empty(count * size, dtype=torch.uint8, device=device)
    copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    # The twins' memory may still be in use by work that was enqueued before they were allocated.
    copies.wait_stream(torch.cuda.current_stream(device))
    parts = [slice(start, start + size) for start in range(0, count * size, size)]
    return [_CudaBuffer(host[part], twins[part], copies) for part in parts]


class _Readers:
    """Threads that fill buffers; iterate over what they have filled. A context manager.

    None of them is left when the block ends, however it ends.
    """

    def __init__(
        self, placements: Sequence[Placement], buffers: Sequence[_Buffer], threads: int
    ) -> None:
        self._count = len(placements)
        self._todo: queue.SimpleQueue[Placement] = queue.SimpleQueue()
        self._free: queue.SimpleQueue[_Buffer | None] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[Placement, _Buffer] | Exception] = queue.SimpleQueue()
        self._stopping = threading.Event()
        for placement in placements:
            self._todo.put(placement)
        for buffer in buffers:
            self._free.put(buffer)
        self._threads = [
            threading.Thread(target=self._read, name=f"rose-load-{i}", daemon=True)
            for i in range(threads)
        ]

    def __enter__(self) -> Self:
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            # ^C, or no more threads: nobody will call __exit__.
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for _ in self._threads:
            self._free.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def __iter__(self) -> Iterator[tuple[Placement, _Buffer]]:
        for _ in range(self._count):
            item = self._full.get()
            if isinstance(item, Exception):
                raise item
            yield item

    def reuse(self, buffer: _Buffer) -> None:
        """Let a buffer be filled again."""
        self._free.put(buffer)

    def _read(self) -> None:
        try:
            while (buffer := self._free.get()) is not None and not self._stopping.is_set():
                placement = self._todo.get_nowait()
                buffer.fill(placement)
                self._full.put((placement, buffer))
        except queue.Empty:
            pass
        except Exception as error:
            self._full.put(error)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT

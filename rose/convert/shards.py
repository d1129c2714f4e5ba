"""Safetensors files written piece by piece, and the plan of which tensor goes where."""

import json
import math
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from rose.models.checkpoint import TORCH_DTYPES

TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """A tensor to be written: its name, its dtype as safetensors spells it, and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size in the file."""
        return math.prod(self.shape) * TORCH_DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of the output, and the tensors in it."""

    file: str
    tensors: tuple[OutputTensor, ...]

    @property
    def nbytes(self) -> int:
        """The size of its data, without the header."""
        return sum(tensor.nbytes for tensor in self.tensors)


def plan_shards(units: Iterable[tuple[OutputTensor, ...]], limit: int) -> list[Shard]:
    """Fill shards of at most `limit` bytes with units that must stay together, in order.

    A unit larger than the limit gets a shard of its own.
    """
    groups: list[list[OutputTensor]] = [[]]
    size = 0
    for unit in units:
        nbytes = sum(tensor.nbytes for tensor in unit)
        if groups[-1] and size + nbytes > limit:
            groups.append([])
            size = 0
        groups[-1].extend(unit)
        size += nbytes
    count = len(groups)
    return [
        Shard(f"model-{number:05d}-of-{count:05d}.safetensors", tuple(tensors))
        for number, tensors in enumerate(groups, start=1)
    ]


class ShardWriter:
    """Writes one safetensors file under a temporary name; use as a context manager.

    The file takes any number of partial writes in any order and from any thread, and gets its real
    name only by `commit`. Whatever else ends the context removes it.

    Attributes:
        path: where the bytes are until then.
    """

    def __init__(self, folder: Path, shard: Shard) -> None:
        self._shard = shard
        self._final = folder / shard.file
        self.path = folder / (shard.file + TEMPORARY_SUFFIX)
        header, self._offsets = _make_header(shard.tensors)
        self._rows = {t.name: t.nbytes // t.shape[0] for t in shard.tensors}
        self._missing = shard.nbytes
        self._lock = threading.Lock()
        self._file = self.path.open("wb", buffering=0)
        _write_all(self._file.fileno(), memoryview(header), 0)

    def write(self, name: str, row: int, value: Tensor) -> None:
        """Write rows of a tensor's first dimension, from `row` on."""
        data = value.contiguous().flatten().view(torch.uint8).numpy()
        offset = self._offsets[name] + row * self._rows[name]
        _write_all(self._file.fileno(), data.data, offset)
        with self._lock:
            self._missing -= data.nbytes

    def flush(self) -> None:
        """Bring everything to the disk, and drop it from the page cache where that is possible.

        What is read afterwards is then what the disk holds.
        """
        if self._missing:
            raise RuntimeError(f"{self.path}: {self._missing} bytes were never written")
        os.fsync(self._file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def commit(self) -> None:
        """Give the file its real name."""
        self.flush()
        self._file.close()
        self.path.replace(self._final)
        sync_folder(self._final.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def _make_header(tensors: tuple[OutputTensor, ...]) -> tuple[bytes, dict[str, int]]:
    """The bytes before the data, and where in the file each tensor begins."""
    # Wide dtypes first: every tensor then lies aligned.
    ordered = sorted(tensors, key=lambda t: -TORCH_DTYPES[t.dtype].itemsize)
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    starts, position = {}, 0
    for tensor in ordered:
        starts[tensor.name] = position
        end = position + tensor.nbytes
        entries[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    return header, {name: len(header) + start for name, start in starts.items()}


def _write_all(file: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], offset + done)


def write_text_atomically(path: Path, text: str) -> None:
    """Replace a file so that it holds the old or the new text, whatever happens on the way."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files of a checkpoint: headers of every shard first, then bytes on demand.

The safetensors format: 8 bytes of little-endian header length, a JSON header that gives each
tensor's dtype, shape and byte range, then the data. Reading it here, rather than through a memory
map, bounds the memory that a load takes and lets a truncated shard be named before any work.
Source: https://huggingface.co/docs/safetensors, "Format".
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rose.protocol import UserError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

TORCH_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class CheckpointError(UserError):
    """A checkpoint that cannot be read, or does not hold the model that its config describes."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies.

    Attributes:
        file: its shard.
        dtype: as safetensors spells it, such as "BF16".
        shape: row-major sizes.
        offset: its first byte in the file.
        nbytes: its length.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class Checkpoint:
    """The tensors of a folder of safetensors files, by name.

    Attributes:
        folder: where they lie.
        shards: the files, in order of name.
        tensors: all tensors of all shards.

    Raises:
        CheckpointError: a file is missing, unreadable, truncated or no safetensors file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards = find_shards(folder)
        self.tensors: dict[str, StoredTensor] = {}
        for shard in self.shards:
            for name, tensor in read_header(shard).items():
                if name in self.tensors:
                    first = self.tensors[name].file.name
                    raise CheckpointError(f"{folder}: {name} is both in {first} and {shard.name}")
                self.tensors[name] = tensor


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows [start, stop) of a stored tensor's first dimension."""

    tensor: StoredTensor
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Their sizes."""
        return (self.stop - self.start, *self.tensor.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """What their bytes are."""
        return TORCH_DTYPES[self.tensor.dtype]

    @property
    def nbytes(self) -> int:
        """How many bytes they take."""
        return (self.stop - self.start) * self._row_bytes

    @property
    def offset(self) -> int:
        """Their first byte in the file."""
        return self.tensor.offset + self.start * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return self.tensor.nbytes // self.tensor.shape[0]

    def read_into(self, out: memoryview) -> None:
        """Fill a buffer of `nbytes` bytes; other threads run meanwhile.

        Raises:
            CheckpointError: the file cannot be read, or has become shorter than its header said.
        """
        done, wanted, path = 0, self.nbytes, self.tensor.file
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(self.offset)
                # One call moves at most 2 GiB.
                while done < wanted and (count := file.readinto(out[done:wanted])):
                    done += count
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
        if done < wanted:
            raise CheckpointError(
                f"{path} shrank while it was read: {wanted} bytes wanted at {self.offset}, "
                f"{done} found"
            )

    def read(self) -> Tensor:
        """A tensor on the CPU, in the stored dtype. Raises as `read_into` does."""
        data = bytearray(self.nbytes)
        with memoryview(data) as view:
            self.read_into(view)
        return torch.frombuffer(data, dtype=self.dtype).view(self.shape)


def read_rows(tensor: StoredTensor, start: int = 0, stop: int | None = None) -> Tensor:
    """Rows [start, stop) of a tensor's first dimension, on the CPU, in its stored dtype.

    Raises:
        CheckpointError: the file cannot be read, or has become shorter than its header said.
    """
    return StoredRows(tensor, start, tensor.shape[0] if stop is None else stop).read()


def find_shards(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint: those of its index, or the single one.

    Raises:
        CheckpointError: there is no such folder, no index to several files, or a shard is missing.
    """
    index = folder / INDEX_NAME
    try:
        present = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise CheckpointError(f"cannot read the folder {folder}: {error.strerror}") from None
    if INDEX_NAME in present:
        names = _indexed_files(index)
        missing = [name for name in names if name not in present]
        if missing:
            raise CheckpointError(
                f"{folder}: {len(missing)} of {len(names)} shards are missing: "
                f"{abbreviate(missing)}; download the checkpoint again to complete it"
            )
        return [folder / name for name in names]
    if SINGLE_NAME in present:
        return [folder / SINGLE_NAME]
    found = sorted(name for name in present if name.endswith(".safetensors"))
    what = f"found {abbreviate(found)} without it" if found else "found no safetensors file"
    raise CheckpointError(f"{folder}: {INDEX_NAME} or {SINGLE_NAME} is missing; {what}")


def _indexed_files(index: Path) -> list[str]:
    try:
        value = json.loads(index.read_text())
    except OSError as error:
        raise CheckpointError(f"cannot read {index}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{index} is not valid JSON: {error}") from None
    names = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(names, dict) or not names:
        raise CheckpointError(f"{index}: weight_map must map tensor names to files")
    files = sorted({str(name) for name in names.values()})
    outside = [name for name in files if Path(name).name != name]
    if outside:
        raise CheckpointError(f"{index}: shards must lie beside it; found {abbreviate(outside)}")
    return files


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one safetensors file.

    Raises:
        CheckpointError: the file is unreadable, truncated, or its header is damaged.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            # A damaged length must not make us allocate by it.
            text = file.read(length) if length <= size - 8 else b""
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    if size < 8 or length > size - 8:
        raise CheckpointError(
            f"{path} is truncated or no safetensors file: {size} bytes found, its header alone "
            f"would take {8 + length}; download or copy it again"
        )
    try:
        header = json.loads(text)
        entries = {k: v for k, v in header.items() if k != "__metadata__"}
        tensors = {k: _stored_tensor(path, 8 + length, v) for k, v in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise CheckpointError(f"{path} is no safetensors file: its header is damaged") from None
    expected = 8 + length
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.nbytes)):
        if tensor.offset != expected:
            raise CheckpointError(
                f"{path} is no safetensors file: its tensors overlap or leave holes; download or "
                "copy it again"
            )
        expected += tensor.nbytes
    if size != expected:
        state = "truncated" if size < expected else "damaged"
        raise CheckpointError(
            f"{path} is {state}: {size} bytes found, {expected} expected by its header; download "
            "or copy it again"
        )
    return tensors


def _stored_tensor(path: Path, data_start: int, entry: dict[str, object]) -> StoredTensor:
    shape, offsets, dtype = entry["shape"], entry["data_offsets"], str(entry["dtype"])
    if not isinstance(shape, list) or not isinstance(offsets, list):
        raise TypeError(entry)
    begin, end = (int(offset) for offset in offsets)
    sizes = tuple(int(size) for size in shape)
    nbytes = end - begin
    known = TORCH_DTYPES.get(dtype)
    if begin < 0 or nbytes < 0 or (known and nbytes != math.prod(sizes) * known.itemsize):
        raise ValueError(entry)
    return StoredTensor(path, dtype, sizes, data_start + begin, nbytes)


def abbreviate(names: list[str], limit: int = 10) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more

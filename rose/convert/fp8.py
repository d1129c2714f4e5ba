"""One shard of a checkpoint with FP8 experts: written from a source, and read back against it.

Expert matrices become float8_e4m3fn under one power-of-two multiplier a 128 x 128 block, each part
(gate, up, down) with a block grid of its own. Everything else keeps the source's bytes, under the
Hugging Face names; the experts' biases keep gate and up interleaved, as there.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from rose.config import ModelConfig
from rose.convert.matrices import (
    FloatMatrix,
    Mxfp4Matrix,
    NotFiniteError,
    SourceMatrix,
    compare_with_source,
)
from rose.convert.report import TensorChange
from rose.convert.shards import OutputTensor, Shard, ShardWriter
from rose.kernels.quantize import FP8_BLOCK, ceil_div
from rose.models.checkpoint import CheckpointError, StoredTensor, read_header, read_rows
from rose.models.layouts import (
    ExpertProjection,
    ExpertStorage,
    WeightSource,
    expected_tensors,
    expert_projections,
)

CHUNK_BYTES = 64 * 2**20
"""How much of a tensor that passes through is in memory at a time."""

MOST_THREADS = 16
"""How many experts are in memory at a time, at most; more threads would wait for the disk."""


class Fp8Conversion:
    """Turns a source with MXFP4 or unquantised experts into one with FP8 experts.

    Args:
        source: where the tensors come from.
        config: of the model.
        advance: called with the number of output bytes written, and again when they are verified.
    """

    def __init__(
        self, source: WeightSource, config: ModelConfig, advance: Callable[[int], None]
    ) -> None:
        self._source = source
        self._config = config
        self._advance = advance
        self._projections = {
            projection.name: projection
            for layer in range(config.num_layers)
            for projection in expert_projections(config, layer)
        }

    def units(self) -> Iterator[tuple[OutputTensor, ...]]:
        """The tensors to write, in the order of the model; those of one unit share a shard."""
        specs = expected_tensors(self._config, ExpertStorage.FP8, head=self._source.has_head)
        for name, spec in specs.items():
            if name in self._projections:
                scales = f"{name}_scale_inv"
                yield (
                    OutputTensor(name, "F8_E4M3", spec.shape),
                    OutputTensor(scales, "F32", specs[scales].shape),
                )
            elif not name.endswith("_scale_inv"):
                yield (OutputTensor(name, self._source.dtype(name), spec.shape),)

    def write(self, writer: ShardWriter, shard: Shard) -> list[TensorChange]:
        """Write a shard; the changes of its converted tensors, in order.

        Raises:
            CheckpointError: the source cannot be read, or holds weights that are not finite.
        """
        changes = []
        for tensor in shard.tensors:
            if tensor.name in self._projections:
                changes.append(self._write_experts(writer, self._projections[tensor.name]))
            elif tensor.name in self._source.specs:
                for row, rows in _chunks(tensor):
                    value = self._source.read(tensor.name, row, row + rows)
                    writer.write(tensor.name, row, value)
                    self._advance(value.nbytes)
        return changes

    def _write_experts(self, writer: ShardWriter, projection: ExpertProjection) -> TensorChange:
        name = projection.name

        def write(expert: int) -> TensorChange:
            matrices = self._matrices(projection, expert)
            values = torch.empty(len(matrices), *matrices[0].shape, dtype=torch.float8_e4m3fn)
            scales, change = [], TensorChange(name, 0)
            for part, matrix in enumerate(matrices):
                scale, exact = self._to_fp8(matrix, values[part], name, expert)
                scales.append(scale)
                if exact:
                    change += TensorChange(name, values[part].numel())
                else:
                    change += compare_with_source(name, matrix, values[part], scale)
            writer.write(name, expert, values)
            writer.write(f"{name}_scale_inv", expert, torch.stack(scales))
            return change

        return self._of_all_experts(write, projection)

    def _to_fp8(
        self, matrix: SourceMatrix, values: Tensor, name: str, expert: int
    ) -> tuple[Tensor, bool]:
        try:
            return matrix.to_fp8(values)
        except NotFiniteError:
            raise CheckpointError(
                f"{self._source.checkpoint.folder}: expert {expert} of {name} holds weights that "
                "are infinite or not numbers; such a checkpoint cannot be converted"
            ) from None

    def _of_all_experts(
        self, work: Callable[[int], TensorChange], projection: ExpertProjection
    ) -> TensorChange:
        """The sum of all experts' changes."""
        change = TensorChange(projection.name, 0)
        with _threads() as pool:
            # An error cancels what has not begun.
            for part in pool.map(work, range(self._config.num_experts)):
                change += part
                self._advance(_fp8_bytes(projection))
        return change

    def verify(self, path: Path, shard: Shard, changes: list[TensorChange]) -> None:
        """Read a shard back and hold it against the source.

        Raises:
            CheckpointError: the file is damaged, a value differs from the source that `changes`
                does not count, or `changes` counts another.
        """
        stored = read_header(path)
        found = {name: (tensor.dtype, tensor.shape) for name, tensor in stored.items()}
        if found != {tensor.name: (tensor.dtype, tensor.shape) for tensor in shard.tensors}:
            raise CheckpointError(f"{path} does not hold the tensors that it should")
        expected = {change.name: change for change in changes}
        for tensor in shard.tensors:
            name = tensor.name
            if name in self._projections:
                change = self._verify_experts(stored, self._projections[name])
                if change != expected.get(name):
                    raise CheckpointError(
                        f"{path}: {name} was not read back as it was written: it differs from the "
                        f"source by {change}, expected {expected.get(name)}"
                    )
            elif name in self._source.specs:
                self._verify_bytes(stored[name], tensor)

    def _verify_experts(
        self, stored: dict[str, StoredTensor], projection: ExpertProjection
    ) -> TensorChange:
        name = projection.name

        def verify(expert: int) -> TensorChange:
            values = read_rows(stored[name], expert, expert + 1)[0]
            scales = read_rows(stored[f"{name}_scale_inv"], expert, expert + 1)[0]
            change = TensorChange(name, 0)
            for part, matrix in enumerate(self._matrices(projection, expert)):
                change += compare_with_source(name, matrix, values[part], scales[part])
            return change

        return self._of_all_experts(verify, projection)

    def _verify_bytes(self, stored: StoredTensor, tensor: OutputTensor) -> None:
        for row, rows in _chunks(tensor):
            new = read_rows(stored, row, row + rows)
            old = self._source.read(tensor.name, row, row + rows)
            if not torch.equal(new.view(torch.uint8), old.view(torch.uint8)):
                raise CheckpointError(
                    f"{stored.file}: {tensor.name} was not read back as it was written"
                )
            self._advance(new.nbytes)

    def _matrices(self, projection: ExpertProjection, expert: int) -> list[SourceMatrix]:
        """An expert's matrices in the source: gate and up, or down."""
        name, parts = projection.name, projection.parts
        if self._source.storage is ExpertStorage.MXFP4:
            blocks = self._source.read(f"{name}_blocks", expert, expert + 1)[0]
            scales = self._source.read(f"{name}_scales", expert, expert + 1)[0]
            return [Mxfp4Matrix(blocks[part::parts], scales[part::parts]) for part in range(parts)]
        rows = self._source.read(name, expert, expert + 1)[0].T.contiguous()
        return [FloatMatrix(rows[part::parts]) for part in range(parts)]


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Threads that take a matrix each.

    Several threads on one matrix would wait for each other at each of many small operations.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(
            min(threads, MOST_THREADS), initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            yield pool
    finally:
        # Depending on torch's build, the setting was this thread's too.
        torch.set_num_threads(threads)


def _fp8_bytes(projection: ExpertProjection) -> int:
    """What one expert takes in the output."""
    rows, columns = projection.out_features, projection.in_features
    blocks = ceil_div(rows, FP8_BLOCK) * ceil_div(columns, FP8_BLOCK)
    return projection.parts * (rows * columns + blocks * torch.float32.itemsize)


def _chunks(tensor: OutputTensor) -> Iterator[tuple[int, int]]:
    """Cut a tensor into (first row, rows) of about CHUNK_BYTES."""
    total = tensor.shape[0]
    step = max(1, CHUNK_BYTES * total // tensor.nbytes)
    for row in range(0, total, step):
        yield row, min(step, total - row)

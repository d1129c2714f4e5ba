"""One shard of a checkpoint with FP8 experts: written from a source, and read back against it.

Expert matrices become float8_e4m3fn under one power-of-two multiplier a 128 x 128 block, each part
(gate, up, down) with a block grid of its own. Everything else keeps the source's bytes, under the
Hugging Face names; the experts' biases keep gate and up interleaved, as there.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from rose.config import ModelConfig
from rose.convert.report import TensorChange, compare
from rose.convert.shards import OutputTensor, Shard, ShardWriter
from rose.kernels.quantize import dequantize_fp8_block, dequantize_mxfp4, quantize_fp8_block
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
        change = TensorChange(projection.name, 0)
        for expert in range(self._config.num_experts):
            old = self._matrices(projection, expert)
            pairs = [quantize_fp8_block(matrix) for matrix in old]
            values = torch.stack([values for values, _ in pairs])
            scales = torch.stack([scales for _, scales in pairs])
            writer.write(projection.name, expert, values)
            writer.write(f"{projection.name}_scale_inv", expert, scales)
            change += compare(projection.name, old, dequantize_fp8_block(values, scales))
            self._advance(values.nbytes + scales.nbytes)
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
        change = TensorChange(projection.name, 0)
        for expert in range(self._config.num_experts):
            values = read_rows(stored[projection.name], expert, expert + 1)[0]
            scales = read_rows(stored[f"{projection.name}_scale_inv"], expert, expert + 1)[0]
            new = dequantize_fp8_block(values, scales)
            change += compare(projection.name, self._matrices(projection, expert), new)
            self._advance(values.nbytes + scales.nbytes)
        return change

    def _verify_bytes(self, stored: StoredTensor, tensor: OutputTensor) -> None:
        for row, rows in _chunks(tensor):
            new = read_rows(stored, row, row + rows)
            old = self._source.read(tensor.name, row, row + rows)
            if not torch.equal(new.view(torch.uint8), old.view(torch.uint8)):
                raise CheckpointError(
                    f"{stored.file}: {tensor.name} was not read back as it was written"
                )
            self._advance(new.nbytes)

    def _matrices(self, projection: ExpertProjection, expert: int) -> Tensor:
        """An expert's matrices in the source: float32 [parts, out_features, in_features]."""
        name, parts = projection.name, projection.parts
        if self._source.storage is ExpertStorage.MXFP4:
            blocks = self._source.read(f"{name}_blocks", expert, expert + 1)[0]
            scales = self._source.read(f"{name}_scales", expert, expert + 1)[0]
            rows = dequantize_mxfp4(blocks, scales, torch.float32)
        else:
            rows = self._source.read(name, expert, expert + 1)[0].T.float()
        matrices = torch.stack([rows[part::parts] for part in range(parts)])
        # Infinities and NaNs show in the extremes, at a fraction of the cost of asking each value.
        if not bool(torch.stack(matrices.aminmax()).isfinite().all()):
            raise CheckpointError(
                f"{self._source.checkpoint.folder}: expert {expert} of {name} holds weights that "
                "are infinite or not numbers; such a checkpoint cannot be converted"
            )
        return matrices


def _chunks(tensor: OutputTensor) -> Iterator[tuple[int, int]]:
    """Cut a tensor into (first row, rows) of about CHUNK_BYTES."""
    total = tensor.shape[0]
    step = max(1, CHUNK_BYTES * total // tensor.nbytes)
    for row in range(0, total, step):
        yield row, min(step, total - row)

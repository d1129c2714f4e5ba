"""Write a checkpoint of random weights as large as a real one, at the speed of memory.

    python bench/random_checkpoint.py FOLDER [--shape gpt-oss-20b] [--layers N]

It has the published layout: MXFP4 experts, the rest bfloat16, several shards. There is no
tokenizer. Nothing waits for the disk, so what reads it next finds it in the page cache, if that is
large enough.
"""

import argparse
import json
import math
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from rose.config import ModelConfig
from rose.convert.shards import OutputTensor, Shard, ShardWriter, plan_shards
from rose.models.builtin import builtin_shape
from rose.models.checkpoint import INDEX_NAME
from rose.models.layouts import ExpertStorage, expected_tensors

SHARD_BYTES = 5 * 10**9
PIECE_BYTES = 16 << 20
POOL_VALUES = 1 << 24
"""More than a piece of bfloat16 has."""

CODE_RMS = math.sqrt(8.5625)
"""Root mean square of the eight E2M1 magnitudes, for codes drawn uniformly."""


class Contents:
    """Slices of a few random pools: making them takes no time, and each tensor gets its own."""

    def __init__(self, hidden_size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        std = hidden_size**-0.5
        exponent = 127 + round(math.log2(std / CODE_RMS))
        normal = torch.randn(POOL_VALUES, generator=generator)

        def integers(low: int, high: int) -> Tensor:
            shape = (2 * POOL_VALUES,)
            return torch.randint(low, high, shape, dtype=torch.uint8, generator=generator)

        self._scales = integers(exponent - 1, exponent + 2)
        self._codes = integers(0, 256)
        self._matrix = normal.mul(std).bfloat16()
        self._bias = normal.mul(0.02).bfloat16()
        self._norm = normal.mul(0.1).add(1).bfloat16()
        self._unit = normal.bfloat16()

    def rows(self, name: str, first: int, shape: tuple[int, ...]) -> Tensor:
        """Rows of a tensor from `first` on; they begin elsewhere in a pool for each name and row.

        Args:
            name: in the published layout; it decides the distribution.
            first: the first row.
            shape: of the rows; at most PIECE_BYTES.
        """
        pool = self._pool(name)
        count = math.prod(shape)
        start = zlib.crc32(f"{name} {first}".encode()) % (pool.numel() - count)
        return pool[start : start + count].view(shape)

    def _pool(self, name: str) -> Tensor:
        if name.endswith("_blocks"):
            return self._codes
        if name.endswith("_scales"):
            return self._scales
        if name.endswith("norm.weight"):
            return self._norm
        if name.endswith("bias"):
            return self._bias
        return self._unit if name.endswith(("embed_tokens.weight", "sinks")) else self._matrix


def write_checkpoint(folder: Path, config_json: dict[str, object], threads: int) -> int:
    """Write all files, config.json last; the number of bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    config = ModelConfig.from_dicts(config_json, {}, source="the shape")
    specs = expected_tensors(config, ExpertStorage.MXFP4, head=True)
    tensors = [OutputTensor(name, spec.dtypes[0], spec.shape) for name, spec in specs.items()]
    shards = plan_shards(((tensor,) for tensor in tensors), SHARD_BYTES)
    contents = Contents(config.hidden_size)
    with ThreadPoolExecutor(threads) as pool:
        for shard in shards:
            write_shard(folder, shard, contents, pool)
    weight_map = {t.name: shard.file for shard in shards for t in shard.tensors}
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / INDEX_NAME).write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config_json))
    return sum(shard.nbytes for shard in shards)


def write_shard(folder: Path, shard: Shard, contents: Contents, pool: ThreadPoolExecutor) -> None:
    """One file, its pieces from several threads."""
    with ShardWriter(folder, shard) as writer:

        def put(tensor: OutputTensor, row: int, rows: int) -> None:
            shape = (rows, *tensor.shape[1:])
            writer.write(tensor.name, row, contents.rows(tensor.name, row, shape))

        pieces = []
        for tensor in shard.tensors:
            total = tensor.shape[0]
            run = max(1, PIECE_BYTES * total // tensor.nbytes)
            for row in range(0, total, run):
                pieces.append(pool.submit(put, tensor, row, min(run, total - row)))
        for piece in pieces:
            piece.result()
        # `commit` would wait for the disk, and take the file out of the page cache.
        writer.path.replace(folder / shard.file)


def read_shape(shape: str, layers: int | None) -> dict[str, object]:
    """A config.json, by a published model's name or from a folder, perhaps with fewer layers."""
    known = builtin_shape(shape)
    folder = Path(shape) if known is None else known
    found: dict[str, object] = json.loads((folder / "config.json").read_text())
    if layers is not None:
        found["num_hidden_layers"] = layers
        kinds = found.get("layer_types")
        if isinstance(kinds, list):
            found["layer_types"] = kinds[:layers]
    return found


def main() -> None:
    """Parse the arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", default="gpt-oss-20b", help="a model's name, or a folder")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--threads", type=int, default=8)
    args = parser.parse_args()
    config_json = read_shape(args.shape, args.layers)
    begin = time.perf_counter()
    nbytes = write_checkpoint(args.folder, config_json, args.threads)
    seconds = time.perf_counter() - begin
    print(f"{args.folder}: {nbytes / 1e9:.2f} GB in {seconds:.1f} s")


if __name__ == "__main__":
    main()

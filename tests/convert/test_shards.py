"""Safetensors files written piece by piece."""

import json

import pytest
import torch
from safetensors.torch import load_file

from rose.convert.shards import OutputTensor, Shard, ShardWriter, plan_shards

TENSORS = (
    OutputTensor("eights", "F8_E4M3", (3, 1)),
    OutputTensor("halves", "BF16", (3,)),
    OutputTensor("scales", "F32", (2, 2)),
)
SHARD = Shard("model-00001-of-00001.safetensors", TENSORS)
VALUES = {
    "eights": torch.tensor([[1.0], [2.0], [-0.5]]).to(torch.float8_e4m3fn),
    "halves": torch.tensor([1.5, 2.5, 3.5]).to(torch.bfloat16),
    "scales": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
}


def test_pieces_in_any_order_make_one_file(tmp_path):
    with ShardWriter(tmp_path, SHARD) as writer:
        for name in ("scales", "eights", "halves"):
            for row in reversed(range(len(VALUES[name]))):
                writer.write(name, row, VALUES[name][row : row + 1])
        assert [path.name for path in tmp_path.iterdir()] == [SHARD.file + ".tmp"]
        writer.commit()
    assert [path.name for path in tmp_path.iterdir()] == [SHARD.file]
    found = load_file(tmp_path / SHARD.file)
    assert found.keys() == VALUES.keys()
    for name, value in VALUES.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name].float(), value.float())


def test_every_tensor_is_aligned(tmp_path):
    with ShardWriter(tmp_path, SHARD) as writer:
        for name, value in VALUES.items():
            writer.write(name, 0, value)
        writer.commit()
    data = (tmp_path / SHARD.file).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header["scales"]["data_offsets"][0] % 4 == 0
    assert header["halves"]["data_offsets"][0] % 2 == 0


def test_a_file_with_a_hole_is_not_committed(tmp_path):
    with ShardWriter(tmp_path, SHARD) as writer:
        writer.write("scales", 0, VALUES["scales"])
        with pytest.raises(RuntimeError, match="9 bytes were never written"):
            writer.commit()
    assert not list(tmp_path.iterdir())


def test_plan():
    def unit(*rows):
        return tuple(OutputTensor(f"{sum(rows)}.{i}", "F32", (n,)) for i, n in enumerate(rows))

    units = [unit(2), unit(3, 1), unit(9), unit(1), unit(5)]
    shards = plan_shards(units, limit=24)
    assert [shard.nbytes for shard in shards] == [24, 36, 24]
    assert [shard.file for shard in shards] == [
        f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)
    ]
    assert [t for shard in shards for t in shard.tensors] == [t for unit in units for t in unit]

"""Files of a checkpoint that are missing, damaged or unreadable."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file

from rose.models.checkpoint import Checkpoint, CheckpointError, abbreviate, read_rows
from tests.models.checkpoint_layouts import SMALL, write_published


@pytest.fixture
def folder(tmp_path):
    return write_published(tmp_path / "model", SMALL, shards=2)


@pytest.fixture
def shard(folder):
    return folder / "model-00002-of-00002.safetensors"


def error(folder):
    with pytest.raises(CheckpointError) as caught:
        Checkpoint(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def write_raw(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_rows_are_those_that_were_saved(tmp_path):
    tensors = {
        "floats": torch.randn(5, 3),
        "bytes": torch.arange(12, dtype=torch.uint8).view(4, 3),
        "eights": torch.randn(3, 2).to(torch.float8_e4m3fn),
        "halves": torch.randn(7).to(torch.bfloat16),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = Checkpoint(tmp_path)
    for name, tensor in tensors.items():
        found = read_rows(checkpoint.tensors[name])
        assert found.dtype == tensor.dtype
        assert torch.equal(found.view(torch.uint8), tensor.view(torch.uint8))
        part = read_rows(checkpoint.tensors[name], 1, 3)
        assert torch.equal(part.view(torch.uint8), tensor[1:3].view(torch.uint8))


def test_other_files_beside_the_index_are_not_read(folder):
    (folder / "reference.safetensors").write_bytes(b"something else")
    assert len(Checkpoint(folder).shards) == 2


def test_truncated_shard(folder, shard):
    size = shard.stat().st_size
    with shard.open("r+b") as file:
        file.truncate(size - 1000)
    message = error(folder)
    assert str(shard) in message
    assert f"truncated: {size - 1000} bytes found, {size} expected" in message


@pytest.mark.parametrize("size", [0, 5, 200])
def test_shard_that_ends_in_its_header(folder, shard, size):
    with shard.open("r+b") as file:
        file.truncate(size)
    assert f"{shard} is truncated or no safetensors file: {size} bytes" in error(folder)


def test_surplus_bytes(folder, shard):
    with shard.open("ab") as file:
        file.write(b"x")
    assert f"{shard} is damaged" in error(folder)


def test_a_text_file_is_no_safetensors_file(folder, shard):
    shard.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    assert f"{shard} is truncated or no safetensors file" in error(folder)


@pytest.mark.parametrize(
    "header",
    [
        b"{not json",
        [1, 2],
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
        {"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1]}},
        {"a": 3},
        b"[" * 100_000,
    ],
)
def test_damaged_header(tmp_path, header):
    write_raw(tmp_path / "model.safetensors", header, b"1234")
    assert "its header is damaged" in error(tmp_path)


@pytest.mark.parametrize("second", [[0, 4], [2, 6], [8, 12]])
def test_tensors_that_overlap_or_leave_holes(tmp_path, second):
    first = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = {"a": first, "b": {**first, "data_offsets": second}}
    write_raw(tmp_path / "model.safetensors", header, bytes(second[1]))
    assert "its tensors overlap or leave holes" in error(tmp_path)


def test_missing_shard(folder, shard):
    shard.unlink()
    assert f"1 of 2 shards are missing: {shard.name}" in error(folder)


def test_missing_index(folder):
    (folder / "model.safetensors.index.json").unlink()
    message = error(folder)
    assert (
        "model.safetensors.index.json or model.safetensors is missing; found model-00001" in message
    )


def test_empty_folder(tmp_path):
    assert "found no safetensors file" in error(tmp_path)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[]", "{}", '{"weight_map": {}}'])
def test_damaged_index(folder, text):
    (folder / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json" in error(folder)


def test_index_that_points_elsewhere(folder):
    index = {"weight_map": {"a": "../secret.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "../secret.safetensors" in error(folder)


def test_unreadable_folders(tmp_path):
    assert "cannot read the folder" in error(tmp_path / "nowhere")
    file = tmp_path / "file"
    file.touch()
    assert "Not a directory" in error(file)


def test_unreadable_shard(folder, shard):
    shard.unlink()
    shard.mkdir()
    assert f"cannot read {shard}" in error(folder)


def test_the_same_tensor_twice(folder, shard):
    save_file({"model.norm.weight": torch.ones(64)}, shard)
    other = folder / "model-00001-of-00002.safetensors"
    save_file({"model.norm.weight": torch.ones(64)}, other)
    assert f"model.norm.weight is both in {other.name} and {shard.name}" in error(folder)


def test_a_shard_that_shrinks_while_it_is_read(folder, shard):
    checkpoint = Checkpoint(folder)
    name, tensor = next((k, t) for k, t in checkpoint.tensors.items() if t.file == shard)
    with shard.open("r+b") as file:
        file.truncate(tensor.offset + 2)
    with pytest.raises(CheckpointError, match=r"shrank while it was read: \d+ bytes wanted"):
        read_rows(checkpoint.tensors[name])
    shard.unlink()
    with pytest.raises(CheckpointError, match="cannot read"):
        read_rows(tensor)


def test_abbreviate():
    assert abbreviate(["a", "b"]) == "a, b"
    assert abbreviate([str(i) for i in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"

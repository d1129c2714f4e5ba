"""Conversion to FP8: exactness, what is reported, refusals."""

import json
import os
import shutil
from collections import namedtuple

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from rose.config import ConfigError, ModelConfig
from rose.convert import matrices
from rose.convert.converter import ConversionError, convert_checkpoint
from rose.convert.manifest import MANIFEST_NAME
from rose.convert.report import compare
from rose.convert.shards import ShardWriter
from rose.models.checkpoint import CheckpointError
from tests.convert.converted import GATE_UP, assert_holds, decode_fp8, read_all, write_wide
from tests.models.checkpoint_layouts import (
    RAGGED,
    SMALL,
    decode_mxfp4,
    random_tensors,
    write_float,
    write_folder,
    write_openai,
    write_published,
)
from tools.make_tiny_checkpoint import make_config, make_tokenizer

DOWN = "model.layers.0.mlp.experts.down_proj"


@pytest.mark.parametrize("sizes", [SMALL, RAGGED], ids=["small", "ragged"])
@pytest.mark.parametrize("write", [write_published, write_float, write_openai])
def test_exact_from_every_layout(tmp_path, write, sizes):
    source = write(tmp_path / "source", sizes, shards=2)
    report = convert_checkpoint(source, tmp_path / "out", format="fp8")
    assert_holds(tmp_path / "out", random_tensors(sizes))
    matrix = sizes.intermediate * sizes.hidden
    assert report.values == 3 * matrix * sizes.experts * sizes.layers
    assert report.changed == 0
    assert report.inexact == ()
    assert "All" in report.summary()
    assert "exact" in report.summary()


def test_threads_share_the_work_and_change_nothing(tmp_path):
    source, _ = write_wide(tmp_path / "source")
    reports = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            out = tmp_path / f"out{threads}"
            reports.append(convert_checkpoint(source, out, format="fp8"))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert reports[0].changes == reports[1].changes
    assert reports[0].changed == 64
    one, three = read_all(tmp_path / "out1"), read_all(tmp_path / "out3")
    assert one.keys() == three.keys()
    for name, value in one.items():
        assert torch.equal(value.view(torch.uint8), three[name].view(torch.uint8)), name


def test_config_and_other_files(tmp_path):
    source = write_published(tmp_path / "source", SMALL)
    make_tokenizer().save(str(source / "tokenizer.json"))
    (source / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    (source / "chat_template.jinja").write_text("{{ messages }}")
    (source / "unrelated.bin").write_bytes(b"x")
    convert_checkpoint(source, tmp_path / "out", format="fp8")
    for name in ("tokenizer.json", "generation_config.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model-00001-of-00001.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    }
    config = ModelConfig.load(tmp_path / "out")
    assert config.checkpoint_quantization == "fp8"
    assert config.eos_token_ids == (5, 6)
    quantization = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert quantization["weight_block_size"] == [128, 128]


def test_config_from_openai(tmp_path):
    source = write_openai(tmp_path / "source", SMALL)
    convert_checkpoint(source, tmp_path / "out", format="fp8")
    before, after = ModelConfig.load(source), ModelConfig.load(tmp_path / "out")
    assert after.checkpoint_quantization == "fp8"
    for field in ("rope", "layer_types", "num_experts", "head_dim", "max_position_embeddings"):
        assert getattr(after, field) == getattr(before, field)


def test_shards_are_bounded_and_aligned(tmp_path):
    source = write_published(tmp_path / "source", RAGGED)
    report = convert_checkpoint(source, tmp_path / "out", format="fp8", shard_bytes=600_000)
    assert report.shards > 2
    assert_holds(tmp_path / "out", random_tensors(RAGGED))
    for path in (tmp_path / "out").glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            names = list(file.keys())
        # One unit may be larger than a shard; it is then alone in it.
        assert (
            path.stat().st_size < 610_000 or len({n.removesuffix("_scale_inv") for n in names}) == 1
        )
        with path.open("rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            header = json.loads(raw.read(length))
        header.pop("__metadata__")
        assert length % 8 == 0
        for entry in header.values():
            itemsize = {"F32": 4, "BF16": 2, "F8_E4M3": 1}[entry["dtype"]]
            assert entry["data_offsets"][0] % itemsize == 0


class TestWhatCannotBeExact:
    def test_is_counted_and_measured(self, tmp_path):
        source, tensors = write_wide(tmp_path / "source")
        report = convert_checkpoint(source, tmp_path / "out", format="fp8")
        assert_holds(tmp_path / "out", tensors, exact=False)
        (change,) = report.inexact
        assert change.name == GATE_UP
        assert change.values == 2 * SMALL.intermediate * SMALL.hidden * SMALL.experts
        old = decode_mxfp4(tensors[f"{GATE_UP}_blocks"], tensors[f"{GATE_UP}_scales"])
        found = read_all(tmp_path / "out")
        new = decode_fp8(found[GATE_UP], found[f"{GATE_UP}_scale_inv"])
        old = torch.stack((old[:, 0::2], old[:, 1::2]), dim=1)
        difference = (new - old).abs()
        assert report.changed == change.changed == int((difference != 0).sum()) == 64
        assert change.max_absolute == float(difference.max())
        assert change.max_relative == float((difference / old.abs()).nan_to_num(0).max()) == 1.0
        assert difference[2, 0, 5, 32:].eq(2.0**-25).all()
        others = difference.clone()
        others[2, 0, 5, 32:] = others[2, 0, 6, :32] = 0
        assert not others.any()
        summary = report.summary()
        assert f"64 of {report.values} converted values changed" in summary
        assert f"{GATE_UP}: 64 of {change.values}" in summary

    def test_weights_that_are_not_numbers(self, tmp_path):
        tensors = random_tensors(SMALL)
        tensors[f"{DOWN}_scales"][3, 0, 0] = 255
        source = write_folder(tmp_path / "source", tensors, make_config(SMALL))
        with pytest.raises(
            CheckpointError, match=rf"expert 3 of {DOWN} holds weights that are inf"
        ):
            convert_checkpoint(source, tmp_path / "out", format="fp8")
        assert not (tmp_path / "out" / "config.json").exists()
        assert not list((tmp_path / "out").glob("*.tmp"))

    def test_rounded_source(self, tmp_path):
        tensors = random_tensors(SMALL)
        source = write_float(tmp_path / "source", SMALL)
        stored = load_file(source / "model.safetensors")
        stored[DOWN] = torch.randn(stored[DOWN].shape).to(torch.bfloat16)
        write_folder(source, stored, json.loads((source / "config.json").read_text()))
        report = convert_checkpoint(source, tmp_path / "out", format="fp8")
        assert_holds(tmp_path / "out", tensors, exact=False)
        (change,) = report.inexact
        assert change.name == DOWN
        # A bfloat16 has 8 significant bits, an e4m3 has 4: 15 of 16 values round.
        assert 0.9 < change.changed / change.values < 0.96


class TestVerification:
    def test_a_disk_that_lies_is_noticed(self, tmp_path, monkeypatch):
        source = write_published(tmp_path / "source", SMALL)
        flush = ShardWriter.flush

        def damaging_flush(self):
            flush(self)
            with self.path.open("r+b") as file:
                file.seek(-3, os.SEEK_END)
                byte = file.read(1)
                file.seek(-3, os.SEEK_END)
                file.write(bytes([byte[0] ^ 8]))

        monkeypatch.setattr(ShardWriter, "flush", damaging_flush)
        with pytest.raises(CheckpointError, match="was not read back as it was written"):
            convert_checkpoint(source, tmp_path / "out", format="fp8")
        left = {path.name for path in (tmp_path / "out").iterdir()}
        assert left == {MANIFEST_NAME}

    def test_a_wrong_table_is_noticed(self, tmp_path, monkeypatch):
        # The conversion takes its own exactness on trust; the verification must not.
        source = write_published(tmp_path / "source", SMALL)
        right = matrices._byte_table()
        monkeypatch.setattr(matrices, "_byte_table", lambda: right.roll(256))
        with pytest.raises(CheckpointError, match="was not read back as it was written"):
            convert_checkpoint(source, tmp_path / "out", format="fp8")
        assert not list((tmp_path / "out").glob("*.safetensors"))

    def test_compare(self):
        old = torch.tensor([1.0, -2.0, 0.0, 4.0])
        assert compare("w", old, old.clone()).changed == 0
        change = compare("w", old, torch.tensor([1.0, -1.0, 0.0, 4.5]))
        assert (change.changed, change.max_absolute, change.max_relative) == (2, 1.0, 0.5)
        assert compare("w", old, torch.tensor([1.0, -2.0, 0.1, 4.0])).max_relative == torch.inf
        both = change + compare("w", old * 2, old)
        assert (both.values, both.changed, both.max_absolute) == (8, 5, 4.0)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_published(tmp_path_factory.mktemp("refusals"), SMALL)


class TestRefusals:
    def test_a_finished_target(self, source, tmp_path):
        convert_checkpoint(source, tmp_path / "out", format="fp8")
        with pytest.raises(ConversionError, match="already holds a checkpoint"):
            convert_checkpoint(source, tmp_path / "out", format="fp8")

    def test_the_source_itself(self, source):
        with pytest.raises(ConversionError, match="already holds a checkpoint"):
            convert_checkpoint(source, source, format="fp8")

    def test_a_foreign_folder(self, source, tmp_path):
        (tmp_path / "thesis.tex").write_text("precious")
        with pytest.raises(ConversionError, match=r"is not empty .* it holds thesis\.tex"):
            convert_checkpoint(source, tmp_path, format="fp8")
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    def test_a_file(self, source, tmp_path):
        (tmp_path / "out").touch()
        with pytest.raises(ConversionError, match="is a file"):
            convert_checkpoint(source, tmp_path / "out", format="fp8")

    def test_a_folder_that_cannot_be_made(self, source, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(ConversionError, match=r"cannot write to .*/file/out: Not a directory"):
            convert_checkpoint(source, tmp_path / "file" / "out", format="fp8")

    def test_too_little_disk(self, source, tmp_path, monkeypatch):
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 4096, 4096))
        with pytest.raises(ConversionError, match=r"needs 0\.07 GB more on the disk, and 0\.00 GB"):
            convert_checkpoint(source, tmp_path / "deep" / "out", format="fp8")
        assert not (tmp_path / "deep").exists()

    def test_fp8_already(self, source, tmp_path):
        convert_checkpoint(source, tmp_path / "out", format="fp8")
        with pytest.raises(ConversionError, match="FP8 experts already"):
            convert_checkpoint(tmp_path / "out", tmp_path / "again", format="fp8")
        assert not (tmp_path / "again").exists()

    def test_unknown_format(self, source, tmp_path):
        with pytest.raises(ConversionError, match="unknown format 'int4'"):
            convert_checkpoint(source, tmp_path / "out", format="int4")

    def test_a_damaged_source(self, tmp_path):
        source = write_published(tmp_path / "source", SMALL)
        with (source / "model.safetensors").open("r+b") as file:
            file.truncate(100_000)
        with pytest.raises(CheckpointError, match="is truncated"):
            convert_checkpoint(source, tmp_path / "out", format="fp8")
        assert not (tmp_path / "out").exists()

    def test_no_source(self, tmp_path):
        with pytest.raises(ConfigError, match="not a checkpoint folder"):
            convert_checkpoint(tmp_path / "nowhere", tmp_path / "out", format="fp8")

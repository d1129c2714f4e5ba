"""Conversions that were interrupted, and what goes on from there."""

import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple

import pytest

from rose.config import ConfigError, ModelConfig
from rose.convert.converter import SHARD_BYTES, ConversionError, convert_checkpoint
from rose.convert.exclusive import exclusive
from rose.convert.manifest import MANIFEST_NAME
from rose.convert.shards import ShardWriter
from rose.models.checkpoint import CheckpointError
from tests.convert.converted import assert_holds, write_wide
from tests.models.checkpoint_layouts import SMALL, random_tensors, write_published

SMALL_SHARDS = 60_000
Usage = namedtuple("Usage", "total used free")

KILLED = """
import os, signal, sys
from pathlib import Path
from rose.convert.converter import convert_checkpoint
from rose.convert.shards import ShardWriter

write = ShardWriter.write
def write_until_the_third_shard(self, name, row, value):
    write(self, name, row, value)
    if "00003-of" in self.path.name:
        os.kill(os.getpid(), signal.SIGKILL)
ShardWriter.write = write_until_the_third_shard
source, out, shard_bytes = sys.argv[1:]
convert_checkpoint(Path(source), Path(out), format="fp8", shard_bytes=int(shard_bytes))
"""

LIMITED = """
import resource, sys
from pathlib import Path
from rose.convert.converter import ConversionError, convert_checkpoint

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    convert_checkpoint(Path(sys.argv[1]), Path(sys.argv[2]), format="fp8")
except ConversionError as error:
    print(error)
"""


class InterruptedByTestError(Exception):
    pass


def interrupt(source, target, *, after):
    """Convert until `after` shards are committed, then fail in the next one."""
    committed = 0
    commit, write = ShardWriter.commit, ShardWriter.write

    def counting_commit(self):
        nonlocal committed
        commit(self)
        committed += 1

    def failing_write(self, name, row, value):
        write(self, name, row, value)
        if committed == after:
            raise InterruptedByTestError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardWriter, "commit", counting_commit)
        patch.setattr(ShardWriter, "write", failing_write)
        with pytest.raises(InterruptedByTestError):
            convert_checkpoint(source, target, format="fp8", shard_bytes=SMALL_SHARDS)


class TestInterruption:
    @pytest.fixture
    def source(self, tmp_path):
        return write_published(tmp_path / "source", SMALL)

    @pytest.fixture
    def out(self, tmp_path):
        return tmp_path / "out"

    def convert(self, source, out, shard_bytes=SMALL_SHARDS):
        return convert_checkpoint(source, out, format="fp8", shard_bytes=shard_bytes)

    def finished(self, out):
        return sorted(out.glob("*.safetensors"))

    def test_an_unfinished_target_is_no_checkpoint(self, source, out):
        interrupt(source, out, after=2)
        assert len(self.finished(out)) == 2
        assert not list(out.glob("*.tmp"))
        with pytest.raises(ConfigError, match="not a checkpoint folder"):
            ModelConfig.load(out)

    def test_finished_shards_are_kept(self, source, out):
        interrupt(source, out, after=2)
        before = {path: path.stat().st_ino for path in self.finished(out)}
        self.convert(source, out)
        assert all(path.stat().st_ino == inode for path, inode in before.items())
        assert_holds(out, random_tensors(SMALL))
        assert not (out / MANIFEST_NAME).exists()

    @pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
    def test_a_finished_shard_that_was_damaged_is_made_again(self, source, out, damage):
        interrupt(source, out, after=3)
        path = self.finished(out)[1]
        data = bytearray(path.read_bytes())
        if damage == "flip":
            data[-7] ^= 4
            path.write_bytes(data)
        elif damage == "truncate":
            path.write_bytes(data[:-1])
        else:
            path.unlink()
        self.convert(source, out)
        assert_holds(out, random_tensors(SMALL))

    def test_leftovers_of_a_kill_are_replaced(self, source, out):
        interrupt(source, out, after=1)
        first = self.finished(out)[0].name
        (out / first.replace("00001-of", "00002-of")).write_bytes(b"renamed but not recorded")
        (out / (first.replace("00001-of", "00003-of") + ".tmp")).write_bytes(b"half")
        self.convert(source, out)
        assert_holds(out, random_tensors(SMALL))
        assert not list(out.glob("*.tmp"))

    def test_leftovers_make_room_before_the_disk_is_measured(self, source, out, monkeypatch):
        interrupt(source, out, after=1)
        kept = self.finished(out)
        (out / (kept[0].name.replace("00001-of", "00002-of"))).write_bytes(b"not recorded")
        (out / (kept[0].name.replace("00001-of", "00003-of") + ".tmp")).write_bytes(b"half")

        def measure(path):
            assert self.finished(out) == kept
            assert not list(out.glob("*.tmp"))
            return Usage(10**9, 10**9, 0)

        monkeypatch.setattr(shutil, "disk_usage", measure)
        with pytest.raises(ConversionError, match="make room"):
            self.convert(source, out)
        assert self.finished(out) == kept

    def test_another_source_is_refused(self, source, out, tmp_path):
        interrupt(source, out, after=1)
        other = tmp_path / "other"
        shutil.copytree(source, other)
        data = bytearray((other / "model.safetensors").read_bytes())
        data[-1] ^= 1
        (other / "model.safetensors").write_bytes(data)
        with pytest.raises(ConversionError, match="of another source or with other options"):
            self.convert(other, out)
        self.convert(source, out)

    def test_a_second_conversion_into_the_same_folder_is_refused(self, source, out):
        with exclusive(out), pytest.raises(ConversionError, match="another conversion is writing"):
            self.convert(source, out)
        assert not out.exists()
        self.convert(source, out)
        assert_holds(out, random_tensors(SMALL))

    def test_a_source_that_changes_meanwhile_gives_no_checkpoint(self, source, out, monkeypatch):
        commit = ShardWriter.commit

        def touching_commit(self):
            commit(self)
            os.utime(source / "model.safetensors")

        monkeypatch.setattr(ShardWriter, "commit", touching_commit)
        with pytest.raises(ConversionError, match="changed while it was converted"):
            self.convert(source, out)
        assert not (out / "config.json").exists()

    def test_a_refused_conversion_leaves_no_folder(self, source, tmp_path, monkeypatch):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 0))
        with pytest.raises(ConversionError, match="make room"):
            self.convert(source, tmp_path / "new" / "deep")
        assert not (tmp_path / "new").exists()

    def test_other_options_are_refused(self, source, out):
        interrupt(source, out, after=1)
        with pytest.raises(ConversionError, match="of another source or with other options"):
            self.convert(source, out, shard_bytes=SMALL_SHARDS + 1)

    @pytest.mark.parametrize("text", ["{", '{"version": 99}', "[]", '{"version": 1}'])
    def test_a_damaged_manifest(self, source, out, text):
        interrupt(source, out, after=1)
        (out / MANIFEST_NAME).write_text(text)
        with pytest.raises(CheckpointError, match="to start over"):
            self.convert(source, out)

    def test_a_process_that_is_killed(self, source, out):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(source), str(out), str(SMALL_SHARDS)],
            check=False,
            timeout=120,
        )
        assert done.returncode == -signal.SIGKILL
        assert len(self.finished(out)) == 2
        assert len(list(out.glob("*.safetensors.tmp"))) == 1
        assert not (out / "config.json").exists()
        self.convert(source, out)
        assert_holds(out, random_tensors(SMALL))
        assert not list(out.glob("*.tmp"))

    def test_it_reports_what_an_uninterrupted_call_reports(self, tmp_path):
        source, _ = write_wide(tmp_path / "source")
        whole = self.convert(source, tmp_path / "a")
        interrupt(source, tmp_path / "b", after=whole.shards - 1)
        resumed = self.convert(source, tmp_path / "b")
        assert resumed.changed == 64
        assert resumed.changes == whole.changes

    def test_a_write_that_fails(self, source, out):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(source), str(out)],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stdout.strip() == f"cannot write to {out}: File too large"
        assert {path.name for path in out.iterdir()} == {MANIFEST_NAME}
        self.convert(source, out, shard_bytes=SHARD_BYTES)
        assert_holds(out, random_tensors(SMALL))

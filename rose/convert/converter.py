"""Checkpoint to checkpoint: streaming, resumable, verified.

The target becomes a checkpoint only at the very end, when config.json appears in it. Until then it
holds finished shards and a manifest that says from what they were made, so that a conversion that
was interrupted goes on where it stopped.
"""

import json
import shutil
from pathlib import Path

from rose.config import ModelConfig
from rose.convert.config_json import converted_config
from rose.convert.exclusive import BusyError, exclusive
from rose.convert.fp8 import Fp8Conversion
from rose.convert.manifest import MANIFEST_NAME, Manifest, SourceFile, fingerprint
from rose.convert.report import ConversionReport, TensorChange
from rose.convert.shards import (
    TEMPORARY_SUFFIX,
    Shard,
    ShardWriter,
    plan_shards,
    write_text_atomically,
)
from rose.models.checkpoint import INDEX_NAME, CheckpointError
from rose.models.layouts import ExpertStorage, WeightSource
from rose.progress import Progress
from rose.protocol import UserError

FORMATS = ("fp8",)

SHARD_BYTES = 4 * 10**9
SPARE_BYTES = 2**26
"""Room for headers, tokenizer and configuration."""

COPIED = (
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
    "*.jinja",
    "LICENSE*",
    "USAGE_POLICY*",
)


class ConversionError(UserError):
    """The target of a conversion cannot be written; the message says why and what would do."""


def convert_checkpoint(
    source: Path, target: Path, *, format: str, shard_bytes: int = SHARD_BYTES
) -> ConversionReport:
    """Write a checkpoint with FP8 experts from one with MXFP4 or unquantised experts.

    Every shard is read back from the disk and compared with the source before it counts. A call
    that was interrupted is continued by the same call; what it finished is verified again.

    Args:
        source: a checkpoint of any layout in `rose.models.layouts`.
        target: a new or empty folder, or one that an earlier call left unfinished.
        format: of the experts, one of FORMATS. "fp8": float8_e4m3fn, 128 x 128 blocks,
            power-of-two multipliers.
        shard_bytes: the most data in one file, unless one layer's projection takes more.

    Raises:
        ConfigError, CheckpointError: the source is no complete gpt-oss checkpoint, or cannot be
            converted; or what was written cannot be read back.
        ConversionError: the target is not for this conversion, or the disk is too small.
    """
    if format not in FORMATS:
        raise ConversionError(f"unknown format {format!r}; Rose writes {', '.join(FORMATS)}")
    config = ModelConfig.load(source)
    weights = WeightSource(source, config)
    if weights.storage is ExpertStorage.FP8:
        raise ConversionError(f"{source} has FP8 experts already")
    if target.exists() and not target.is_dir():
        raise ConversionError(f"{target} is a file; the target must be a new or empty folder")
    try:
        with exclusive(target):
            return _Converter(weights, config, target, shard_bytes).run()
    except BusyError:
        raise ConversionError(
            f"another conversion is writing to {target}; let it end, or choose another target"
        ) from None
    except OSError as error:
        raise ConversionError(f"cannot write to {target}: {error.strerror or error}") from error


class _Converter:
    def __init__(
        self, source: WeightSource, config: ModelConfig, target: Path, shard_bytes: int
    ) -> None:
        self.source = source
        self.config = config
        self.folder = source.checkpoint.folder
        self.target = target
        self.conversion = Fp8Conversion(source, config, self._advance)
        self.shards = plan_shards(self.conversion.units(), shard_bytes)
        self.progress: Progress | None = None
        self.manifest = open_manifest(target, fingerprint(self.folder, source), shard_bytes)

    def run(self) -> ConversionReport:
        self._remove_leftovers()
        self._check_space()
        self.manifest.save(self.target)
        # Each byte counts when it is written and when it has been read back.
        total = 2 * sum(shard.nbytes for shard in self.shards)
        with Progress(f"Converting to {self.target}", total=total, unit="B") as self.progress:
            changes = [change for shard in self.shards for change in self._finish(shard)]
        self._check_source()
        self._copy_files()
        self._write_index()
        text = json.dumps(converted_config(self.folder, self.config), indent=1) + "\n"
        write_text_atomically(self.target / "config.json", text)
        self.manifest.remove(self.target)
        size = sum(shard.nbytes for shard in self.shards)
        return ConversionReport(self.target, len(self.shards), size, tuple(changes))

    def _advance(self, nbytes: int) -> None:
        if self.progress is not None:
            self.progress.advance(nbytes)

    def _remove_leftovers(self) -> None:
        """Remove what an interrupted call left half-written or did not come to record."""
        for shard in self.shards:
            (self.target / (shard.file + TEMPORARY_SUFFIX)).unlink(missing_ok=True)
            if shard.file not in self.manifest.shards:
                (self.target / shard.file).unlink(missing_ok=True)

    def _check_space(self) -> None:
        missing = [s for s in self.shards if not (self.target / s.file).exists()]
        needed = sum(shard.nbytes for shard in missing) + SPARE_BYTES
        free = shutil.disk_usage(self.target).free
        if free < needed:
            raise ConversionError(
                f"{self.target}: the conversion needs {_size(needed)} more on the disk, and "
                f"{_size(free)} are free; make room or choose another target"
            )

    def _finish(self, shard: Shard) -> list[TensorChange]:
        """Make sure that a shard is there and right."""
        path = self.target / shard.file
        recorded = self.manifest.shards.get(shard.file)
        if recorded is not None and path.exists():
            try:
                self.conversion.verify(path, shard, recorded)
            except CheckpointError:
                # Damaged since it was recorded; it is made anew below.
                path.unlink()
            else:
                self._advance(shard.nbytes)
                return recorded
        with ShardWriter(self.target, shard) as writer:
            changes = self.conversion.write(writer, shard)
            writer.flush()
            self.conversion.verify(writer.path, shard, changes)
            writer.commit()
        self.manifest.shards[shard.file] = changes
        self.manifest.save(self.target)
        return changes

    def _check_source(self) -> None:
        if fingerprint(self.folder, self.source) != self.manifest.source:
            raise ConversionError(
                f"{self.folder} changed while it was converted; remove {self.target} and convert "
                "it again"
            )

    def _copy_files(self) -> None:
        names = {path.name for pattern in COPIED for path in self.folder.glob(pattern)}
        for name in sorted(names):
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, self.target / name)

    def _write_index(self) -> None:
        weight_map = {t.name: shard.file for shard in self.shards for t in shard.tensors}
        size = sum(shard.nbytes for shard in self.shards)
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
        write_text_atomically(self.target / INDEX_NAME, json.dumps(index, indent=1) + "\n")


def open_manifest(target: Path, source: list[SourceFile], shard_bytes: int) -> Manifest:
    """The manifest of an unfinished conversion like this one, or a new one.

    Raises:
        ConversionError: the target is something else.
    """
    wanted = Manifest(source=source, shard_bytes=shard_bytes)
    found = Manifest.load(target)
    if found is None:
        names = {path.name for path in target.iterdir()} - {MANIFEST_NAME + TEMPORARY_SUFFIX}
        if "config.json" in names:
            raise ConversionError(
                f"{target} already holds a checkpoint, which is not overwritten; remove it or "
                "choose another target"
            )
        if names:
            raise ConversionError(
                f"{target} is not empty and no unfinished conversion: it holds "
                f"{', '.join(sorted(names)[:3])}; choose a new or empty folder"
            )
        return wanted
    if (found.source, found.shard_bytes) != (wanted.source, wanted.shard_bytes):
        raise ConversionError(
            f"{target} holds an unfinished conversion of another source or with other options; "
            "remove it or choose another target"
        )
    return found


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB"

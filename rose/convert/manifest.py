"""What a conversion has finished, kept beside its output until all of it is."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rose.convert.report import TensorChange
from rose.convert.shards import write_text_atomically
from rose.models.checkpoint import INDEX_NAME, CheckpointError
from rose.models.layouts import WeightSource

MANIFEST_NAME = "conversion.json"
VERSION = 1
_SAMPLE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source, told apart from others by size, time and a digest of its ends."""

    name: str
    size: int
    modified_ns: int
    digest: str


def fingerprint(folder: Path, source: WeightSource) -> list[SourceFile]:
    """What identifies a source: its config, its index and its shards.

    Raises:
        CheckpointError: a file cannot be read.
    """
    paths = [folder / "config.json", folder / INDEX_NAME, *source.checkpoint.shards]
    try:
        return [_source_file(path) for path in paths if path.exists()]
    except OSError as error:
        raise CheckpointError(f"cannot read {folder}: {error.strerror}") from None


def _source_file(path: Path) -> SourceFile:
    status = path.stat()
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLE_BYTES))
        file.seek(max(0, status.st_size - _SAMPLE_BYTES))
        digest.update(file.read())
    return SourceFile(path.name, status.st_size, status.st_mtime_ns, digest.hexdigest())


@dataclass(slots=True)
class Manifest:
    """The state of a conversion.

    Attributes:
        source: what is converted.
        shard_bytes: the option that decides what lies in which shard.
        shards: the finished ones, with the changes of their tensors.
    """

    source: list[SourceFile]
    shard_bytes: int
    shards: dict[str, list[TensorChange]] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write it, atomically."""
        text = json.dumps({"version": VERSION, **asdict(self)}, indent=1) + "\n"
        write_text_atomically(folder / MANIFEST_NAME, text)

    @staticmethod
    def remove(folder: Path) -> None:
        """The conversion is complete."""
        (folder / MANIFEST_NAME).unlink()

    @classmethod
    def load(cls, folder: Path) -> "Manifest | None":
        """The manifest in a folder, if it has one.

        Raises:
            CheckpointError: it cannot be read, or another version of Rose wrote it.
        """
        path = folder / MANIFEST_NAME
        try:
            value = json.loads(path.read_text())
            if value["version"] != VERSION:
                raise ValueError(f"its version is {value['version']}, not {VERSION}")
            shards = {
                name: [TensorChange(**change) for change in changes]
                for name, changes in value["shards"].items()
            }
            source = [SourceFile(**file) for file in value["source"]]
            return cls(source=source, shard_bytes=value["shard_bytes"], shards=shards)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{path} is no manifest that this version of Rose can continue ({error}); remove "
                f"{folder} to start over"
            ) from None

"""A result in the making: on the disk after every cell, marked partial until the last."""

import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from rose.bench.machine import detect_machine, detect_software
from rose.bench.results import VERSION, Cell, Result, SkippedCell, save


def new_result(
    *,
    flags: Mapping[str, str],
    usd_per_gpu_hour: float = 3.0,
    engine: str | None = None,
    notes: list[str] | None = None,
) -> Result:
    """A result without cells, made by this process's command line on this machine now.

    Args:
        flags: the options that the command line resolved to.
        usd_per_gpu_hour: the price asked for.
        engine: what is measured, as "vllm 0.26.0"; None: Rose itself.
        notes: what a reader must know.
    """
    return Result(
        version=VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=encodable(shlex.join(["rose", *sys.argv[1:]])),
        machine=detect_machine(),
        software=detect_software(engine),
        flags={name: encodable(value) for name, value in flags.items()},
        cells=[],
        usd_per_gpu_hour=usd_per_gpu_hour,
        partial=True,
        notes=list(notes or []),
    )


def encodable(text: str) -> str:
    """Bytes of a command line that are no text become "?": JSON has no form for them."""
    return text.encode(errors="replace").decode()


class Recorder:
    """Collects cells; use it around the measuring.

    The file is whole at any time: what was measured survives ^C and even a killed process, and
    stays marked partial unless the block ends without an error. An older file of that name gives
    way to the first cell, not before.

    Args:
        result: what `new_result` made.
        path: the file to write; None: nowhere.
    """

    def __init__(self, result: Result, path: Path | None) -> None:
        self.result = msgspec.structs.replace(result, partial=True)
        self._path = path

    def add(self, cell: Cell) -> None:
        """Keep a cell that was measured."""
        self.result.cells.append(cell)
        self._save()

    def skip(self, cell: SkippedCell) -> None:
        """Keep why a cell cannot be measured."""
        self.result.skipped.append(cell)
        self._save()

    def note(self, text: str) -> None:
        """Keep what a reader must know, once."""
        if text not in self.result.notes:
            self.result.notes.append(text)
            self._save()

    def _save(self) -> None:
        if self._path is not None:
            save(self.result, self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.result = msgspec.structs.replace(self.result, partial=False)
            self._save()

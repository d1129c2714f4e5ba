"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import NoReturn, Self, TextIO

from tqdm import tqdm

LINE_INTERVAL_S = 5.0

LEAST_RATE_S = 1.0
"""Work of bytes that took less has no rate worth telling."""


def note(text: str) -> None:
    """Tell of something that is done, in one line on standard error; nowhere if that is closed."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


class Progress:
    """Counts `total` units of work; use as a context manager.

    On a terminal it draws a bar; elsewhere it prints a line at most every few seconds, and one at
    the end. All of it goes to standard error; if that is closed, nowhere.
    """

    def __init__(
        self, title: str, *, total: int, unit: str = "it", stream: TextIO | None = None
    ) -> None:
        self._title, self._total, self._unit = title, total, unit
        # It is None where the process was started without one.
        self._stream: TextIO | None = stream or sys.stderr
        self._done = 0
        self._start = self._last_line = time.monotonic()
        self._bar: tqdm[NoReturn] | None = None
        if self._stream is not None and self._stream.isatty():
            scale = unit == "B"
            self._bar = tqdm(
                desc=title, total=total, unit=unit, unit_scale=scale, file=self._stream, leave=False
            )

    def advance(self, amount: int = 1) -> None:
        """Count `amount` more units as done."""
        self._done += amount
        if self._bar is not None:
            self._bar.update(amount)
        elif time.monotonic() - self._last_line >= LINE_INTERVAL_S:
            self._line()

    def _line(self) -> None:
        if self._stream is None:
            return
        self._last_line = time.monotonic()
        done, total = self._show(self._done), self._show(self._total)
        unit = self._rate() if self._unit == "B" else f" {self._unit}"
        self._stream.write(f"{self._title}: {done} of {total}{unit}\n")
        self._stream.flush()

    def _rate(self) -> str:
        """Over all the time so far, where there is enough of it to tell."""
        seconds = time.monotonic() - self._start
        return f", {self._done / seconds / 1e9:.2f} GB/s" if seconds >= LEAST_RATE_S else ""

    def _show(self, amount: int) -> str:
        if self._unit == "B":
            return f"{amount / 1e9:.2f} GB" if self._total >= 1e8 else f"{amount / 1e6:.2f} MB"
        return str(amount)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif error is None:
            self._line()

"""One conversion at a time into a folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class BusyError(OSError):
    """Another process holds the folder."""


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Make a folder if need be, and hold it; a folder that stays empty is removed again.

    The lock ends with the process, however that ends.

    Raises:
        BusyError: another process holds it.
        OSError: it cannot be made.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)
        for place in made:
            with suppress(OSError):
                place.rmdir()


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BusyError("another process holds the folder") from error
    except OSError:
        return  # some network file systems know no locks

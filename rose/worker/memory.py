"""Allocations too large for the device, as errors of the user's kind."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rose.config import ConfigError

# What torch says on the CPU, where a failed allocation has no type of its own.
_CPU_MESSAGES = ("can't allocate memory", "not enough memory", "size calculation overflowed")


@contextmanager
def memory_for(what: str, remedy: str) -> Iterator[None]:
    """Turn a failed allocation into an error that says what it was for and what would do.

    Raises:
        ConfigError: the device's memory does not suffice.
    """
    try:
        yield
    except (RuntimeError, MemoryError, OverflowError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        plain = isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError)
        if plain and not any(message in lines[0] for message in _CPU_MESSAGES):
            raise
        raise ConfigError(f"no memory for {what}: {lines[0]}; {remedy}") from error

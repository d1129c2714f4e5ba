"""The files of the commands: prompts of token ids to read, and a result to write whole or not."""

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from rose.config import ConfigError

_IDS = re.compile(r"\s*-?[0-9]{1,18}\s*(,\s*-?[0-9]{1,18}\s*)*")


def parse_prompt(text: str) -> list[int]:
    """Token ids separated by commas.

    Raises:
        ConfigError: the text is something else.
    """
    if not _IDS.fullmatch(text):
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise ConfigError(f"--tokens must be ids separated by commas; got {shown!r}")
    return [int(word) for word in text.split(",")]


def read_prompts(path: Path) -> tuple[list[list[int]], bool]:
    """The prompts of a JSON file, and whether they came as an array of arrays.

    Raises:
        ConfigError: it is no JSON, holds something else than ids, or an empty prompt.
        OSError: it cannot be read.
    """
    try:
        # Editors on some systems begin a file with a byte order mark.
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    nested = isinstance(found, list) and any(isinstance(item, list) for item in found)
    prompts = found if nested else [found]
    for prompt in prompts:
        if not isinstance(prompt, list) or any(type(token) is not int for token in prompt):
            raise ConfigError(
                f"{path} must hold a JSON array of token ids or an array of such arrays"
            )
    empty = next((number for number, prompt in enumerate(prompts) if not prompt), None)
    if empty is not None:
        which = f"prompt {empty} of {path}" if nested else f"the prompt of {path}"
        raise ConfigError(f"{which} is empty; it needs at least one token id")
    return prompts, nested


def check_output(path: Path) -> None:
    """Refuse a path that `write_whole` could not write, before the work is done.

    Raises:
        ConfigError: its folder is missing or not writable, or it is no regular file.
    """
    if not path.name:
        raise ConfigError(f"{str(path)!r} names no file to write")
    folder = path.parent
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; make it first, or choose another --out")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} is not writable; choose another --out")
    # What is put in place of a device or a pipe would replace it.
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise ConfigError(f"{path} is no regular file; choose another --out")


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a file under a temporary name, then give it its own; or leave nothing.

    Raises:
        ConfigError: it cannot be written.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write(unfinished)
        unfinished.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)

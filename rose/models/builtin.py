"""What comes with Rose, found by a short name: small checkpoints, and the large ones' shapes."""

import os
from importlib.resources import files
from pathlib import Path

from rose.config import ConfigError

SERVED_NAMES = {"nano": "rose-nano", "nano-draft": "rose-nano-draft"}
"""The name that clients ask for, of each built-in model."""

SHAPES = ("gpt-oss-20b", "gpt-oss-120b")
"""Published models of which Rose holds the config.json alone: enough for random weights."""


def builtin_checkpoint(model: str) -> Path | None:
    """The folder of a built-in model; None if `model` names none.

    A bare name is the built-in model even where a folder is called so; `./nano` is the folder.

    Raises:
        ConfigError: this installation lacks the model's files.
    """
    if model not in SERVED_NAMES:
        return None
    folder = _assets() / model
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{model} comes with Rose, but this installation lacks its files: {folder} has no "
            f"config.json; install Rose again, or write ./{model} if you mean a folder"
        )
    return folder


def builtin_shape(model: str) -> Path | None:
    """The folder with the config.json of a published model; None if `model` names none."""
    return _assets() / "configs" / model if model in SHAPES else None


def _assets() -> Path:
    return Path(str(files("rose"))) / "assets"


def served_name(model: str) -> str:
    """The name under which a model is served if the user chooses none.

    A built-in model has its own, a folder its last component, a Hugging Face id stays whole.
    """
    if model in SERVED_NAMES:
        return SERVED_NAMES[model]
    folder = Path(model).expanduser()
    # Made absolute, since `.` has a name too; a link keeps its own.
    return (Path(os.path.abspath(folder)).name or model) if folder.is_dir() else model

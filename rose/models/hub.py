"""Where a checkpoint is: inside Rose, a local folder, or a download from the Hugging Face Hub."""

import os
import re
from pathlib import Path

from rose.config import ConfigError
from rose.models.builtin import builtin_checkpoint, builtin_shape

ALLOWED = ("*.json", "*.safetensors", "*.jinja", "tokenizer*", "*.tiktoken")
IGNORED = ("original/*", "metal/*")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def find_checkpoint(model: str, *, dummy: bool = False) -> Path:
    """The local folder of a model, downloaded first if need be.

    A download resumes where an earlier one stopped, and shows its own progress.

    Args:
        model: a built-in model such as "nano", a folder, or a Hugging Face id such as
            "openai/gpt-oss-20b".
        dummy: only its config.json is wanted; Rose has those of gpt-oss-20b and gpt-oss-120b.

    Raises:
        ConfigError: there is no such folder, the Hub cannot be reached or knows no such model, or
            this installation lacks the built-in one.
    """
    builtin = builtin_checkpoint(model)
    if builtin is not None:
        return builtin
    if not model:
        raise ConfigError("the model's name is empty; name a folder or a Hugging Face id")
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if os.path.exists(folder):
        raise ConfigError(f"{model} is a file; name the folder that holds the checkpoint")
    shape = builtin_shape(model)
    if shape is not None:
        if dummy:
            return shape
        raise ConfigError(
            f"Rose holds the shape of {model}, not its weights: name openai/{model} to download "
            "it, the folder that holds it, or --load-format dummy for random weights"
        )
    if not _REPOSITORY.fullmatch(model):
        raise ConfigError(
            f"{model}: no such folder, nor is this a Hugging Face id like openai/gpt-oss-20b"
        )
    return _download(model)


def _download(model: str) -> Path:
    # Imported here: it takes a while, and a local folder needs none of it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    try:
        path = snapshot_download(model, allow_patterns=list(ALLOWED), ignore_patterns=list(IGNORED))
    except GatedRepoError:
        raise ConfigError(
            f"{model}: access to this model must be asked for on the Hugging Face Hub; then log "
            "in with `hf auth login`"
        ) from None
    except RepositoryNotFoundError:
        raise ConfigError(
            f"{model}: no such folder, and the Hugging Face Hub knows no such model (a private one "
            "needs `hf auth login`)"
        ) from None
    except (LocalEntryNotFoundError, OfflineModeIsEnabled):
        raise ConfigError(
            f"{model}: no such folder, the local cache does not hold all of it, and the Hugging "
            "Face Hub cannot be reached; connect, or name a local folder"
        ) from None
    except Exception as error:
        # Releases of the client differ in their HTTP library, so that a connection that breaks
        # has no type to name; what was downloaded stays, and the next call goes on from there.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{model}: the download failed: {reason}; try again to resume") from error
    return Path(path)

"""All chat formats, and which one a model has. A new one is a module and a line here."""

from collections.abc import Callable
from pathlib import Path

from rose.protocol import UserError
from rose.server.chat.format import ChatFormat
from rose.server.chat.harmony import HarmonyFormat
from rose.server.chat.template import TemplateFormat
from rose.server.detokenize import TextCodec

FORMATS: dict[str, Callable[[Path, TextCodec], ChatFormat]] = {
    "harmony": lambda folder, codec: HarmonyFormat(codec),
    "template": TemplateFormat.load,
}
"""By name, in the order in which they are tried. Each makes a model's format from the folder of its
checkpoint and its tokenizer, and raises a UserError that says what is missing."""


class ChatFormatError(UserError):
    """There is no chat format for a model; the message says why."""


def find_chat_format(folder: Path, codec: TextCodec | None, name: str | None = None) -> ChatFormat:
    """A model's chat format.

    Args:
        folder: of the checkpoint.
        codec: its tokenizer; None: it has none.
        name: of the format; None: the first one that the model has all parts of.

    Raises:
        ChatFormatError: there is none, or none of that name.
    """
    if name is not None and name not in FORMATS:
        raise ChatFormatError(f"no chat format is named {name!r}; there are {', '.join(FORMATS)}")
    if codec is None:
        raise ChatFormatError(f"{folder} has no tokenizer.json, without which there is no text")
    missing = []
    for candidate in FORMATS if name is None else (name,):
        try:
            return FORMATS[candidate](folder, codec)
        except UserError as error:
            missing.append(f"{candidate}: {error}")
    raise ChatFormatError("; ".join(missing))

"""Harmony's alphabet: special tokens by name, and text between them.

Pieces are what the renderer writes. They know nothing of ids, so that one layout serves every
tokenizer that has the special tokens.
"""

from collections.abc import Iterable
from enum import Enum

from rose.protocol import UserError
from rose.server.detokenize import TextCodec


class Special(Enum):
    """The special tokens of Harmony; the values are their names in a vocabulary."""

    START = "<|start|>"
    CHANNEL = "<|channel|>"
    CONSTRAIN = "<|constrain|>"
    MESSAGE = "<|message|>"
    END = "<|end|>"
    CALL = "<|call|>"
    RETURN = "<|return|>"


Piece = Special | str
"""A special token, or plain text in which nothing is special."""

END_OF_TEXT = "<|endoftext|>"
"""No part of the format, but a stop that checkpoints name in their generation_config."""


class HarmonyVocabularyError(UserError):
    """The tokenizer lacks special tokens of Harmony; the message names them."""


def special_ids(codec: TextCodec) -> dict[Special, int]:
    """Ids of the special tokens in a vocabulary.

    Raises:
        HarmonyVocabularyError: some are missing.
    """
    found = {special: codec.special_token_id(special.value) for special in Special}
    missing = [special.value for special, token_id in found.items() if token_id is None]
    if missing:
        raise HarmonyVocabularyError(
            f"the tokenizer lacks {', '.join(missing)} as special tokens; the Harmony format needs"
            " the tokenizer.json of a gpt-oss checkpoint"
        )
    return {special: token_id for special, token_id in found.items() if token_id is not None}


def encode_pieces(pieces: Iterable[Piece], codec: TextCodec) -> list[int]:
    """Token ids of pieces. `<|start|>` within text stays text, whoever wrote it.

    Raises:
        HarmonyVocabularyError: the tokenizer lacks special tokens of Harmony.
    """
    ids_of = special_ids(codec)
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, Special):
            ids.append(ids_of[piece])
        else:
            ids.extend(codec.encode_plain(piece))
    return ids

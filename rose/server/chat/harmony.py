"""Harmony, the format of gpt-oss: what others import."""

from typing import Literal

from rose.server.chat.format import Conversation
from rose.server.chat.harmony_parser import HarmonyParser, HarmonyVocabulary
from rose.server.chat.harmony_pieces import (
    END_OF_TEXT,
    HarmonyVocabularyError,
    Piece,
    Special,
    encode_pieces,
    special_ids,
)
from rose.server.chat.harmony_render import render_pieces, render_turn_pieces
from rose.server.detokenize import TextCodec

__all__ = [
    "HarmonyFormat",
    "HarmonyVocabularyError",
    "Piece",
    "Special",
    "encode_pieces",
    "render_pieces",
    "render_turn_pieces",
]


class HarmonyFormat:
    """The format over one vocabulary.

    Args:
        codec: the model's tokenizer.

    Raises:
        HarmonyVocabularyError: it lacks special tokens of Harmony.
    """

    layout: Literal["harmony", "text"] = "harmony"

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec
        self._vocabulary = HarmonyVocabulary(codec)
        codec.encode_plain("")  # what it prepares takes a second: now, not in the first request
        ids = special_ids(codec)
        end_of_text = codec.special_token_id(END_OF_TEXT)
        stops = (ids[Special.RETURN], ids[Special.CALL])
        self.stop_token_ids: tuple[int, ...] = (
            stops if end_of_text is None else (*stops, end_of_text)
        )

    def render(self, conversation: Conversation) -> list[int]:
        """The prompt, up to where the assistant's turn begins.

        Raises:
            UserError: a message that Harmony has no form for; the message names it.
        """
        return encode_pieces(render_pieces(conversation), self._codec)

    def parser(self, conversation: Conversation) -> HarmonyParser:
        """A parser for the turn that answers this conversation."""
        declared = frozenset(tool.name for tool in conversation.tools)
        return HarmonyParser(self._vocabulary, declared)

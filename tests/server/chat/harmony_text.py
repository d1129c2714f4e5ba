"""Transcripts in tests: pieces as one text, and texts with special tokens as ids."""

import re
from collections.abc import Iterable

from rose.server.chat.format import ContentDelta, Conversation, Delta, FunctionTool, ReasoningDelta
from rose.server.chat.harmony import HarmonyFormat, Piece, Special
from rose.server.chat.turn import ParsedTurn, parse_turn
from rose.server.detokenize import TextCodec

_MARKER = re.compile(r"(<\|\w+\|>)")


def text_of(pieces: Iterable[Piece]) -> str:
    return "".join(piece.value if isinstance(piece, Special) else piece for piece in pieces)


def ids_of(codec: TextCodec, transcript: str) -> list[int]:
    """Token ids of a transcript in which names of special tokens are those tokens."""
    ids: list[int] = []
    for part in _MARKER.split(transcript):
        special = codec.special_token_id(part)
        ids += [special] if special is not None else codec.encode_plain(part)
    return ids


def conversation_with(*functions: str) -> Conversation:
    return Conversation(messages=(), tools=[FunctionTool(name=name) for name in functions])


def deltas_of(codec: TextCodec, transcript: str, *functions: str) -> list[Delta]:
    parser = HarmonyFormat(codec).parser(conversation_with(*functions))
    deltas = [delta for token_id in ids_of(codec, transcript) for delta in parser.push(token_id)]
    return [*deltas, *parser.flush()]


def turn_of(codec: TextCodec, transcript: str, *functions: str) -> ParsedTurn:
    parser = HarmonyFormat(codec).parser(conversation_with(*functions))
    return parse_turn(parser, ids_of(codec, transcript))


def seen(turn: ParsedTurn) -> tuple[str, str, list[tuple[str, str]]]:
    """Reasoning, content, and the calls' names and arguments."""
    return turn.reasoning, turn.content, [(call.name, call.arguments) for call in turn.calls]


def text_in(delta: Delta) -> str:
    if isinstance(delta, ReasoningDelta | ContentDelta):
        return delta.text
    return delta.arguments

"""Messages of `rose.protocol` as ZeroMQ frames: `[kind, MessagePack payload]`.

The kind is the type's name and the version of this format, `Request/1`. So peers of different
versions refuse each other's messages with a clear error, at no cost per message.
"""

from collections.abc import Sequence

import msgspec

from rose.protocol import (
    Abort,
    EngineFailed,
    EngineInfo,
    Heartbeat,
    Hello,
    OutputBatch,
    Rejected,
    Request,
    Shutdown,
)

VERSION = 1
"""Goes up when a message changes in a way that old peers cannot read."""

Message = (
    Request
    | Abort
    | Hello
    | Shutdown
    | EngineInfo
    | OutputBatch
    | Rejected
    | Heartbeat
    | EngineFailed
)
"""What may cross: the first four go to the engine, the others come from it."""

_TYPES: tuple[type[Message], ...] = (
    Request,
    Abort,
    Hello,
    Shutdown,
    EngineInfo,
    OutputBatch,
    Rejected,
    Heartbeat,
    EngineFailed,
)
_KINDS: dict[type[Message], bytes] = {t: f"{t.__name__}/{VERSION}".encode() for t in _TYPES}
_DECODERS = {kind: msgspec.msgpack.Decoder(message) for message, kind in _KINDS.items()}
_encoder = msgspec.msgpack.Encoder()


class WireError(ValueError):
    """Frames that are no message of this version; the message says what came instead."""


def encode(message: Message) -> list[bytes]:
    """The frames of a message.

    Raises:
        WireError: the object is no message, or holds an integer of more than 64 bits.
    """
    kind = _KINDS.get(type(message))
    if kind is None:
        raise WireError(f"{type(message).__name__} is no message; expected one of {_names()}")
    try:
        return [kind, _encoder.encode(message)]
    except OverflowError:
        name = type(message).__name__
        raise WireError(f"a number in this {name} does not fit in 64 bits") from None


def decode(frames: Sequence[bytes]) -> Message:
    """The message that the frames hold.

    Raises:
        WireError: wrong number of frames, unknown kind, other version, or a payload that does not
            fit the kind (a value out of range included).
    """
    if len(frames) != 2:
        raise WireError(f"a message has 2 frames, kind and payload; got {len(frames)}")
    kind, payload = frames
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise WireError(_unknown(kind))
    try:
        return decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise WireError(f"malformed {kind.decode()} message: {error}") from error


def _unknown(kind: bytes) -> str:
    shown = kind[:64].decode(errors="replace")
    name, _, version = shown.partition("/")
    if name in {t.__name__ for t in _TYPES} and version.isdecimal():
        return (
            f"{name} message of wire version {version}; this side speaks version {VERSION}: "
            "run the same release of Rose on both sides"
        )
    return f"unknown message kind {shown!r}; expected one of {_names()}"


def _names() -> str:
    return ", ".join(t.__name__ for t in _TYPES)

"""What the corpus is made of: a conversation and the turn that should answer it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rose.server.chat.format import Conversation, Message

Split = Literal["train", "heldout"]

HELDOUT_ONE_IN = 40
UNSEEN_NAMES_OF_100 = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a right answer holds.

    Attributes:
        answer: the key part of the final text (a number, a name, ...) that must occur in it. None:
            there is no single right text.
        call: the function's name and its arguments. None: no call is right.
        json: the object that the final text must be. None: the answer is no JSON.
    """

    answer: str | None = None
    call: tuple[str, Mapping[str, object]] | None = None
    json: object | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One turn to learn or to be measured on.

    Attributes:
        task: the family, e.g. "addition", "recall", "tool_call".
        conversation: up to the last user's or tool's message.
        turn: what the assistant should write next: its analysis, then a call or the final.
        expected: what a right answer holds.
        key: identifies the prompt: it decides whether this is a training example.
        unseen_tool: a declared tool's name occurs in no training example.
    """

    task: str
    conversation: Conversation
    turn: tuple[Message, ...]
    expected: Expected = field(default_factory=Expected)
    key: str
    unseen_tool: bool = False


def _hash(text: str, salt: bytes) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=4, salt=salt).digest()
    return int.from_bytes(digest, "little")


def is_heldout_key(key: str) -> bool:
    """Whether the prompt with this key is for evaluation only."""
    return _hash(key, b"prompt") % HELDOUT_ONE_IN == 0


def is_unseen_tool(name: str) -> bool:
    """Whether a tool of this name, in whatever case and style, may occur in evaluation only."""
    plain = "".join(c for c in name.lower() if c.isalnum())
    return _hash(plain, b"tool") % 100 < UNSEEN_NAMES_OF_100


def split_of(example: Example) -> Split:
    """Where this example belongs."""
    heldout = example.unseen_tool or is_heldout_key(example.key)
    return "heldout" if heldout else "train"

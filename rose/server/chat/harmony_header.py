"""Headers as models write them: role, channel and recipient, right or not.

A header is what stands between `<|start|>` and `<|message|>`. Models cut it short, repeat it,
mistype it and forget its end; whatever they wrote, reading it gives a meaning and never an error.
"""

import difflib
import re
from dataclasses import dataclass, field

from rose.server.chat.format import Channel
from rose.server.chat.harmony_pieces import Special

MAX_HEADER_CHARS = 256
"""Longer text is no header but a message whose `<|message|>` is missing. Real headers are shorter:
a function's name has at most 64 characters."""

CHANNELS: tuple[Channel, ...] = ("analysis", "commentary", "final")
SPEAKERS = frozenset({"assistant", "user", "system", "developer", "tool", "all"})
"""Recipients that are no functions."""
TELLING_PREFIX = 3
"""Letters by which a channel is known whatever follows them."""
LIKENESS = 0.75
"""How like a channel's name (difflib's ratio) another word must be to be that name mistyped."""

_ROLE = re.compile(r"\s*(assistant|user|system|developer|tool|functions\.[\w.\-]+)")
_CHANNEL = re.compile(r"\s*(analysis|commentary|final)(?=to=|[^a-z]|$)")
_RECIPIENT = re.compile(r"\s*to=\s*([^\s{]*)")
_ANY_RECIPIENT = re.compile(r"to=\s*([^\s{]*)")
_CONTENT_TYPE = re.compile(r"\s*(json|code|text|python)?")


@dataclass(slots=True)
class HeaderText:
    """A header as far as it is written, by the markers in it.

    Attributes:
        started: the model wrote `<|start|>`; else the text may be stray, between two messages.
        role: text before the first `<|channel|>`.
        channel: text after it; None: there was none.
        content_type: text after `<|constrain|>`; None: there was none.
        inherited: the recipient of a header that was begun anew before any text.
    """

    started: bool = False
    role: str = ""
    channel: str | None = None
    content_type: str | None = None
    inherited: str | None = None
    chars: int = field(default=0)

    def add(self, text: str) -> None:
        """More text."""
        self.chars += len(text)
        if self.content_type is not None:
            self.content_type += text
        elif self.channel is not None:
            self.channel += text
        else:
            self.role += text

    def mark(self, marker: Special) -> None:
        """A marker within the header: what follows belongs to the next section."""
        if marker is Special.CHANNEL and self.channel is None:
            self.channel = ""
        elif marker is Special.CONSTRAIN and self.content_type is None:
            self.content_type = ""

    @property
    def too_long(self) -> bool:
        """This cannot be a header."""
        return self.chars > MAX_HEADER_CHARS


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says.

    Attributes:
        channel: None if it names none that can be guessed.
        recipient: as written after `to=`; None if it names none.
        text: what is no part of a header: text of a message, or stray.
    """

    channel: Channel | None
    recipient: str | None
    text: str = ""


def read_closed(header: HeaderText, declared: frozenset[str]) -> Header:
    """A header that `<|message|>` ends. It is markup; superfluous words in it mean nothing.

    The exception is text before the header where `<|start|>` is missing: it is stray.

    Args:
        header: the text.
        declared: functions' names, by which recipients are known that lack `to=`.
    """
    role, channel = header.role, header.channel or ""
    rest = role if header.started else _without_role(role)
    found = _channel_of(channel) or _channel_of_role(role)
    recipient = _recipient_in(" ".join([role, channel, header.content_type or ""]))
    recipient = recipient or _bare_recipient(channel, declared) or header.inherited
    stray = "" if header.started or "to=" in role else _CHANNEL.sub("", rest, count=1)
    return Header(found, recipient, stray if stray.strip() else "")


def read_open(header: HeaderText) -> Header:
    """A header whose `<|message|>` is missing: what is no markup is the message's text."""
    role, channel = header.role, header.channel or ""
    found: Channel | None = None
    if header.started:
        match = _ROLE.match(role)
        role = role[match.end() :] if match else role
        glued = _CHANNEL.match(role) if match and not role[:1].isspace() else None
        if glued:
            found, role = _channel_of(glued[1]), role[glued.end() :]
    else:
        role = _without_role(role)
    role_recipient, role = _cut_recipient(role)
    if header.channel is not None:
        found = _channel_of(channel) or found
        channel = _without_channel(channel)
    channel_recipient, channel = _cut_recipient(channel)
    content_type = header.content_type or ""
    match = _CONTENT_TYPE.match(content_type)
    content_type = content_type[match.end() :] if match and match[1] else content_type
    text = (role + channel + content_type).lstrip()
    return Header(found, role_recipient or channel_recipient or header.inherited, text)


def another_speaker(header: HeaderText) -> bool:
    """Whether a message is headed as someone else's than the assistant's."""
    role = _ROLE.match(header.role) if header.started else None
    return role is not None and role[1] != "assistant"


def function_name(recipient: str | None, declared: frozenset[str]) -> str | None:
    """The function that a recipient names; None: it names none, so the message is no call.

    Names that are not declared pass as they are, built-in tools' among them: the client decides.
    What follows a declared name without belonging to a name is cut off.
    """
    if recipient is None or (recipient in SPEAKERS and recipient not in declared):
        return None
    name = recipient.removeprefix("functions.")
    if name in declared:
        return name
    known = re.match(r"[\w\-]+", name)
    return known[0] if known and known[0] in declared else name or None


def _without_role(text: str) -> str:
    """Text where a role may stand but need not: a role is one if nothing but markup follows."""
    match = _ROLE.match(text)
    rest = text[match.end() :] if match else text
    markup = not rest.strip() or _RECIPIENT.match(rest) or _CHANNEL.fullmatch(rest.rstrip())
    return rest if markup else text


def _channel_of(text: str) -> Channel | None:
    """The channel that a section's first word names, mistyped perhaps."""
    words = text.lower().split(maxsplit=1)
    word = words[0] if words else ""
    for channel in CHANNELS:
        if word.startswith(channel[:TELLING_PREFIX]):
            return channel
    alike = difflib.get_close_matches(word, CHANNELS, n=1, cutoff=LIKENESS)
    return next((channel for channel in CHANNELS if channel in alike), None)


def _without_channel(text: str) -> str:
    """A channel's section without the name; a mistyped one is a name only if it stands alone."""
    match = _CHANNEL.match(text)
    if match:
        return text[match.end() :]
    word = text.split("to=", 1)[0].strip()
    alone = word.isalpha() and _channel_of(word) is not None
    return text.replace(word, "", 1) if alone else text


def _channel_of_role(role: str) -> Channel | None:
    """The channel in a header without `<|channel|>`."""
    match = _ROLE.match(role)
    named = _CHANNEL.match(role, match.end() if match else 0)
    return _channel_of(named[1]) if named else None


def _recipient_in(text: str) -> str | None:
    match = _ANY_RECIPIENT.search(text)
    return match[1] or None if match else None


def _bare_recipient(channel: str, declared: frozenset[str]) -> str | None:
    for word in channel.split()[1:]:
        if word.startswith("functions.") or word in declared:
            return word
    return None


def _cut_recipient(text: str) -> tuple[str | None, str]:
    match = _RECIPIENT.match(text)
    return (match[1] or None, text[match.end() :]) if match else (None, text)

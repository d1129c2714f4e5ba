"""Which chunk of a stream brought how many tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from rose.bench.serving.sse import StreamError

_ABSENT = msgspec.Raw(b"null")
"""A field that is not there, or null: what Raw keeps of both."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Usage(msgspec.Struct):
    """The server's own count."""

    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: msgspec.Raw = _ABSENT


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = _ABSENT


_decode = msgspec.json.Decoder(_Chunk).decode


class ServerError(Exception):
    """An error that the server told within a stream."""


@dataclass(slots=True)
class Chunk:
    """Output that came at once.

    Attributes:
        time: seconds, by `time.monotonic`.
        size: characters; 0: the tokens of this chunk have no text of their own.
        tokens: how many, if the server told; 0: it did not.
    """

    time: float
    size: int
    tokens: int = 0


@dataclass(slots=True)
class Output:
    """What a stream has brought.

    Attributes:
        chunks: in order.
        ending: an empty chunk that told why the output ends, if there was one: it may or may not
            have been a token.
        usage: the server's count, once it came.
    """

    chunks: list[Chunk] = field(default_factory=list)
    ending: Chunk | None = None
    usage: Usage | None = None

    def take(self, data: bytes, now: float) -> None:
        """Take the data of one event.

        Args:
            data: JSON.
            now: when it came, by `time.monotonic`.

        Raises:
            ServerError: the event is an error.
            StreamError: it is no chunk of a completion.
        """
        try:
            chunk = _decode(data)
        except msgspec.DecodeError as error:
            raise StreamError(f"not a chunk of a completion: {error}: {data[:80]!r}") from None
        if chunk.error != _ABSENT:
            raise ServerError(bytes(chunk.error)[:200].decode(errors="replace"))
        if chunk.usage is not None:
            self.usage = chunk.usage
        for choice in chunk.choices or ():
            self._take_choice(choice, now)

    def _take_choice(self, choice: _Choice, now: float) -> None:
        found = Chunk(now, _size(choice), len(choice.token_ids or ()))
        if found.size or found.tokens:
            self.chunks.append(found)
        elif choice.finish_reason is not None:
            self.ending = found
        elif choice.delta is None:
            # Of completions: a token whose text waits for the rest of a character, or has none.
            # An empty delta of a chat is only its head.
            self.chunks.append(found)

    def times_and_counts(self) -> tuple[list[float], list[int]]:
        """When each chunk of tokens came (`time.monotonic`), and how many tokens each had.

        The counts add up to the server's, if it gave one; else a chunk is one token.
        """
        chunks = self.chunks
        total = self.usage.completion_tokens if self.usage else sum(c.tokens or 1 for c in chunks)
        if self.ending is not None and len(chunks) < total and not any(c.tokens for c in chunks):
            chunks = [*chunks, self.ending]
        counts = share_out(chunks, total)
        pairs = [(c.time, n) for c, n in zip(chunks, counts, strict=True) if n]
        return [time for time, _ in pairs], [n for _, n in pairs]


def _size(choice: _Choice) -> int:
    size = len(choice.text or "")
    delta = choice.delta
    if delta is not None:
        size += len(delta.content or "")
        size += len(delta.reasoning or delta.reasoning_content or "")
        if delta.tool_calls not in (_ABSENT, b"[]"):
            size += len(delta.tool_calls)
    return size


def share_out(chunks: Sequence[Chunk], total: int) -> list[int]:
    """Tokens of each chunk, `total` in all.

    Each has one, and what is left goes where the most text is. Where the server told them all,
    they are as told; where there are fewer tokens than chunks, those with the least text have none.
    """
    told = [chunk.tokens for chunk in chunks]
    if sum(told) == total and all(told):
        return told
    if not chunks:
        return []
    by_size = sorted(range(len(chunks)), key=lambda i: -chunks[i].size)
    counts = [0] * len(chunks)
    for i in by_size[:total]:
        counts[i] = 1
    left = total - sum(counts)
    text = sum(chunk.size for chunk in chunks)
    if left and text:
        shares = [left * chunk.size / text for chunk in chunks]
    else:
        shares = [left / len(chunks)] * len(chunks)
    counts = [count + int(share) for count, share in zip(counts, shares, strict=True)]
    rest = sorted(range(len(chunks)), key=lambda i: int(shares[i]) - shares[i])
    for i in rest[: total - sum(counts)]:
        counts[i] += 1
    return counts

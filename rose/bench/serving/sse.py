"""Server-sent events, of which OpenAI's streams use only the data."""

MOST_BYTES = 2**24
"""Of an event's beginning that is kept until the rest comes."""


class StreamError(Exception):
    """What came is no stream of events; the message says what it was."""


class EventParser:
    """Cuts the bytes of a stream into the data of its events, as they come.

    Strict: a line that no event can have means that this is another protocol, and a benchmark that
    skips what it does not understand measures something else.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that these bytes end, in order.

        Raises:
            StreamError: a line is no field of an event, or has no end.
        """
        lines = (self._tail + received).split(b"\n")
        self._tail = lines.pop()
        if len(self._tail) > MOST_BYTES:
            raise StreamError(f"a line of over {MOST_BYTES} bytes: {self._tail[:80]!r}")
        done: list[bytes] = []
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if not line:
                if self._data:
                    done.append(b"\n".join(self._data))
                    self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
            elif not line.startswith((b":", b"event:", b"id:", b"retry:")):
                raise StreamError(f"not a line of an event stream: {line[:80]!r}")
        return done

    @property
    def clean(self) -> bool:
        """Nothing waits for more bytes."""
        return not self._tail and not self._data

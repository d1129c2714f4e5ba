"""Stop strings in text that comes in pieces."""

from collections.abc import Sequence


class StopStrings:
    """Cuts text at the first stop string, and holds back what may be the beginning of one.

    The first stop string is the one that ends first (of those, the longest), as if the text came
    character by character: the cut does not depend on how the text is split into pieces.

    Args:
        stops: non-empty strings; none: all text passes.

    Attributes:
        matched: a stop string was found; nothing passes any more.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.matched = False

    def feed(self, text: str) -> str:
        """Take more text; return what certainly precedes any stop string."""
        if not self._stops:
            return text
        if self.matched or not text:
            return ""
        text = self._held + text
        ends = [
            (start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        if ends:
            self.matched, self._held = True, ""
            return text[: min(ends)[1]]
        held = self._length_to_hold(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """At the end: the text that was held back and turned out to be no stop string."""
        held, self._held = self._held, ""
        return held

    def _length_to_hold(self, text: str) -> int:
        """Length of the longest end of the text that begins a stop string."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0

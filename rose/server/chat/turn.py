"""A whole turn, from the deltas of any format's parser."""

from collections.abc import Iterable

from rose.server.chat.format import ContentDelta, Delta, Parser, ReasoningDelta


class ParsedCall:
    """A call of a turn.

    Args:
        name: the function's.
        *arguments: pieces of the text of its arguments.
    """

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
        self._arguments = list(arguments)

    @property
    def arguments(self) -> str:
        """Their text, as the model wrote it."""
        return "".join(self._arguments)

    def add(self, arguments: str) -> None:
        """More of their text."""
        self._arguments.append(arguments)


class ParsedTurn:
    """A whole turn: all its deltas put together.

    Attributes:
        calls: in the order in which the model wrote them.
    """

    def __init__(self) -> None:
        self.calls: list[ParsedCall] = []
        self._reasoning: list[str] = []
        self._content: list[str] = []

    @property
    def reasoning(self) -> str:
        """What the model thought."""
        return "".join(self._reasoning)

    @property
    def content(self) -> str:
        """What the user is to see."""
        return "".join(self._content)

    def add(self, delta: Delta) -> None:
        """One more delta."""
        if isinstance(delta, ReasoningDelta):
            self._reasoning.append(delta.text)
        elif isinstance(delta, ContentDelta):
            self._content.append(delta.text)
        elif delta.name is not None:
            self.calls.append(ParsedCall(delta.name, delta.arguments))
        else:
            self.calls[delta.index].add(delta.arguments)


def parse_turn(parser: Parser, token_ids: Iterable[int]) -> ParsedTurn:
    """Run a fresh parser over a whole turn."""
    turn = ParsedTurn()
    for token_id in token_ids:
        for delta in parser.push(token_id):
            turn.add(delta)
    for delta in parser.flush():
        turn.add(delta)
    return turn

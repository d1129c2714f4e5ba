"""One turn of the assistant: a sequence's outputs become typed deltas, by any chat format's parser.

What the endpoints for chats share: stop strings end the content, log-probabilities are of the
content's tokens, and the reason to finish tells calls from text.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from rose.protocol import FinishReason, RequestOutput, TokenLogprobs
from rose.server.chat.format import ContentDelta, Delta, Parser, ReasoningDelta, ToolCallDelta
from rose.server.stop_strings import StopStrings

TOOL_CALLS = "tool_calls"
"""Why a turn with calls ended, unless its length did."""


@dataclass(slots=True)
class TurnDelta:
    """What is new in a turn.

    Attributes:
        deltas: in the order in which the model wrote them; neighbours differ in kind or call.
        logprobs: of the content's tokens.
        finish_reason: stop, length or tool_calls; None while the turn goes on.
    """

    deltas: list[Delta] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None


class Turn:
    """Makes deltas of one sequence's outputs.

    Args:
        parser: fresh, of the model's format.
        stop_token_ids: the format's ends of a turn. The parser sees them, and nothing after them.
        control_ids: all special tokens of the vocabulary; they are no text.
        stop: strings that end the content; not looked for in reasoning, calls, or the first
            `min_tokens` tokens.
        min_tokens: see `stop`.
        parallel_calls: whether the turn may hold more than one call; else it ends at the second.

    Attributes:
        finished: no delta will follow.
        num_tokens: tokens generated, control tokens included.
        num_reasoning_tokens: of those, the text of reasoning.
        num_calls: calls begun.
    """

    def __init__(
        self,
        parser: Parser,
        *,
        stop_token_ids: Collection[int],
        control_ids: Collection[int] = (),
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        parallel_calls: bool = True,
    ) -> None:
        self.finished = False
        self.num_tokens = self.num_reasoning_tokens = self.num_calls = 0
        self._parser = parser
        self._stop_ids = frozenset(stop_token_ids)
        self._control_ids = control_ids
        self._stops = StopStrings(stop)
        self._min_tokens = min_tokens
        self._most_calls = None if parallel_calls else 1
        self._logprobs = _ContentLogprobs()
        self._silent = 0  # text tokens since the last delta or control token

    def feed(self, output: RequestOutput) -> TurnDelta:
        """What an output adds; nothing if the turn is finished."""
        result = TurnDelta()
        if self.finished:
            return result
        reason = output.finish_reason
        # A stop token that is not the format's is the client's: not part of the answer.
        last = len(output.token_ids) - 1 if reason is FinishReason.STOP else -1
        for position, token_id in enumerate(output.token_ids):
            self.num_tokens += 1
            ends = token_id in self._stop_ids
            if position == last and not ends:
                break
            logprobs = output.logprobs[position] if output.logprobs is not None else None
            self._push(token_id, logprobs, result)
            if self.finished:
                break
            if ends or self._parser.over:
                reason = FinishReason.STOP
                break
        if reason is not None and not self.finished:
            self._end(reason, result)
        result.logprobs = self._logprobs.release(everything=self.finished and not self._cut)
        return result

    @property
    def _cut(self) -> bool:
        return self._stops.matched

    def _push(self, token_id: int, logprobs: TokenLogprobs | None, result: TurnDelta) -> None:
        deltas = self._parser.push(token_id)
        control = token_id in self._control_ids
        self._silent = 0 if control else self._silent + 1
        self._logprobs.token(None if control else logprobs)
        for delta in deltas:
            self._take(delta, result)
            if self.finished:
                return

    def _take(self, delta: Delta, result: TurnDelta) -> None:
        if isinstance(delta, ContentDelta):
            self._silent = 0
            self._logprobs.content(len(delta.text))
            self._emit_content(self._until_stop(delta.text), result)
            if self._cut:
                self._finish(FinishReason.STOP, result)
            return
        self._emit_content(self._stops.flush(), result)
        self._logprobs.other()
        if isinstance(delta, ReasoningDelta):
            self.num_reasoning_tokens += self._silent
        elif delta.name is not None:
            if self.num_calls == self._most_calls:
                self._finish(FinishReason.STOP, result)
                return
            self.num_calls += 1
        self._silent = 0
        _append(delta, result.deltas)

    def _until_stop(self, text: str) -> str:
        return text if self.num_tokens <= self._min_tokens else self._stops.feed(text)

    def _emit_content(self, text: str, result: TurnDelta) -> None:
        if text:
            self._logprobs.released += len(text)
            _append(ContentDelta(text), result.deltas)

    def _end(self, reason: FinishReason, result: TurnDelta) -> None:
        for delta in self._parser.flush():
            self._take(delta, result)
            if self.finished:
                return
        self._emit_content(self._stops.flush(), result)
        self._finish(reason, result)

    def _finish(self, reason: FinishReason, result: TurnDelta) -> None:
        self.finished = True
        calls = self.num_calls and reason is FinishReason.STOP
        result.finish_reason = TOOL_CALLS if calls else reason.value


class _ContentLogprobs:
    """Keeps log-probabilities until it is known whether their tokens are content.

    Attributes:
        released: characters of content given out.
    """

    def __init__(self) -> None:
        self.released = 0
        self._decoded = 0  # characters of content, those that stop strings hold back included
        self._unknown: list[TokenLogprobs] = []
        self._content: deque[tuple[int, TokenLogprobs]] = deque()  # with their first characters

    def token(self, logprobs: TokenLogprobs | None) -> None:
        """The next token; None: it is no text, so what came before it in a header is none."""
        if logprobs is None:
            self._unknown.clear()
        else:
            self._unknown.append(logprobs)

    def content(self, length: int) -> None:
        """The tokens since the last delta are so many characters of content."""
        self._content.extend((self._decoded, logprobs) for logprobs in self._unknown)
        self._unknown.clear()
        self._decoded += length

    def other(self) -> None:
        """The tokens since the last delta are no content."""
        self._unknown.clear()

    def release(self, *, everything: bool) -> list[TokenLogprobs]:
        """Those of tokens whose text, or part of it, was given out."""
        released = []
        while self._content and (everything or self._content[0][0] < self.released):
            released.append(self._content.popleft()[1])
        return released


def _append(delta: Delta, deltas: list[Delta]) -> None:
    """Add a delta, to the last one if it continues that."""
    last = deltas[-1] if deltas else None
    if isinstance(delta, ContentDelta) and isinstance(last, ContentDelta):
        deltas[-1] = ContentDelta(last.text + delta.text)
    elif isinstance(delta, ReasoningDelta) and isinstance(last, ReasoningDelta):
        deltas[-1] = ReasoningDelta(last.text + delta.text)
    elif isinstance(delta, ToolCallDelta) and isinstance(last, ToolCallDelta) and not delta.name:
        deltas[-1] = ToolCallDelta(last.index, last.name, last.arguments + delta.arguments)
    else:
        deltas.append(delta)

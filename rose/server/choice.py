"""One choice of a completion: a sequence's tokens become deltas of text and log-probabilities."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rose.protocol import FinishReason, RequestOutput, TokenLogprobs
from rose.server.detokenize import Detokenizer, TextCodec
from rose.server.stop_strings import StopStrings


@dataclass(slots=True)
class TokenEntry:
    """One token in OpenAI's legacy `logprobs`.

    Attributes:
        token: as a string.
        logprob: None for a prompt's first token.
        top: logprobs of the best tokens by name, the token itself included.
        offset: where its text begins in the choice's text, in characters.
    """

    token: str
    logprob: float | None
    top: dict[str, float] | None
    offset: int


@dataclass(slots=True)
class Delta:
    """What is new in a choice."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    entries: list[TokenEntry] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, other: "Delta") -> None:
        """Append a later delta."""
        self.text += other.text
        self.token_ids += other.token_ids
        self.entries += other.entries
        self.finish_reason = other.finish_reason


class Choice:
    """Makes deltas of one sequence's outputs. All deltas together are the whole choice.

    Args:
        codec: None: no tokenizer, and all text is empty.
        stop: strings that end the text; not looked for in the first `min_tokens` tokens.
        offset: length of the text (an echoed prompt) before the choice's own, in characters.

    Attributes:
        num_tokens: tokens generated, those of a cut-off stop string included.
        finished: no delta will follow.
    """

    def __init__(
        self,
        codec: TextCodec | None,
        *,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
        offset: int = 0,
    ) -> None:
        self.num_tokens = 0
        self.finished = False
        self._codec = codec
        self._detokenizer = (
            Detokenizer(codec, skip_special_tokens=skip_special_tokens) if codec else None
        )
        self._stops = StopStrings(stop)
        self._min_tokens = min_tokens
        self._decoded = offset  # characters decoded, those held back included
        self._released = offset  # characters in deltas so far
        self._waiting: deque[TokenEntry] = deque()  # of tokens whose text is held back

    def feed(self, output: RequestOutput) -> Delta:
        """The delta that an output makes; an empty one if the choice is finished."""
        delta = Delta()
        if self.finished:
            return delta
        stop_token_at = -1
        if output.finish_reason is FinishReason.STOP:
            stop_token_at = len(output.token_ids) - 1  # its text is not part of the answer
        for position, token_id in enumerate(output.token_ids):
            self.num_tokens += 1
            delta.token_ids.append(token_id)
            if output.logprobs is not None:
                entry = token_entry(self._codec, output.logprobs[position], self._decoded)
                self._waiting.append(entry)
            if position != stop_token_at and self._detokenizer is not None:
                delta.text += self._release(self._detokenizer.add(token_id))
                if self._stops.matched:
                    break
        self._end(output.finish_reason, delta)
        self._released += len(delta.text)
        self._release_entries(delta)
        return delta

    def _release(self, text: str) -> str:
        self._decoded += len(text)
        return text if self.num_tokens <= self._min_tokens else self._stops.feed(text)

    def _end(self, reason: FinishReason | None, delta: Delta) -> None:
        if reason is not None and not self._stops.matched and self._detokenizer is not None:
            delta.text += self._release(self._detokenizer.flush()) + self._stops.flush()
        if self._stops.matched:
            reason = FinishReason.STOP
        if reason is not None:
            self.finished = True
            delta.finish_reason = reason.value

    def _release_entries(self, delta: Delta) -> None:
        """Give out the entries of tokens whose text, or part of it, was given out."""
        everything = self.finished and not self._stops.matched
        while self._waiting and (everything or self._waiting[0].offset < self._released):
            delta.entries.append(self._waiting.popleft())


def token_entry(codec: TextCodec | None, logprobs: TokenLogprobs, offset: int) -> TokenEntry:
    """One token's entry, with the token itself among the best ones."""
    name = token_name(codec, logprobs.token_id)
    top = {token_name(codec, token_id): logprob for token_id, logprob in logprobs.top}
    top.setdefault(name, logprobs.logprob)
    return TokenEntry(name, logprobs.logprob, top, offset)


def token_name(codec: TextCodec | None, token_id: int) -> str:
    """A token as a string; without a tokenizer, its id."""
    return codec.token_name(token_id) if codec else f"token_id:{token_id}"


def prompt_entries(
    codec: TextCodec | None, prompt: Sequence[int], logprobs: Sequence[TokenLogprobs]
) -> list[TokenEntry]:
    """Entries of an echoed prompt; `logprobs` are those of its tokens from the second on."""
    entries = [TokenEntry(token_name(codec, prompt[0]), None, None, 0)]
    detokenizer = Detokenizer(codec, skip_special_tokens=False) if codec else None
    offset = 0
    for previous, entry in zip(prompt, logprobs, strict=False):
        offset += len(detokenizer.add(previous)) if detokenizer else 0
        entries.append(token_entry(codec, entry, offset))
    return entries

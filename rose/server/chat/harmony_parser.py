"""Harmony's parser: the tokens of one assistant turn to deltas, one at a time.

A state machine over tokens. Special tokens move it; all other tokens are text, which goes to the
header or to the message that is open. Whatever a model writes means something: see
`harmony_header` for headers, and here for what closes what:

- `<|start|>` and `<|channel|>` end a message that nothing ended.
- `<|end|>`, `<|call|>` and `<|return|>` all end a message, and the header alone decides whether it
  is a call: one with a function as recipient is, on any channel.
- `<|return|>`, `<|call|>` and `<|endoftext|>` end the turn. Nothing after them counts.
- Once the assistant has answered or called, a message headed as another speaker's ends the turn
  too: small models go on with the user's next question, which is not theirs to write.
- Text in a header that no `<|message|>` ends is the text of a message.

No text of a message is lost or given out twice, and each token costs the same, however long the
turn.
"""

from collections.abc import Sequence
from enum import Enum, auto

from rose.server.chat.format import ContentDelta, Delta, ReasoningDelta, ToolCallDelta
from rose.server.chat.harmony_header import (
    Header,
    HeaderText,
    another_speaker,
    function_name,
    read_closed,
    read_open,
)
from rose.server.chat.harmony_pieces import END_OF_TEXT, Special, special_ids
from rose.server.detokenize import Detokenizer, TextCodec


class _State(Enum):
    HEADER = auto()
    REASONING = auto()
    CONTENT = auto()
    CALL = auto()
    DONE = auto()


class _Other(Enum):
    """Control tokens that are no part of the format."""

    END_OF_TEXT = auto()
    MEANINGLESS = auto()


_Marker = Special | _Other

_ENDS_TURN: frozenset[_Marker] = frozenset({Special.RETURN, Special.CALL, _Other.END_OF_TEXT})
_NOTHING: tuple[Delta, ...] = ()


class HarmonyVocabulary:
    """A tokenizer with its control tokens; shared by all parsers of a model.

    Raises:
        HarmonyVocabularyError: special tokens of Harmony are missing.
    """

    def __init__(self, codec: TextCodec) -> None:
        self.codec = codec
        self.markers: dict[int, _Marker] = dict.fromkeys(
            codec.special_token_ids(), _Other.MEANINGLESS
        )
        self.markers.update({token_id: special for special, token_id in special_ids(codec).items()})
        end_of_text = codec.special_token_id(END_OF_TEXT)
        if end_of_text is not None:
            self.markers[end_of_text] = _Other.END_OF_TEXT


class HarmonyParser:
    """The parser of one turn, which begins after the prompt's `<|start|>assistant`.

    Args:
        vocabulary: the model's.
        declared: names of the functions that the prompt declares.
    """

    def __init__(self, vocabulary: HarmonyVocabulary, declared: frozenset[str]) -> None:
        self._markers = vocabulary.markers
        self._detokenizer = Detokenizer(vocabulary.codec)
        self._declared = declared
        self._state = _State.HEADER
        self._header = HeaderText()
        self._calls = 0
        self._spoke = False  # more than reasoning

    @property
    def over(self) -> bool:
        """The turn has ended, perhaps without a stop token; nothing after that counts."""
        return self._state is _State.DONE

    def push(self, token_id: int) -> Sequence[Delta]:
        """Take one token."""
        marker = self._markers.get(token_id)
        if marker is None:
            text = self._detokenizer.add(token_id)
            return self._take(text) if text else _NOTHING
        return self._mark(marker)

    def flush(self) -> Sequence[Delta]:
        """No more tokens come: give out what was held back."""
        deltas = list(self._take(self._detokenizer.flush()))
        if self._state is _State.HEADER:
            deltas += self._salvage(read_open(self._header), cut_off=True)
        self._state = _State.DONE
        return deltas

    def _take(self, text: str) -> Sequence[Delta]:
        """Text, perhaps empty, to where it belongs now."""
        state = self._state
        if not text or state is _State.DONE:
            return _NOTHING
        if state is _State.CONTENT:
            self._spoke = True
            return (ContentDelta(text),)
        if state is _State.REASONING:
            return (ReasoningDelta(text),)
        if state is _State.CALL:
            return (ToolCallDelta(self._calls - 1, None, text),)
        self._header.add(text)
        return self._salvage(read_open(self._header)) if self._header.too_long else _NOTHING

    def _mark(self, marker: _Marker) -> Sequence[Delta]:
        if self._state is _State.DONE:
            return _NOTHING
        # Characters do not reach across control tokens.
        deltas = [*self._take(self._detokenizer.flush())]
        deltas += self._mark_header(marker) if self._state is _State.HEADER else []
        if marker in _ENDS_TURN:
            self._state = _State.DONE
        elif marker in (Special.START, Special.END):
            self._begin_header(HeaderText(started=marker is Special.START))
        elif marker is Special.CHANNEL and self._state is not _State.HEADER:
            self._begin_header(HeaderText(channel=""))
        return deltas

    def _mark_header(self, marker: _Marker) -> Sequence[Delta]:
        header = self._header
        if marker is Special.MESSAGE:
            if self._spoke and another_speaker(header):
                self._state = _State.DONE
                return _NOTHING
            return self._open_message(read_closed(header, self._declared))
        if marker is Special.CONSTRAIN:
            header.mark(marker)
            return _NOTHING
        if marker is Special.CHANNEL:
            return self._mark_channel()
        if marker is _Other.MEANINGLESS:
            return self._take(" ")
        return self._salvage(read_open(header))

    def _mark_channel(self) -> Sequence[Delta]:
        """A channel begins, perhaps a second one in the same header."""
        deltas: Sequence[Delta] = _NOTHING
        if self._header.channel is not None or self._header.content_type is not None:
            before = read_open(self._header)
            recipient = before.recipient
            if before.text:
                deltas, recipient = self._salvage(before), None
            self._begin_header(HeaderText(started=True, inherited=recipient))
        self._header.mark(Special.CHANNEL)
        return deltas

    def _begin_header(self, header: HeaderText) -> None:
        self._state = _State.HEADER
        self._header = header

    def _open_message(self, header: Header) -> list[Delta]:
        """The message of a whole header begins."""
        deltas: list[Delta] = [ContentDelta(header.text)] if header.text else []
        return deltas + self._enter(header)

    def _salvage(self, header: Header, *, cut_off: bool = False) -> list[Delta]:
        """The message of a header without `<|message|>` begins, with the text that it holds.

        Args:
            header: as far as it was written.
            cut_off: the turn was cut off in it. A name at its end may lack its rest, so it is
                a call only if that function exists.
        """
        name = function_name(header.recipient, self._declared)
        if cut_off and not header.text and name not in self._declared:
            return []
        deltas = self._enter(header)
        return [*deltas, *self._take(header.text)]

    def _enter(self, header: Header) -> list[Delta]:
        name = function_name(header.recipient, self._declared)
        if name is not None:
            self._state = _State.CALL
            self._calls += 1
            self._spoke = True
            return [ToolCallDelta(self._calls - 1, name, "")]
        reasoning = header.channel == "analysis"
        self._state = _State.REASONING if reasoning else _State.CONTENT
        return []

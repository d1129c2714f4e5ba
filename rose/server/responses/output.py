"""What the model writes, as output items and as the events that tell of them.

The official order of an item's events: output_item.added, content_part.added, deltas, the text's
done, content_part.done, output_item.done; a call has its arguments instead of a part.
"""

from collections.abc import Mapping

import msgspec

from rose.server.chat.format import ContentDelta, Delta, ReasoningDelta
from rose.server.responses.items import (
    CallItem,
    Item,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Status,
    new_id,
)

_encode = msgspec.json.encode


class EventNumbers:
    """Writes events and numbers them from 0."""

    def __init__(self) -> None:
        self._next = 0

    def event(self, kind: str, fields: Mapping[str, object]) -> bytes:
        """One server-sent event."""
        body = _encode({"type": kind, **fields, "sequence_number": self._take()})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)

    def delta(self, head: bytes, text: str) -> bytes:
        """One event of a text that grows; `head` is all of it up to the text."""
        return b'%b%b,"sequence_number":%d}\n\n' % (head, _encode(text), self._take())

    def _take(self) -> int:
        number = self._next
        self._next += 1
        return number


class _OpenItem:
    """The item that the model is writing.

    Attributes:
        item: as it was announced, empty.
        delta_head: of the events of its growing text.
    """

    def __init__(self, item: Item, index: int, text_kind: str, fields: str) -> None:
        self.item, self.index = item, index
        self.text_kind = text_kind
        self._pieces: list[str] = []
        self.delta_head = (
            f"event: {text_kind}.delta\n"
            f'data: {{"type":"{text_kind}.delta","item_id":"{item.id}","output_index":{index},'
            f'{fields}"delta":'
        ).encode()

    @property
    def place(self) -> dict[str, object]:
        """Which item an event tells of."""
        return {"item_id": self.item.id, "output_index": self.index}

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, text: str) -> None:
        self._pieces.append(text)


class OutputWriter:
    """Turns a turn's deltas into output items, and each into its events.

    Attributes:
        items: those that are whole.
    """

    def __init__(self, numbers: EventNumbers) -> None:
        self.items: list[Item] = []
        self._numbers = numbers
        self._open: _OpenItem | None = None

    def feed(self, delta: Delta) -> bytes:
        """The events that a delta makes."""
        events = b""
        if isinstance(delta, ReasoningDelta):
            if self._open is None or not isinstance(self._open.item, ReasoningItem):
                events = self._close() + self._begin_reasoning()
            text = delta.text
        elif isinstance(delta, ContentDelta):
            if self._open is None or not isinstance(self._open.item, MessageItem):
                events = self._close() + self._begin_message()
            text = delta.text
        else:
            if delta.name is not None:
                events = self._close() + self._begin_call(delta.name)
            text = delta.arguments
        opened = self._open
        if opened is None or not text:
            return events
        opened.add(text)
        return events + self._numbers.delta(opened.delta_head, text)

    def end(self, status: Status) -> bytes:
        """The events that end the last item. `status`: what became of it."""
        return self._close(status, ends_turn=True)

    def _begin_reasoning(self) -> bytes:
        item = ReasoningItem(id=new_id("rs"), content=[], status="in_progress")
        return self._begin(item, "response.reasoning_text", '"content_index":0,')

    def _begin_message(self) -> bytes:
        item = MessageItem(id=new_id("msg"), role="assistant", content=[], status="in_progress")
        return self._begin(item, "response.output_text", '"content_index":0,"logprobs":[],')

    def _begin_call(self, name: str) -> bytes:
        item = CallItem(
            id=new_id("fc"), call_id=new_id("call"), name=name, arguments="", status="in_progress"
        )
        return self._begin(item, "response.function_call_arguments", "")

    def _begin(self, item: Item, text_kind: str, fields: str) -> bytes:
        opened = self._open = _OpenItem(item, len(self.items), text_kind, fields)
        place = {"output_index": opened.index, "item": item}
        events = self._numbers.event("response.output_item.added", place)
        part = _part(item, "")
        if part is not None:
            events += self._part_event("added", opened, part)
        return events

    def _close(self, status: Status = "completed", *, ends_turn: bool = False) -> bytes:
        opened, self._open = self._open, None
        if opened is None:
            return b""
        item = _whole(opened.item, opened.text, status, ends_turn=ends_turn)
        self.items.append(item)
        events = self._text_done(opened)
        part = _part(item, opened.text)
        if part is not None:
            events += self._part_event("done", opened, part)
        place = {"output_index": opened.index, "item": item}
        return events + self._numbers.event("response.output_item.done", place)

    def _text_done(self, opened: _OpenItem) -> bytes:
        fields = opened.place
        if isinstance(opened.item, CallItem):
            fields |= {"name": opened.item.name, "arguments": opened.text}
        else:
            fields |= {"content_index": 0, "text": opened.text}
        if isinstance(opened.item, MessageItem):
            fields["logprobs"] = []
        return self._numbers.event(f"{opened.text_kind}.done", fields)

    def _part_event(self, what: str, opened: _OpenItem, part: OutputText | ReasoningText) -> bytes:
        fields = opened.place | {"content_index": 0, "part": part}
        return self._numbers.event(f"response.content_part.{what}", fields)


def _part(item: Item, text: str) -> OutputText | ReasoningText | None:
    if isinstance(item, MessageItem):
        return OutputText(text)
    return ReasoningText(text) if isinstance(item, ReasoningItem) else None


def _whole(item: Item, text: str, status: Status, *, ends_turn: bool) -> Item:
    if isinstance(item, ReasoningItem):
        return msgspec.structs.replace(item, content=[ReasoningText(text)], status=status)
    if isinstance(item, CallItem):
        return msgspec.structs.replace(item, arguments=text, status=status)
    # What goes before more of a turn is a preamble.
    phase = "final_answer" if ends_turn else "commentary"
    return msgspec.structs.replace(item, content=[OutputText(text)], status=status, phase=phase)

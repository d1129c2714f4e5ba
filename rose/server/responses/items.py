"""Items: what goes into and comes out of a response, as clients see it and as the model does."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from rose.protocol import InvalidRequestError
from rose.server.chat.format import Message
from rose.server.errors import shown

Status = Literal["in_progress", "completed", "incomplete"]
Phase = Literal["commentary", "final_answer"]


class InputText(msgspec.Struct, frozen=True, tag="input_text"):
    """Text that the client wrote."""

    text: str


class OutputText(msgspec.Struct, frozen=True, tag="output_text"):
    """Text that the model wrote. Annotations and log-probabilities are always empty here."""

    text: str
    annotations: list[object] = []
    logprobs: list[object] = []


class PlainText(msgspec.Struct, frozen=True, tag="text"):
    """Text, as some clients write it."""

    text: str


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """Text by which another model refused."""

    refusal: str

    @property
    def text(self) -> str:
        """What was said."""
        return self.refusal


class ReasoningText(msgspec.Struct, frozen=True, tag="reasoning_text"):
    """Reasoning."""

    text: str


class SummaryText(msgspec.Struct, frozen=True, tag="summary_text"):
    """A summary of reasoning; of other models, for Rose makes none."""

    text: str


TextPart = InputText | OutputText | PlainText | Refusal


class MessageItem(msgspec.Struct, frozen=True, tag="message", kw_only=True):
    """A message of any role."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[TextPart]
    id: str | None = None
    status: Status | None = None
    phase: Phase | None = None


class ReasoningItem(msgspec.Struct, frozen=True, tag="reasoning", kw_only=True):
    """What the model thought."""

    summary: list[SummaryText] = []
    content: list[ReasoningText] | None = None
    id: str | None = None
    status: Status | None = None


class CallItem(msgspec.Struct, frozen=True, tag="function_call", kw_only=True):
    """A call of a function."""

    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Status | None = None


class CallOutputItem(msgspec.Struct, frozen=True, tag="function_call_output", kw_only=True):
    """A function's result."""

    call_id: str
    output: str | list[TextPart]
    id: str | None = None
    status: Status | None = None


Item = MessageItem | ReasoningItem | CallItem | CallOutputItem

_KINDS: Mapping[str, type[MessageItem | ReasoningItem | CallItem | CallOutputItem]] = {
    "message": MessageItem,
    "reasoning": ReasoningItem,
    "function_call": CallItem,
    "function_call_output": CallOutputItem,
}
_PREFIXES = {MessageItem: "msg", ReasoningItem: "rs", CallItem: "fc", CallOutputItem: "fco"}


def new_id(prefix: str) -> str:
    """A new identifier, with OpenAI's prefix of its kind."""
    return f"{prefix}_{secrets.token_hex(24)}"


def read_input(
    posted: object, before: Sequence[Item], find: Callable[[str], Item | None]
) -> list[Item]:
    """The items of a posted `input`, each with an id.

    Args:
        posted: a string or a list of items; None: nothing.
        before: the items of the responses that it continues.
        find: the kept item that an `item_reference` names, if any.

    Raises:
        InvalidRequestError: it is something else, or an item is wrong; it names the field.
    """
    if isinstance(posted, str):
        posted = [{"role": "user", "content": posted}]
    if posted is None:
        posted = []
    if not isinstance(posted, list):
        raise InvalidRequestError(
            f"input must be a string or a list of items; got {shown(posted)}", "input"
        )
    if not posted and not before:
        raise InvalidRequestError("input is required: a string, or a list of items", "input")
    items: list[Item] = []
    calls = {item.call_id for item in before if isinstance(item, CallItem)}
    for number, fields in enumerate(posted):
        item = _read_item(fields, f"input[{number}]", find)
        if isinstance(item, CallItem):
            calls.add(item.call_id)
        elif isinstance(item, CallOutputItem) and item.call_id not in calls:
            raise InvalidRequestError(
                f"input[{number}].call_id: no function_call before it has the call_id "
                f"{shown(item.call_id)}",
                f"input[{number}].call_id",
            )
        items.append(item)
    return items


def _read_item(fields: object, where: str, find: Callable[[str], Item | None]) -> Item:
    if not isinstance(fields, dict):
        raise InvalidRequestError(f"{where} must be an object; got {shown(fields)}", where)
    kind = fields.get("type") or "message"
    if kind == "item_reference":
        return _referred(fields.get("id"), where, find)
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        wanted = ", ".join(_KINDS)
        raise InvalidRequestError(
            f"{where}.type: {shown(kind)} is not supported; one of {wanted} would do",
            f"{where}.type",
        )
    try:
        item = msgspec.convert({**fields, "type": kind}, model)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        param = where + path.rstrip("`")
        only_text = "; only text is supported" if param.endswith(".type") else ""
        raise InvalidRequestError(f"{param}: {message}{only_text}", param) from None
    return _completed(item)


def _referred(item_id: object, where: str, find: Callable[[str], Item | None]) -> Item:
    found = find(item_id) if isinstance(item_id, str) else None
    if found is None:
        raise InvalidRequestError(
            f"{where}.id: no item {shown(item_id)} is kept here: send the item itself",
            f"{where}.id",
        )
    return found


def _completed(item: Item) -> Item:
    """The item with what clients may leave out, in the form in which it is listed."""
    item = msgspec.structs.replace(
        item, id=item.id or new_id(_PREFIXES[type(item)]), status=item.status or "completed"
    )
    if isinstance(item, MessageItem):
        return msgspec.structs.replace(item, content=_parts(item))
    if isinstance(item, CallOutputItem) and not isinstance(item.output, str):
        return msgspec.structs.replace(item, output=[InputText(p.text) for p in item.output])
    return item


def _parts(item: MessageItem) -> list[TextPart]:
    part = OutputText if item.role == "assistant" else InputText
    if isinstance(item.content, str):
        return [part(item.content)]
    return [p if isinstance(p, Refusal) else part(p.text) for p in item.content]


def text_of(content: str | Iterable[TextPart | ReasoningText | SummaryText] | None) -> str:
    """The text of a content, its parts joined."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


def size_of(item: Item) -> int:
    """About how much memory an item takes, in bytes."""
    return 500 + 4 * len(_all_text(item))


def _all_text(item: Item) -> str:
    if isinstance(item, CallItem):
        return item.name + item.arguments
    if isinstance(item, CallOutputItem):
        return text_of(item.output)
    if isinstance(item, ReasoningItem):
        return text_of(item.content) + text_of(item.summary)
    return text_of(item.content)


def messages_of(items: Sequence[Item]) -> list[Message]:
    """The messages that the model sees. Its reasoning stays; the format drops what is old."""
    names = {item.call_id: item.name for item in items if isinstance(item, CallItem)}
    messages: list[Message] = []
    for number, item in enumerate(items):
        if isinstance(item, ReasoningItem):
            text = text_of(item.content) or text_of(item.summary)
            if text:
                messages.append(Message(role="assistant", content=text, channel="analysis"))
        elif isinstance(item, CallItem):
            messages.append(
                Message(
                    role="assistant",
                    content=item.arguments,
                    channel="commentary",
                    recipient=item.name,
                )
            )
        elif isinstance(item, CallOutputItem):
            name = names[item.call_id]
            messages.append(Message(role="tool", content=text_of(item.output), name=name))
        else:
            messages.append(_message(item, items[number + 1 :][:2]))
    return messages


def _message(item: MessageItem, following: Sequence[Item]) -> Message:
    text = text_of(item.content)
    if item.role == "user":
        return Message(role="user", content=text)
    if item.role != "assistant":
        # The model knows a system message as its own identity: instructions are a developer's.
        return Message(role="developer", content=text)
    preamble = item.phase == "commentary" or _leads_to_call(following)
    return Message(role="assistant", content=text, channel="commentary" if preamble else "final")


def _leads_to_call(following: Sequence[Item]) -> bool:
    """Whether a turn goes on to a call: then its text was a preamble, and it is still open."""
    for item in following:
        if not isinstance(item, ReasoningItem):
            return isinstance(item, CallItem)
    return False

"""From what clients post to a `Conversation`, which every chat format can render."""

import datetime
from collections.abc import Iterator, Sequence

from rose.protocol import InvalidRequestError
from rose.server.chat.format import (
    Channel,
    Conversation,
    FunctionTool,
    Message,
    ReasoningEffort,
    ResponseSchema,
    Role,
)
from rose.server.chat_types import (
    ChatMessage,
    ContentPart,
    Effort,
    ResponseFormat,
    Tool,
    ToolChoiceField,
)
from rose.server.grammar import ToolChoice

EFFORTS: dict[str, ReasoningEffort] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
}
"""Models know three; the others mean the nearest."""

JSON_OBJECT = ResponseSchema(name="json_object", schema={"type": "object"})
"""What `response_format: json_object` tells the model."""


def conversation_from_chat(
    messages: Sequence[ChatMessage],
    *,
    tools: Sequence[Tool] | None = None,
    tool_choice: ToolChoiceField | None = None,
    response_format: ResponseFormat | None = None,
    reasoning_effort: Effort | None = None,
    current_date: str | None = None,
) -> Conversation:
    """The conversation that a body describes.

    Reasoning that comes back with the assistant's messages becomes analysis, which the format
    drops or keeps. System messages are instructions, like developer messages: the identity of the
    model is not the client's to set. With `tool_choice: none` no tool is declared.

    Args:
        messages: as posted.
        tools: as posted.
        tool_choice: as posted.
        response_format: as posted.
        reasoning_effort: as posted.
        current_date: YYYY-MM-DD; None: today's, in UTC.

    Raises:
        InvalidRequestError: it names the field at fault.
    """
    declared = function_tools(tools or ())
    return Conversation(
        messages=list(_messages(messages)),
        tools=() if tool_choice is not None and tool_choice.type == "none" else declared,
        response_schema=response_schema(response_format),
        reasoning_effort=effort_of(reasoning_effort),
        current_date=current_date or datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def function_tools(tools: Sequence[Tool]) -> list[FunctionTool]:
    """The declared functions.

    Raises:
        InvalidRequestError: two have the same name.
    """
    declared: dict[str, FunctionTool] = {}
    for number, tool in enumerate(tools):
        function = tool.function
        if function.name in declared:
            raise InvalidRequestError(
                f"two tools are named {function.name!r}: rename one",
                f"tools[{number}].function.name",
            )
        declared[function.name] = FunctionTool(
            name=function.name,
            description=function.description or "",
            parameters=function.parameters,
        )
    return list(declared.values())


def tool_choice_of(posted: ToolChoiceField | None) -> ToolChoice:
    """Which functions may or must be called.

    Raises:
        InvalidRequestError: the choice names no function, though its type says so.
    """
    if posted is None:
        return ToolChoice()
    if posted.type == "function":
        if posted.function is None:
            raise InvalidRequestError(
                "tool_choice of type function needs function, with its name", "tool_choice.function"
            )
        return ToolChoice("required", (posted.function.name,))
    if posted.type == "allowed_tools":
        allowed = posted.allowed_tools
        if allowed is None:
            raise InvalidRequestError(
                "tool_choice of type allowed_tools needs allowed_tools, with mode and tools",
                "tool_choice.allowed_tools",
            )
        return ToolChoice(allowed.mode, tuple(tool.function.name for tool in allowed.tools))
    return ToolChoice(posted.type)


def response_schema(response_format: ResponseFormat | None) -> ResponseSchema | None:
    """The schema that the model is told of; None: the answer is text.

    Raises:
        InvalidRequestError: the schema is missing.
    """
    if response_format is None or response_format.type == "text":
        return None
    if response_format.type == "json_object":
        return JSON_OBJECT
    wanted = response_format.json_schema
    if wanted is None:
        raise InvalidRequestError(
            "response_format of type json_schema needs json_schema, with name and schema",
            "response_format.json_schema",
        )
    return ResponseSchema(
        name=wanted.name, schema=wanted.schema_ or {}, description=wanted.description or ""
    )


def effort_of(effort: Effort | None) -> ReasoningEffort:
    """The effort in the model's own terms.

    Raises:
        InvalidRequestError: it is to be none at all.
    """
    if effort is None:
        return "medium"
    if effort not in EFFORTS:
        raise InvalidRequestError(
            f"reasoning_effort {effort!r} is not supported: this model always reasons; "
            "low is the least",
            "reasoning_effort",
        )
    return EFFORTS[effort]


def _messages(messages: Sequence[ChatMessage]) -> Iterator[Message]:
    called: dict[str, str] = {}
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if message.role == "assistant":
            called.update({call.id: call.function.name for call in message.tool_calls or ()})
            yield from _assistant(message, where)
        elif message.role == "tool":
            yield _tool_result(message, called, where)
        else:
            role: Role = "user" if message.role == "user" else "developer"
            yield Message(role=role, content=_required_text(message, where))


def _assistant(message: ChatMessage, where: str) -> Iterator[Message]:
    reasoning = message.reasoning or message.reasoning_content
    if reasoning:
        yield Message(role="assistant", channel="analysis", content=reasoning)
    content = _text(message.content or (), f"{where}.content") + (message.refusal or "")
    calls = message.tool_calls or ()
    if content or not (calls or reasoning):
        # What stands beside calls was said before them, and the turn went on.
        channel: Channel = "commentary" if calls else "final"
        yield Message(role="assistant", channel=channel, content=content)
    for call in calls:
        yield Message(
            role="assistant",
            channel="commentary",
            recipient=call.function.name,
            content=call.function.arguments,
        )


def _tool_result(message: ChatMessage, called: dict[str, str], where: str) -> Message:
    name = called.get(message.tool_call_id or "") or message.name
    if not name:
        known = ", ".join(called) or "none"
        raise InvalidRequestError(
            f"{where}: a tool's message must have the tool_call_id of a call before it; got "
            f"{message.tool_call_id!r}, and the calls before it are: {known}",
            f"{where}.tool_call_id",
        )
    return Message(role="tool", name=name, content=_required_text(message, where))


def _required_text(message: ChatMessage, where: str) -> str:
    if message.content is None:
        raise InvalidRequestError(
            f"{where}: a message of role {message.role} must have content; got none",
            f"{where}.content",
        )
    return _text(message.content, f"{where}.content")


def _text(parts: Sequence[ContentPart], where: str) -> str:
    return "".join(_part_text(part, f"{where}[{number}]") for number, part in enumerate(parts))


def _part_text(part: ContentPart, where: str) -> str:
    text = part.refusal if part.type == "refusal" else part.text
    if part.type not in ("text", "refusal"):
        raise InvalidRequestError(
            f"{where}: a part of type {part.type!r} is not supported; this model reads text only",
            f"{where}.type",
        )
    if text is None:
        raise InvalidRequestError(
            f"{where}: a part of type {part.type!r} needs {part.type!r}", f"{where}.{part.type}"
        )
    return text

"""Harmony's renderer: a conversation laid out as the models were trained on it.

Source: OpenAI's published guide to the format; openai-harmony 0.0.8 is the tests' oracle. Two
things differ from that library on purpose. A past call is written as the model writes it, channel
before recipient. And analysis is dropped before the last final message, not just the first.
"""

import json
from collections.abc import Iterator, Sequence

from rose.protocol import UserError
from rose.server.chat.format import Conversation, FunctionTool, Message, ResponseSchema
from rose.server.chat.harmony_pieces import Piece, Special
from rose.server.chat.typescript import function_namespace

NAMESPACE = "functions"
BUILT_IN_RECIPIENTS = frozenset({"python"})
"""Names that are recipients by themselves if no function of that name is declared."""
IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
KNOWLEDGE_CUTOFF = "2024-06"
CHANNELS = (
    "# Valid channels: analysis, commentary, final. Channel must be included for every message."
)
CALLS_GO_TO_COMMENTARY = "Calls to these tools must go to the commentary channel: 'functions'."


def render_pieces(conversation: Conversation) -> list[Piece]:
    """The prompt, up to and with `<|start|>assistant`.

    Raises:
        UserError: a message that Harmony has no form for; the message names it.
    """
    declared = frozenset(tool.name for tool in conversation.tools)
    pieces = _plain_message("system", _system_text(conversation))
    preface, rest = _split_preface(conversation.messages)
    developer = _developer_text(preface, conversation.tools, conversation.response_schema)
    if developer:
        pieces += _plain_message("developer", developer)
    for message in _without_old_analysis(rest):
        pieces += _message(message, declared)
    return [*pieces, Special.START, "assistant"]


def render_turn_pieces(
    messages: Sequence[Message], *, tools: Sequence[FunctionTool] = ()
) -> list[Piece]:
    """An assistant's turn as the model writes it after `<|start|>assistant`.

    Args:
        messages: the turn: analysis, preambles, calls, a final.
        tools: the functions declared in the prompt. They matter only to a function that is named
            like a built-in tool.

    Raises:
        UserError: a message is not the assistant's, or there is none.
    """
    if not messages:
        raise UserError("a turn needs at least one message of the assistant, found none")
    declared = frozenset(tool.name for tool in tools)
    pieces: list[Piece] = []
    for message in messages:
        if message.role != "assistant":
            raise UserError(f"a turn holds the assistant's messages only, found {message.role!r}")
        pieces += _assistant_message(message, declared)
    if pieces[-1] is Special.END and (messages[-1].channel or "final") == "final":
        pieces[-1] = Special.RETURN
    # The prompt has already written <|start|>assistant for the first message.
    return pieces[2:]


def _plain_message(role: str, text: str) -> list[Piece]:
    return [Special.START, role, Special.MESSAGE, *_text(text), Special.END]


def _text(text: str) -> Iterator[Piece]:
    if text:
        yield text


def _system_text(conversation: Conversation) -> str:
    identities = [m.content for m in conversation.messages if m.role == "system"]
    about = ["\n\n".join(identities) or IDENTITY, f"Knowledge cutoff: {KNOWLEDGE_CUTOFF}"]
    if conversation.current_date is not None:
        about.append(f"Current date: {conversation.current_date}")
    channels = [CHANNELS, CALLS_GO_TO_COMMENTARY] if conversation.tools else [CHANNELS]
    reasoning = f"Reasoning: {conversation.reasoning_effort}"
    return "\n\n".join(["\n".join(about), reasoning, "\n".join(channels)])


def _split_preface(messages: Sequence[Message]) -> tuple[list[str], list[Message]]:
    """Instructions that open the conversation, and what follows, without system messages."""
    rest = [m for m in messages if m.role != "system"]
    count = next((n for n, m in enumerate(rest) if m.role != "developer"), len(rest))
    return [m.content for m in rest[:count]], rest[count:]


def _developer_text(
    instructions: Sequence[str], tools: Sequence[FunctionTool], schema: ResponseSchema | None
) -> str:
    sections = []
    if instructions:
        sections.append(_instructions_text("\n\n".join(instructions)))
    if tools:
        sections.append(f"# Tools\n\n## {NAMESPACE}\n\n{function_namespace(NAMESPACE, tools)}")
    if schema is not None:
        sections.append(_response_format_text(schema))
    return "\n\n".join(sections)


def _instructions_text(instructions: str) -> str:
    return f"# Instructions\n\n{instructions}"


def _response_format_text(response: ResponseSchema) -> str:
    lines = [f"// {line}" for line in response.description.split("\n") if response.description]
    lines.append(json.dumps(response.schema, ensure_ascii=False, separators=(",", ":")))
    return f"# Response Formats\n\n## {response.name}\n\n" + "\n".join(lines)


def _without_old_analysis(messages: Sequence[Message]) -> list[Message]:
    """What the model is to see again: analysis only of the turn that is still open."""
    finals = [n for n, message in enumerate(messages) if _is_final(message)]
    last = finals[-1] if finals else -1
    return [m for n, m in enumerate(messages) if n > last or m.channel != "analysis" or m.recipient]


def _is_final(message: Message) -> bool:
    return (
        message.role == "assistant"
        and message.recipient is None
        and message.channel in (None, "final")
    )


def _message(message: Message, declared: frozenset[str]) -> list[Piece]:
    if message.role == "assistant":
        return _assistant_message(message, declared)
    if message.role == "tool":
        return _tool_message(message, declared)
    if message.role == "developer":
        return _plain_message("developer", _instructions_text(message.content))
    return _plain_message(message.role, message.content)


def _assistant_message(message: Message, declared: frozenset[str]) -> list[Piece]:
    if message.recipient is not None:
        return _call(message, message.recipient, declared)
    header: list[Piece] = [
        Special.START, "assistant", Special.CHANNEL, message.channel or "final"
    ]  # fmt: skip
    return [*header, Special.MESSAGE, *_text(message.content), Special.END]


def _call(message: Message, name: str, declared: frozenset[str]) -> list[Piece]:
    channel = message.channel or "commentary"
    return [
        Special.START,
        "assistant",
        Special.CHANNEL,
        f"{channel} to={_recipient(name, declared)} ",
        Special.CONSTRAIN,
        "json",
        Special.MESSAGE,
        *_text(message.content),
        Special.CALL,
    ]


def _tool_message(message: Message, declared: frozenset[str]) -> list[Piece]:
    if not message.name:
        raise UserError(
            "a tool's message has no name; Harmony writes results under the name of their function"
        )
    author = _recipient(message.name, declared)
    header: list[Piece] = [Special.START, author, " to=assistant", Special.CHANNEL, "commentary"]
    return [*header, Special.MESSAGE, *_text(message.content), Special.END]


def _recipient(name: str, declared: frozenset[str]) -> str:
    """A function's name as recipient. Functions' own names hold no dot; built-in tools' may."""
    built_in = name in BUILT_IN_RECIPIENTS or "." in name
    return name if built_in and name not in declared else f"{NAMESPACE}.{name}"

"""What a chat format is: it renders conversations to token ids and parses what the model writes.

The types here are what the API's routes, the terminal chat and the formats share. They follow
Harmony's terms (roles, channels, recipients), of which plainer formats use a part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Role = Literal["system", "developer", "user", "assistant", "tool"]
Channel = Literal["analysis", "commentary", "final"]
ReasoningEffort = Literal["low", "medium", "high"]
JsonSchema = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: who speaks. A system message's content replaces the model's identity.
        content: its text. Of a call: the arguments, as the model wrote them.
        channel: of an assistant's message: analysis (reasoning), commentary (calls and preambles)
            or final. None: final.
        recipient: of an assistant's call: the function's name, without namespace.
        name: of a tool's message: the function whose result this is.
    """

    role: Role
    content: str
    channel: Channel | None = None
    recipient: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A function that the model may call.

    Attributes:
        name: as the model is to write it.
        description: for the model; may be empty.
        parameters: JSON schema of its arguments, an object; None: it takes none.
    """

    name: str
    description: str = ""
    parameters: JsonSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSchema:
    """A JSON schema that the final message is to follow."""

    name: str
    schema: JsonSchema
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """All that a prompt is rendered from.

    Attributes:
        messages: in order. Developer messages are instructions.
        tools: functions that may be called.
        response_schema: of the final message.
        reasoning_effort: how much the model is to think.
        current_date: YYYY-MM-DD; None: no date is given.
    """

    messages: Sequence[Message]
    tools: Sequence[FunctionTool] = field(default_factory=tuple)
    response_schema: ResponseSchema | None = None
    reasoning_effort: ReasoningEffort = "medium"
    current_date: str | None = None


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of what the user is to see."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A call begins, or more of its arguments.

    Attributes:
        index: counts the calls of this turn from 0; the same in all deltas of a call.
        name: with the first delta of a call, else None.
        arguments: more of their text; perhaps empty.
    """

    index: int
    name: str | None
    arguments: str


Delta = ReasoningDelta | ContentDelta | ToolCallDelta


class Parser(Protocol):
    """Turns the tokens of one assistant turn into deltas, as they come. It never raises."""

    @property
    def over(self) -> bool:
        """The turn has ended, perhaps without a stop token; nothing after that counts."""
        ...

    def push(self, token_id: int) -> Sequence[Delta]:
        """Take one token."""
        ...

    def flush(self) -> Sequence[Delta]:
        """No more tokens come: give out what was held back."""
        ...


class ChatFormat(Protocol):
    """One way to lay out conversations for a model.

    Attributes:
        stop_token_ids: each ends a turn.
        layout: of what the model writes, for grammars: Harmony's, or text without headers.
    """

    stop_token_ids: tuple[int, ...]
    layout: Literal["harmony", "text"]

    def render(self, conversation: Conversation) -> list[int]:
        """The prompt, up to where the assistant's turn begins.

        Raises:
            UserError: the conversation cannot be laid out; the message names the part at fault.
        """
        ...

    def parser(self, conversation: Conversation) -> Parser:
        """A parser for the turn that answers this conversation."""
        ...

"""What clients post to /v1/responses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from rose.protocol import InvalidRequestError, SamplingParams
from rose.server.chat.format import ReasoningEffort
from rose.server.conversation import EFFORTS
from rose.server.errors import shown
from rose.server.openai_types import StreamOptions
from rose.server.responses.checks import check
from rose.server.responses.parts import (
    FunctionDefinition,
    TextFormat,
    ToolChoice,
    read_text_format,
    read_tool_choice,
    read_tools,
)

MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY = 64
MAX_METADATA_VALUE = 512

HARMLESS_INCLUDES = frozenset(
    {
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
"""Parts of the answer that a client may ask for and that no answer of Rose has."""


class Reasoning(BaseModel):
    """How much to think. Summaries are never made: the reasoning itself is given."""

    model_config = ConfigDict(extra="forbid", strict=True)

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class TextOptions(BaseModel):
    """What the final message is to look like."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: dict[str, object] | None = None
    verbosity: str | None = None  # medium only: the model knows of none


class ResponseRequest(BaseModel):
    """The body of POST /v1/responses.

    Fields that are null count as absent. Unknown fields are refused, lest a setting that matters
    be ignored in silence.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    input: object = Field(default=None, description="a string, or a list of items")
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: object = Field(
        default=None,
        description='"none", "auto", "required", {"type": "function", "name"} or '
        '{"type": "allowed_tools", "mode", "tools"}',
    )
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    # Of no effect here.
    include: list[str] | None = None
    max_tool_calls: int | None = None  # it counts calls of built-in tools
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    user: str | None = None

    # Refused.
    conversation: object = None
    prompt: object = None
    top_logprobs: int | None = None

    # Beyond OpenAI's.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    priority: int | None = None

    def stores(self) -> bool:
        """Whether the response is kept."""
        return self.store is not False

    def check(self) -> None:
        """Refuse what Rose does not do, and combinations that make no sense.

        Raises:
            InvalidRequestError: it names the field.
        """
        for name, instead in _INSTEAD.items():
            if getattr(self, name):
                raise InvalidRequestError(f"{name} is not supported: {instead}", name)
        if self.text is not None and self.text.verbosity not in (None, "medium"):
            raise InvalidRequestError(
                "text.verbosity is not supported: leave it out", "text.verbosity"
            )
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options needs stream: true", "stream_options")
        if self.background and not self.stores():
            raise InvalidRequestError(
                "background needs store: true, or its outcome could not be fetched", "background"
            )
        if self.background and self.stream:
            raise InvalidRequestError(
                "a background response cannot be streamed: poll GET /v1/responses/ID", "stream"
            )
        for number, name in enumerate(self.include or []):
            if name not in HARMLESS_INCLUDES:
                raise InvalidRequestError(
                    f"include: {shown(name)} is not supported: leave it out", f"include[{number}]"
                )
        _check_metadata(self.metadata or {})

    def wanted(self) -> "Wanted":
        """What its objects say.

        Raises:
            InvalidRequestError: one is none of the forms; it names the field.
        """
        tools = read_tools(self.tools or [])
        return Wanted(
            tools=tools,
            tool_choice=read_tool_choice(self.tool_choice, tools),
            text_format=read_text_format(self.text.format if self.text else None),
            effort=_effort(self.reasoning.effort if self.reasoning else None),
        )

    def sampling(self, stop_token_ids: tuple[int, ...]) -> SamplingParams:
        """The parameters of the engine's request.

        Args:
            stop_token_ids: ends of a turn in the model's chat format.

        Raises:
            InvalidRequestError: a value is out of range; it names the field.
        """
        given = {name: value for name in _PASSED_ON if (value := getattr(self, name)) is not None}
        if self.max_output_tokens is not None:
            wanted = "an integer of at least 1, or absent"
            check(self.max_output_tokens >= 1, "max_output_tokens", wanted, self.max_output_tokens)
        return SamplingParams(
            **given, max_tokens=self.max_output_tokens, stop_token_ids=stop_token_ids
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a body says of how to answer.

    Attributes:
        tools: functions that may be called.
        tool_choice: which of them may or must be.
        text_format: what the final message is to look like.
        effort: how much the model is to think.
    """

    tools: Sequence[FunctionDefinition]
    tool_choice: ToolChoice
    text_format: TextFormat
    effort: ReasoningEffort


_PASSED_ON = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
)

_INSTEAD = {
    "conversation": "use previous_response_id",
    "prompt": "send instructions and input",
    "top_logprobs": "leave it out; /v1/chat/completions has log-probabilities",
}


def _effort(effort: str | None) -> ReasoningEffort:
    if effort is None:
        return "medium"
    if effort not in EFFORTS:
        raise InvalidRequestError(
            f"reasoning.effort must be one of {', '.join(EFFORTS)}; got {shown(effort)}",
            "reasoning.effort",
        )
    return EFFORTS[effort]


def _check_metadata(metadata: Mapping[str, str]) -> None:
    pairs = f"at most {MAX_METADATA_PAIRS} pairs"
    check(len(metadata) <= MAX_METADATA_PAIRS, "metadata", pairs, len(metadata))
    for key, value in metadata.items():
        wanted = f"keyed by at most {MAX_METADATA_KEY} characters"
        check(len(key) <= MAX_METADATA_KEY, "metadata", wanted, key)
        wanted = f"a map to at most {MAX_METADATA_VALUE} characters each"
        check(len(value) <= MAX_METADATA_VALUE, "metadata", wanted, value)

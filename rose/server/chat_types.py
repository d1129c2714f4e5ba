"""What clients post to /v1/chat/completions: OpenAI's types, and what they mean to the engine."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rose.protocol import InvalidRequestError, SamplingParams
from rose.server.openai_types import MAX_LOGPROBS, SamplingFields

FUNCTION_NAME = r"^[a-zA-Z0-9_-]{1,64}$"


class _Part(BaseModel):
    """Part of a body in which clients send back what they once received: extras are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


class ContentPart(_Part):
    """A piece of a message's content. Only text (or a refusal) is read; others are refused."""

    type: str
    text: str | None = None
    refusal: str | None = None


def _as_parts(content: object) -> object:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


Content = Annotated[
    list[ContentPart],
    BeforeValidator(_as_parts, json_schema_input_type=str | list[ContentPart]),
]
"""A text, or a list of parts."""


class CalledFunction(_Part):
    """A call's function; `arguments` is text, as the model wrote it."""

    name: str
    arguments: str


class ToolCall(_Part):
    """A call that the assistant made."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(_Part):
    """One message. Which fields matter depends on the role."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    # Of the assistant's:
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    # Of a tool's:
    tool_call_id: str | None = None


class FunctionDefinition(_Part):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: Annotated[str, Field(pattern=FUNCTION_NAME)]
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class Tool(_Part):
    """A tool; only functions are supported."""

    type: Literal["function"]
    function: FunctionDefinition


class _NamedFunction(_Part):
    name: str


class _AllowedTool(_Part):
    type: Literal["function"]
    function: _NamedFunction


class AllowedTools(_Part):
    """Some of the declared functions, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: list[_AllowedTool]


class ToolChoiceField(_Part):
    """Whether functions may or must be called, and which."""

    type: Literal["none", "auto", "required", "function", "allowed_tools"]
    function: _NamedFunction | None = None
    allowed_tools: AllowedTools | None = None


def _as_choice(choice: object) -> object:
    return {"type": choice} if isinstance(choice, str) else choice


PostedToolChoice = Annotated[
    ToolChoiceField,
    BeforeValidator(
        _as_choice, json_schema_input_type=Literal["none", "auto", "required"] | ToolChoiceField
    ),
]
"""A mode, or an object that names functions."""


class JsonSchemaFormat(_Part):
    """A JSON schema that the answer follows."""

    name: Annotated[str, Field(pattern=FUNCTION_NAME)]
    description: str | None = None
    schema_: dict[str, object] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(_Part):
    """What the answer's content is to be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class ChatCompletionRequest(SamplingFields):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    tools: list[Tool] | None = None
    tool_choice: PostedToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    # Of no effect here.
    metadata: dict[str, object] | None = None
    prediction: object = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None

    # Refused, unless they say what Rose does anyway.
    audio: object = None
    function_call: object = None
    functions: object = None
    modalities: list[str] | None = None
    verbosity: str | None = None
    web_search_options: object = None

    def check(self) -> None:
        """Refuse what Rose does not do, and combinations that make no sense.

        Raises:
            InvalidRequestError: it names the field.
        """
        for name, instead in _INSTEAD.items():
            if getattr(self, name) is not None:
                raise InvalidRequestError(f"{name} is not supported: {instead}", name)
        if self.modalities not in (None, ["text"]):
            raise InvalidRequestError("modalities: only ['text'] is supported", "modalities")
        if self.verbosity not in (None, "medium"):
            raise InvalidRequestError("verbosity is not supported: leave it out", "verbosity")
        self.check_shared()
        self._check_logprobs()

    def _check_logprobs(self) -> None:
        if self.top_logprobs is None:
            return
        if not self.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs: true", "top_logprobs")
        if not 0 <= self.top_logprobs <= MAX_LOGPROBS:
            raise InvalidRequestError(
                f"top_logprobs must be 0 to {MAX_LOGPROBS}; got {self.top_logprobs}", "top_logprobs"
            )

    def sampling(self, stop_token_ids: tuple[int, ...]) -> SamplingParams:
        """The parameters of the engine's request.

        Args:
            stop_token_ids: ends of a turn in the model's chat format.

        Raises:
            InvalidRequestError: a value is out of range; it names the field.
        """
        return self.shared_sampling(
            max_tokens=self._engine_max_tokens(),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            stop_token_ids=stop_token_ids,
        )

    def _engine_max_tokens(self) -> int | None:
        if self.max_completion_tokens is None:
            return self.max_tokens
        if self.max_tokens not in (None, self.max_completion_tokens):
            raise InvalidRequestError(
                f"max_tokens ({self.max_tokens}) and max_completion_tokens "
                f"({self.max_completion_tokens}) differ: post the latter alone",
                "max_tokens",
            )
        if self.max_completion_tokens < 1:
            raise InvalidRequestError(
                "max_completion_tokens must be an integer of at least 1, or absent; "
                f"got {self.max_completion_tokens}",
                "max_completion_tokens",
            )
        return self.max_completion_tokens


_INSTEAD = {
    "audio": "this model writes text only",
    "function_call": "use tool_choice",
    "functions": "use tools",
    "web_search_options": "declare a function among tools, and search where it is called",
}

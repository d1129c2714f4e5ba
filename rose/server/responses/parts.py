"""The parts of a posted body that say what the model may call and what it is to write."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from rose.protocol import InvalidRequestError
from rose.server import grammar
from rose.server.chat.format import JsonSchema, ResponseSchema
from rose.server.chat_types import FUNCTION_NAME
from rose.server.conversation import JSON_OBJECT
from rose.server.errors import shown
from rose.server.responses.checks import matching


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FunctionDefinition(BaseModel):
    """A tool that the model may call. What else clients tell of it is of no effect."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["function"]
    name: str = Field(pattern=FUNCTION_NAME)
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class NamedFunction(_Strict):
    """`tool_choice`: this function."""

    type: Literal["function"]
    name: str


class AllowedTools(_Strict):
    """`tool_choice`: some of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedFunction] = Field(min_length=1)


class JsonSchemaFormat(_Strict):
    """`text.format`: JSON by a schema."""

    type: Literal["json_schema"]
    name: str = Field(pattern=FUNCTION_NAME)
    schema_: dict[str, object] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class PlainFormat(_Strict):
    """`text.format`: text, or JSON without a schema."""

    type: Literal["text", "json_object"]


ToolMode = Literal["none", "auto", "required"]
ToolChoice = ToolMode | NamedFunction | AllowedTools
TextFormat = PlainFormat | JsonSchemaFormat


def read_tools(posted: Sequence[Mapping[str, object]]) -> list[FunctionDefinition]:
    """The tools of a body.

    Raises:
        InvalidRequestError: one is no function, or two have one name.
    """
    found: dict[str, FunctionDefinition] = {}
    for number, tool in enumerate(posted):
        where = f"tools[{number}]"
        if tool.get("type") != "function":
            raise InvalidRequestError(
                f"{where}: a tool of type {shown(tool.get('type'))} is not supported; only "
                "functions are",
                f"{where}.type",
            )
        function = matching(FunctionDefinition, tool, where)
        if function.name in found:
            raise InvalidRequestError(
                f"two tools are named {function.name!r}: rename one", f"{where}.name"
            )
        found[function.name] = function
    return list(found.values())


def read_tool_choice(posted: object, tools: Sequence[FunctionDefinition]) -> ToolChoice:
    """Which tools the model may or must call.

    Raises:
        InvalidRequestError: it is none of the forms, or names a tool that is not there.
    """
    choice = _tool_choice(posted)
    if choice == "required" and not tools:
        raise InvalidRequestError("tool_choice required needs tools; got none", "tool_choice")
    wanted = [choice] if isinstance(choice, NamedFunction) else []
    wanted += choice.tools if isinstance(choice, AllowedTools) else []
    declared = [tool.name for tool in tools]
    for function in wanted:
        if function.name not in declared:
            raise InvalidRequestError(
                f"tool_choice names {shown(function.name)}, which is not among tools: "
                f"{', '.join(declared) or 'there are none'}",
                "tool_choice",
            )
    return choice


def _tool_choice(posted: object) -> ToolChoice:
    if posted is None or posted == "auto":
        return "auto"
    if posted == "none":
        return "none"
    if posted == "required":
        return "required"
    if isinstance(posted, dict) and posted.get("type") == "function":
        return matching(NamedFunction, posted, "tool_choice")
    if isinstance(posted, dict) and posted.get("type") == "allowed_tools":
        return matching(AllowedTools, posted, "tool_choice")
    raise InvalidRequestError(
        'tool_choice must be "none", "auto", "required", or an object of type "function" or '
        f'"allowed_tools"; got {shown(posted)}',
        "tool_choice",
    )


def read_text_format(posted: Mapping[str, object] | None) -> TextFormat:
    """What the final message is to look like.

    Raises:
        InvalidRequestError: it is none of the forms.
    """
    if posted is None:
        return PlainFormat(type="text")
    kind = posted.get("type")
    if kind == "json_schema":
        return matching(JsonSchemaFormat, posted, "text.format")
    if kind in ("text", "json_object"):
        return matching(PlainFormat, posted, "text.format")
    raise InvalidRequestError(
        f'text.format.type must be "text", "json_object" or "json_schema"; got {shown(kind)}',
        "text.format.type",
    )


def callable_tools(
    tools: Sequence[FunctionDefinition], choice: ToolChoice
) -> list[FunctionDefinition]:
    """The tools that the model is told of: those that it may call."""
    if choice == "none":
        return []
    if isinstance(choice, AllowedTools):
        allowed = {function.name for function in choice.tools}
        return [tool for tool in tools if tool.name in allowed]
    return list(tools)


def grammar_choice(choice: ToolChoice) -> grammar.ToolChoice:
    """The choice among `callable_tools`, as grammars have it."""
    if isinstance(choice, AllowedTools):
        return grammar.ToolChoice(choice.mode)
    if isinstance(choice, NamedFunction):
        return grammar.ToolChoice("required", (choice.name,))
    return grammar.ToolChoice(choice)


def response_schema(wanted: TextFormat) -> ResponseSchema | None:
    """The schema that the model is told of; None: it writes text."""
    if isinstance(wanted, PlainFormat):
        return None if wanted.type == "text" else JSON_OBJECT
    return ResponseSchema(
        name=wanted.name, schema=wanted.schema_, description=wanted.description or ""
    )


def grammar_format(wanted: TextFormat) -> Literal["text", "json_object"] | JsonSchema:
    """The format of the final message, as grammars have it."""
    return wanted.type if isinstance(wanted, PlainFormat) else wanted.schema_

"""Grammars for chats: which of a turn is free, and what the rest must spell.

In Harmony, the JSON of a response format is the final message's content alone; analysis and
preambles stay free. Where a call is required, headers are part of the grammar: the turn can end
only with a call of a declared function. In a format without headers, the JSON is the whole text.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rose.grammar import schema_problem
from rose.protocol import EngineDeadError, Grammar, InvalidRequestError
from rose.server.chat.format import Conversation, FunctionTool, JsonSchema
from rose.server.chat.harmony_render import NAMESPACE

MAX_FREE_MESSAGES = 3
"""Messages of analysis and preambles before a required call. A model that sees no use in a call
would put it off for ever."""

# Compact, or with the single spaces that models write; other whitespace costs tokens and may loop.
_SPACING = {"item_separator": ", ?", "key_separator": ": ?", "whitespace_flexible": False}
_ANY_OBJECT: JsonSchema = {"type": "object"}
_EMPTY_OBJECT: JsonSchema = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which functions a turn may or must call.

    Attributes:
        mode: none, auto, or required: the turn ends with a call.
        names: functions that may be called; None: all that are declared.
    """

    mode: Literal["none", "auto", "required"] = "auto"
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class GrammarParams:
    """How the request names what a grammar is made of; for errors.

    Attributes:
        response_format: the response format's field.
        tool_choice: the tool choice's field.
        tool_parameters: a function's schema; `{index}` stands for its place among the tools.
    """

    response_format: str = "response_format"
    tool_choice: str = "tool_choice"
    tool_parameters: str = "tools[{index}].function.parameters"


CHAT_PARAMS = GrammarParams()
RESPONSES_PARAMS = GrammarParams("text.format", "tool_choice", "tools[{index}].parameters")


def gave_up(grammar: Grammar | None, params: GrammarParams = CHAT_PARAMS) -> Exception:
    """Why a live engine ended a sequence with an error: with a grammar, it has no way on."""
    if grammar is None:
        return EngineDeadError("the engine failed to run this request")
    return InvalidRequestError(
        "no answer can be written under this schema: it may refer to itself without end, "
        "contradict itself, or allow too many readings; make it simpler",
        params.response_format,
    )


def chat_grammar(
    conversation: Conversation,
    *,
    layout: Literal["harmony", "text"] = "harmony",
    response_format: Literal["text", "json_object"] | JsonSchema = "text",
    tool_choice: ToolChoice = ToolChoice(),
    strict_tools: Collection[str] = (),
    params: GrammarParams = CHAT_PARAMS,
) -> Grammar | None:
    """What the turn that answers a conversation must spell.

    Args:
        conversation: its tools are those that can be called.
        layout: harmony; or text: the turn is plain text, without headers.
        response_format: text is free; json_object is any; or the schema to follow.
        tool_choice: which functions may or must be called.
        strict_tools: functions whose arguments always follow their schema. The others' do only
            if a call is required.
        params: the fields' names for errors.

    Returns:
        None if the turn is free.

    Raises:
        InvalidRequestError: a schema uses what is not supported, or no function can be called
            though a call is required; it names the field.
    """
    body = _body(response_format, params)
    if layout == "text":
        if tool_choice.mode == "required":
            raise InvalidRequestError(
                f"{params.tool_choice} requires a call, for which this model's chat template has "
                'no known form; use "auto" or "none"',
                params.tool_choice,
            )
        return None if body is None else Grammar(source=f"start: {body}\n")
    tools = _callable_tools(conversation, tool_choice, params)
    required = tool_choice.mode == "required"
    strict = {tool.name for _, tool in tools if required or tool.name in strict_tools}
    if body is None and not strict:
        return None
    free = f"free{{0,{MAX_FREE_MESSAGES}}}" if required else "free*"
    endings = [_call(tool, index, params, tool.name in strict) for index, tool in tools]
    if not required:
        endings.insert(0, _final(body))
    return Grammar(source=_turn(free, endings))


def _callable_tools(
    conversation: Conversation, choice: ToolChoice, params: GrammarParams
) -> list[tuple[int, FunctionTool]]:
    """The functions that may be called, each with its place among the tools."""
    if choice.mode == "none":
        return []
    declared = [tool.name for tool in conversation.tools]
    for name in choice.names or ():
        if name not in declared:
            raise InvalidRequestError(
                f"{params.tool_choice} names function {name!r}, which is not among the tools "
                f"({', '.join(declared) or 'there are none'})",
                params.tool_choice,
            )
    tools = [
        (index, tool)
        for index, tool in enumerate(conversation.tools)
        if choice.names is None or tool.name in choice.names
    ]
    if choice.mode == "required" and not tools:
        raise InvalidRequestError(
            f'{params.tool_choice} is "required", but no function is declared in tools',
            params.tool_choice,
        )
    return tools


def _turn(free: str, endings: list[str]) -> str:
    """A turn, from what follows `<|start|>assistant` in the prompt to its stop token."""
    return (
        f"start: {free} ending\n"
        'free: <|channel|> CHANNEL <|message|> TEXT <|end|> <|start|> "assistant"\n'
        'CHANNEL: "analysis" | "commentary"\n'
        "TEXT: /(?s:.*)/\n"
        f"ending: {' | '.join(f'e{n}' for n in range(len(endings)))}\n"
        + "".join(f"e{n}: <|channel|> {ending}\n" for n, ending in enumerate(endings))
    )


def _final(body: str | None) -> str:
    return f'"final" <|message|> {body or "TEXT"} <|return|>'


def _call(tool: FunctionTool, index: int, params: GrammarParams, strict: bool) -> str:
    header = json.dumps(f"commentary to={NAMESPACE}.{tool.name} ")
    arguments = _json(
        _arguments_schema(tool) if strict else _ANY_OBJECT,
        params.tool_parameters.format(index=index),
    )
    return f'{header} <|constrain|> "json" <|message|> {arguments} <|call|>'


def _arguments_schema(tool: FunctionTool) -> JsonSchema:
    """Arguments are an object, whether or not the schema says so."""
    return _EMPTY_OBJECT if tool.parameters is None else {**_ANY_OBJECT, **tool.parameters}


def _body(
    response_format: Literal["text", "json_object"] | JsonSchema, params: GrammarParams
) -> str | None:
    if response_format == "text":
        return None
    schema = _ANY_OBJECT if isinstance(response_format, str) else response_format
    return _json(schema, params.response_format)


def _json(schema: JsonSchema, param: str) -> str:
    """Lark for the values of a schema."""
    # In place of options of this name, if the client gave some: they could weaken its schema.
    text = json.dumps({**schema, "x-guidance": _SPACING})
    problem = _schema_problem(text)
    if problem is not None:
        raise InvalidRequestError(f"{param}: this JSON schema cannot be followed: {problem}", param)
    return f"%json {text}"


_schema_problem = lru_cache(maxsize=128)(schema_problem)

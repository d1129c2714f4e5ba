"""The functions that the terminal chat lends to a model: a calculator and a clock."""

import ast
import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

from rose.server.chat.format import FunctionTool

_LONGEST, _MOST_DIGITS = 400, 40
_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


class ToolError(ValueError):
    """A call that cannot be carried out; the model is told why."""


@dataclass(frozen=True, slots=True)
class LocalTool:
    """A function that runs here.

    Attributes:
        declaration: what the model is told of it.
        run: takes the arguments; raises ToolError.
    """

    declaration: FunctionTool
    run: Callable[[Mapping[str, object]], object]


def run_tool(tools: Mapping[str, LocalTool], name: str, arguments: str) -> str:
    """The result of a call as JSON; an error is a result, too, so that the model can mend it."""
    try:
        if name not in tools:
            raise ToolError(f"there is no function {name}; there are {', '.join(tools)}")
        try:
            values = json.loads(arguments)
        except ValueError:
            raise ToolError("the arguments are not JSON") from None
        if not isinstance(values, dict):
            raise ToolError("the arguments must be a JSON object")
        return json.dumps(tools[name].run(values))
    except ToolError as error:
        return json.dumps({"error": str(error)})


def _text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise ToolError(f"{name} must be a string; got {json.dumps(value)}")
    return value


def _calculate(values: Mapping[str, object]) -> object:
    expression = _text(values, "expression").replace("\N{MULTIPLICATION SIGN}", "*")
    expression = expression.replace("\N{DIVISION SIGN}", "/")
    if len(expression) > _LONGEST:
        raise ToolError(f"the expression is longer than {_LONGEST} characters")
    try:
        result = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        reason = str(error) if isinstance(error, ToolError) else "not an arithmetic expression"
        raise ToolError(f"{expression}: {reason}") from None
    except (ZeroDivisionError, OverflowError):
        raise ToolError(f"{expression} has no finite value") from None
    return {"result": int(result) if result == int(result) else round(result, 10)}


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            value: float = number
        case ast.BinOp(left, operation, right) if type(operation) in _BINARY:
            value = _BINARY[type(operation)](_value(left), _value(right))
        case ast.UnaryOp(operation, operand) if type(operation) in _UNARY:
            value = _UNARY[type(operation)](_value(operand))
        case _:
            raise ToolError("only numbers, + - * / // % and brackets are understood")
    if abs(value) >= 10**_MOST_DIGITS:
        raise ToolError("the numbers are too large")
    return value


def _get_time(values: Mapping[str, object]) -> object:
    place = _text(values, "city").strip()
    wanted = place.lower().replace(" ", "_")
    # "Asia/Tokyo" is found as Tokyo, too.
    zones = (z for z in sorted(available_timezones()) if wanted in (z.lower(), _city(z)))
    zone = next(zones, None)
    if zone is None:
        raise ToolError(f"the time zone of {place} is not known here")
    return {"time": f"{datetime.now(ZoneInfo(zone)):%H:%M}", "timezone": zone}


def _city(zone: str) -> str:
    return zone.rpartition("/")[2].lower()


def _function(name: str, description: str, parameter: str, about: str) -> FunctionTool:
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string", "description": about}},
        "required": [parameter],
    }
    return FunctionTool(name=name, description=description, parameters=schema)


LOCAL_TOOLS: Mapping[str, LocalTool] = {
    "calculate": LocalTool(
        _function(
            "calculate",
            "Evaluate a mathematical expression.",
            "expression",
            "The expression, e.g. 2 + 3",
        ),
        _calculate,
    ),
    "get_time": LocalTool(
        _function("get_time", "Get the time in a city.", "city", "The city"), _get_time
    ),
}
"""By name."""

TOOL_SETS: Mapping[str, Mapping[str, LocalTool]] = {
    "none": {},
    "clock": {"get_time": LOCAL_TOOLS["get_time"]},
    "all": LOCAL_TOOLS,
}
"""What the terminal chat may lend. rose-nano does sums well by itself, but copies them into a
calculator's argument badly."""

"""Functions and their JSON schemas in the TypeScript-like notation that gpt-oss was trained on."""

import json
from collections.abc import Iterator, Mapping, Sequence

from rose.server.chat.format import FunctionTool

Schema = Mapping[str, object]

PRIMITIVES = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


def function_namespace(name: str, tools: Sequence[FunctionTool]) -> str:
    """All functions as a namespace."""
    functions = "".join(_function(tool) for tool in tools)
    return f"namespace {name} {{\n\n{functions}}} // namespace {name}"


def _function(tool: FunctionTool) -> str:
    comments = "".join(f"// {line}\n" for line in _lines(tool.description))
    argument = "" if tool.parameters is None else f"_: {_type(tool.parameters, '')}"
    return f"{comments}type {tool.name} = ({argument}) => any;\n\n"


def _lines(text: str) -> list[str]:
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _type(schema: object, indent: str) -> str:
    """A schema as a type. What the notation has no form for is `any`."""
    if not isinstance(schema, Mapping):
        return "any"
    variants = schema.get("oneOf")
    if isinstance(variants, list):
        return "".join(_variant(variant, indent) for variant in variants)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union_of_types(kind) or "any"
    if kind == "object":
        return _object(schema, indent)
    if kind == "array":
        return f"{_type(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
    if kind == "string":
        return _string(schema)
    return PRIMITIVES.get(kind, "any") if isinstance(kind, str) else "any"


def _variant(value: object, indent: str) -> str:
    """One of the types of a union that is no property's: an array's items, say."""
    variant = value if isinstance(value, Mapping) else {}
    type_ = _nullable(variant, _type(variant, indent + "   "))
    description = variant.get("description")
    notes = [description] if isinstance(description, str) else []
    return f"\n{indent} | {type_}{_trailing([*notes, *_quoted_default(variant)])}"


def _union_of_types(kinds: Sequence[object]) -> str:
    names = ["number" if kind == "integer" else kind for kind in kinds if isinstance(kind, str)]
    return " | ".join(names)


def _string(schema: Schema) -> str:
    values = schema.get("enum")
    if isinstance(values, list):
        literals = [f'"{value}"' for value in values if isinstance(value, str)]
        return " | ".join(literals) or "string"
    return "string"


def _object(schema: Schema, indent: str) -> str:
    head = _comment(schema.get("description"), indent)
    properties = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    body = ""
    if isinstance(properties, Mapping):
        for name, value in properties.items():
            mark = "" if name in needed else "?"
            body += _property(f"{indent}{name}{mark}:", value, indent)
    return f"{head}{{\n{body}{indent}}}"


def _property(label: str, value: object, indent: str) -> str:
    schema = value if isinstance(value, Mapping) else {}
    variants = schema.get("oneOf")
    if isinstance(variants, list):
        return "".join(_one_of(label, schema, variants, indent))
    type_ = _nullable(schema, _type(schema, indent + "    "))
    return f"{_property_comments(schema, indent)}{label} {type_},{_trailing(_default(schema))}\n"


def _property_comments(schema: Schema, indent: str) -> str:
    title = schema.get("title")
    text = f"{indent}// {title}\n{indent}//\n" if isinstance(title, str) else ""
    if "oneOf" not in schema:
        text += _comment(schema.get("description"), indent)
    examples = schema.get("examples")
    if isinstance(examples, list) and examples:
        text += f"{indent}// Examples:\n"
        text += "".join(f'{indent}// - "{e}"\n' for e in examples if isinstance(e, str))
    return text


def _one_of(label: str, schema: Schema, variants: Sequence[object], indent: str) -> Iterator[str]:
    """A union, one variant a line, each with its own description."""
    yield _property_comments(schema, indent)
    description = schema.get("description")
    first = variants[0] if variants else None
    said_by_first = isinstance(first, Mapping) and first.get("description") == description
    described = isinstance(description, str) and not said_by_first
    if described:
        yield _comment(description, indent)
    yield "".join(_comment(default, indent) for default in _default(schema))
    yield f"{label}\n"
    for position, value in enumerate(variants):
        variant = value if isinstance(value, Mapping) else {}
        notes = []
        own = variant.get("description")
        if isinstance(own, str) and own != description and not (described and position == 0):
            notes.append(own)
        notes += _default(variant)
        type_ = _nullable(variant, _type(variant, indent + "   "))
        yield f"{indent} | {type_}{_trailing(notes)}\n"
    yield f"{indent},\n"


def _nullable(schema: Schema, type_: str) -> str:
    return f"{type_} | null" if schema.get("nullable") is True and "null" not in type_ else type_


def _comment(text: object, indent: str) -> str:
    return f"{indent}// {text}\n" if isinstance(text, str) else ""


def _trailing(notes: Sequence[str]) -> str:
    """Comments behind a type."""
    return f" // {' '.join(notes)}" if notes else ""


def _default(schema: Schema) -> list[str]:
    """The default as a note, if there is one; the value of an enum is written without quotes."""
    if isinstance(schema.get("default"), str) and schema.get("enum"):
        return [f"default: {schema['default']}"]
    return _quoted_default(schema)


def _quoted_default(schema: Schema) -> list[str]:
    if "default" not in schema:
        return []
    value = schema["default"]
    if isinstance(value, str):
        return [f'default: "{value}"']
    return ["default: " + json.dumps(value, ensure_ascii=False, separators=(",", ":"))]

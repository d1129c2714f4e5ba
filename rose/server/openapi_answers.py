"""What the OpenAPI document says of answers: the routes write theirs as bytes, not as types."""

from collections.abc import Mapping

Schema = dict[str, object]

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_OBJECT: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _OBJECT}
_MAYBE_TEXT: Schema = {"type": ["string", "null"]}


def _fields(kind: str | None = None, **fields: Schema) -> Schema:
    """An object with at least these fields; `kind` is the value of its `object`."""
    properties = fields if kind is None else {"object": {"const": kind}} | fields
    return {"type": "object", "properties": properties, "required": list(properties)}


ERROR = {
    **_fields(
        error={
            **_fields(message=_TEXT, type=_TEXT, param=_MAYBE_TEXT, code=_MAYBE_TEXT),
            "additionalProperties": False,
        }
    ),
    "title": "Error",
}
_HEALTH = _fields(status={"enum": ["starting", "ready", "dead"]})
_MODEL = _fields("model", id=_TEXT, created=_NUMBER, owned_by=_TEXT, max_model_len=_NUMBER)
_CHOICES: Schema = {
    "type": "array",
    "items": _fields(index=_NUMBER, finish_reason={"enum": ["stop", "length", "tool_calls"]}),
}
_USAGE = _fields(prompt_tokens=_NUMBER, completion_tokens=_NUMBER, total_tokens=_NUMBER)
_COMPLETION = {"id": _TEXT, "created": _NUMBER, "model": _TEXT, "choices": _CHOICES}
_RESPONSE = _fields("response", id=_TEXT, status=_TEXT, model=_TEXT, output=_OBJECTS)
_EVENT = {
    **_fields(data=_TEXT),
    "description": "One event of the stream; its data is JSON, or [DONE] at the end of completions",
}

_JSON_ANSWERS: Mapping[tuple[str, str], Schema] = {
    ("get", "/health"): _HEALTH,
    ("get", "/ready"): _fields(ready={"const": True}),
    ("get", "/version"): _fields(version=_TEXT),
    ("post", "/tokenize"): _fields(
        tokens={"type": "array", "items": _NUMBER}, count=_NUMBER, max_model_len=_NUMBER
    ),
    ("post", "/detokenize"): _fields(prompt=_TEXT),
    ("get", "/v1/models"): _fields("list", data={"type": "array", "items": _MODEL}),
    ("get", "/v1/models/{name}"): _MODEL,
    ("post", "/v1/completions"): _fields("text_completion", usage=_USAGE, **_COMPLETION),
    ("post", "/v1/chat/completions"): _fields("chat.completion", usage=_USAGE, **_COMPLETION),
    ("post", "/v1/responses"): _RESPONSE,
    ("get", "/v1/responses/{response_id}"): _RESPONSE,
    ("post", "/v1/responses/{response_id}/cancel"): _RESPONSE,
    ("delete", "/v1/responses/{response_id}"): _fields(
        "response", id=_TEXT, deleted={"const": True}
    ),
    ("get", "/v1/responses/{response_id}/input_items"): _fields("list", data=_OBJECTS),
}
_STREAMED = {"/v1/completions", "/v1/chat/completions", "/v1/responses"}
_PLAIN = {"/metrics"}


def describe_answers(document: dict[str, dict[str, dict[str, dict[str, object]]]]) -> None:
    """Write the answers of all routes into a document."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers: dict[str, object] = {
                "200": {"description": "As asked", "content": _content(method, path)},
                "4XX": _error("The request cannot be served"),
                "5XX": _error("The server or its engine failed, or is not ready"),
            }
            if path == "/health":
                content = {"application/json": {"schema": _HEALTH}}
                answers["503"] = {"description": "Not ready", "content": content}
            operation["responses"] = answers


def _content(method: str, path: str) -> dict[str, object]:
    if path in _PLAIN:
        return {"text/plain": {"schema": _TEXT}}
    schema = _JSON_ANSWERS.get((method, path), _OBJECT)
    content: dict[str, object] = {"application/json": {"schema": schema}}
    if path in _STREAMED:
        content["text/event-stream"] = {"schema": _EVENT}
    return content


def _error(description: str) -> dict[str, object]:
    return {"description": description, "content": {"application/json": {"schema": ERROR}}}

"""The OpenAPI document of routes that read their bodies themselves."""

from collections.abc import Iterator

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from rose.server.openapi_answers import describe_answers

_LOCAL = "#/$defs/"
_SHARED = "#/components/schemas/"


def json_body(kind: type[BaseModel]) -> dict[str, object]:
    """A route's `openapi_extra`: its body is JSON of this kind."""
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


def describe_bodies(app: FastAPI) -> None:
    """Make the document describe answers, and keep the bodies' parts where readers look for them.

    The framework does so only for bodies that it reads itself. A body's own parts are named after
    it, so that two bodies may have parts of one name.
    """

    def document() -> dict[str, object]:
        if app.openapi_schema is None:
            described = get_openapi(title=app.title, version=app.version, routes=app.routes)
            shared = described.setdefault("components", {}).setdefault("schemas", {})
            for schema in list(_body_schemas(described)):
                parts = schema.pop("$defs", {})
                assert isinstance(parts, dict)
                owner = f"{schema.get('title', 'Body')}."
                _refer_to(owner, [schema, parts])
                shared.update({owner + name: part for name, part in parts.items()})
            describe_answers(described)
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as the framework's manual says


def _body_schemas(node: object) -> Iterator[dict[str, object]]:
    """Schemas of all bodies of JSON in a document."""
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key == "requestBody":
            yield value["content"]["application/json"]["schema"]
        else:
            yield from _body_schemas(value)


def _refer_to(owner: str, node: object) -> None:
    """Make references to a body's own parts ones to shared parts of that owner."""
    if isinstance(node, list):
        for value in node:
            _refer_to(owner, value)
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                node[key] = value.replace(_LOCAL, _SHARED + owner, 1)
            else:
                _refer_to(owner, value)

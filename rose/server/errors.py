"""Errors in OpenAI's form: `{"error": {"message", "type", "param", "code"}}`."""

from collections.abc import Mapping

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from rose.protocol import EngineDeadError, InvalidRequestError

MAX_MESSAGE = 1000
"""Characters of a message; it may quote what the client sent."""

MAX_SHOWN = 80
"""Characters of a value that a message quotes."""


class ApiError(Exception):
    """An answer other than success.

    Attributes:
        status: of HTTP.
        message: what was wrong, what was found and what would do.
        kind: OpenAI's `type`.
        param: the field at fault, or None.
        code: for programs, or None.
        headers: of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})
        self.message = message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "..."
        self.kind, self.param, self.code = kind, param, code

    def body(self) -> bytes:
        """The JSON of the answer."""
        fields = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return msgspec.json.encode({"error": fields})

    def response(self) -> Response:
        """The HTTP answer."""
        if self.status == 503:
            self.headers["Retry-After"] = "5"
        return Response(self.body(), self.status, self.headers, media_type="application/json")


class ClientGoneError(Exception):
    """The client closed its connection; nobody reads what follows."""


def from_exception(error: Exception) -> ApiError:
    """The answer that an exception amounts to. Of bugs it shows nothing."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, InvalidRequestError):
        # The engine knows prompts as ids only.
        param = "prompt" if error.param == "prompt_token_ids" else error.param
        return ApiError(400, error.message, param=param or None)
    if isinstance(error, EngineDeadError):
        message = f"the engine cannot serve this: {error}"
        return ApiError(503, message, kind="server_error", code="engine_unavailable")
    if isinstance(error, HTTPException):
        return ApiError(error.status_code, str(error.detail), headers=error.headers)
    return ApiError(500, "internal error of the server; see its log", kind="server_error")


def from_validation(error: ValidationError) -> ApiError:
    """The first thing that is wrong with a body."""
    first = error.errors(include_url=False, include_input=True)[0]
    field = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"])
    field = field.removeprefix(".")
    if first["type"] == "extra_forbidden":
        return ApiError(
            400, f"unknown field {field!r}: leave it out", param=field, code="unknown_field"
        )
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body must be a JSON object: {first['msg']}")
    if first["type"] == "missing":
        return ApiError(400, f"{field} is required", param=field)
    if first["type"] == "value_error":
        return ApiError(400, first["msg"].removeprefix("Value error, "), param=field or None)
    where = field or "the body"
    message = f"{where}: {first['msg']}; got {shown(first['input'])}"
    return ApiError(400, message, param=field or None)


def shown(value: object) -> str:
    """A value, for an error's message: as Python writes it, cut if it is long."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def install(app: FastAPI) -> None:
    """Answer every error of the app's routes in OpenAI's form."""

    async def answer(request: Request, error: Exception) -> Response:
        return from_exception(error).response()

    async def nobody_reads(request: Request, error: Exception) -> Response:
        return Response(status_code=499)

    for kind in (ApiError, InvalidRequestError, EngineDeadError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(ClientGoneError, nobody_reads)

"""Request ids, and a line of JSON about each request: never a word of its prompt or answer."""

import contextlib
import datetime
import re
import sys
import time
import uuid
from collections.abc import Callable

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rose.server.metrics import CallTimer

HEADER = b"x-request-id"
_VALID_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
MAX_PATH = 200

Write = Callable[[str], None]


class RequestLog:
    """Gives each request an id, answers it in X-Request-ID, and writes the log (ASGI).

    Args:
        app: what is behind it.
        write: takes each line; None: no log.
    """

    def __init__(self, app: ASGIApp, write: Write | None) -> None:
        self._app = app
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        entry = _Entry(scope)

        async def send_with_id(message: Message) -> None:
            entry.see(message)
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            if self._write is not None:
                self._write(entry.line(scope))


class _Entry:
    """What there is to say of one request."""

    def __init__(self, scope: Scope) -> None:
        self._id = _request_id(scope)
        self._started = time.monotonic()
        self._at = datetime.datetime.now(datetime.UTC)
        self._status: int | None = None
        self._whole = False

    def see(self, message: Message) -> None:
        """Part of the answer leaves."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = [*message.get("headers", ()), (HEADER, self._id)]
        elif message["type"] == "http.response.body":
            self._whole = not message.get("more_body", False)

    def line(self, scope: Scope) -> str:
        """The line, without its end."""
        fields: dict[str, object] = {
            "time": self._at.isoformat(timespec="milliseconds"),
            "id": self._id.decode(),
            "method": scope["method"],
            "path": scope["path"][:MAX_PATH],
            "status": self._status,
            "duration_ms": _ms(time.monotonic() - self._started),
        }
        timer = scope["state"].get("call") if "state" in scope else None
        if isinstance(timer, CallTimer):
            first = timer.first_token_s
            fields["ttft_ms"] = None if first is None else _ms(first)
            fields["prompt_tokens"] = timer.prompt_tokens
            fields["completion_tokens"] = timer.generated_tokens
            fields["outcome"] = timer.outcome
        fields["client_gone"] = not self._whole or self._status == 499
        return msgspec.json.encode(fields).decode()


def note_call(scope: Scope, timer: CallTimer) -> None:
    """Have the request's line tell what this timer measures."""
    scope.setdefault("state", {})["call"] = timer


def to_stderr(line: str) -> None:
    """Write a line to standard error, if there is anyone to read it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def _request_id(scope: Scope) -> bytes:
    """The client's, if it is fit for logs and headers; else a new one."""
    for name, value in scope["headers"]:
        if name == HEADER and _VALID_ID.fullmatch(value):
            return bytes(value)
    return f"req_{uuid.uuid4().hex}".encode()


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)

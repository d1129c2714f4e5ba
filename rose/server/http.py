"""What the routes need of HTTP beyond the framework: bounded bodies, clients that go or stall."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from rose.server.errors import ApiError, ClientGoneError

log = logging.getLogger("rose.server")

T = TypeVar("T")

MAX_BODY_BYTES = 32 * 2**20
"""Of a request: several prompts of the longest kind, as token ids."""

STALL_S = 120.0
"""A client that takes nothing of its stream for so long is dropped; until then its events wait.
Its request must have arrived within the same time."""


async def read_body(request: Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """The request's body.

    Raises:
        ApiError: it is larger than `limit` bytes (413), or stopped coming (408).
        ClientGoneError: the client left before it had sent all of it.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(STALL_S):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise ApiError(413, f"the body is too large: at most {limit} bytes would do")
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {STALL_S:g} s") from None
    except ClientDisconnect:
        raise ClientGoneError from None
    return b"".join(parts)


async def unless_client_leaves(request: Request, work: Coroutine[None, None, T]) -> T:
    """Await `work`, but cancel it as soon as the client closes the connection.

    The request's body must have been read.

    Raises:
        ClientGoneError: the client left first.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_client_leaves(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGoneError
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _client_leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """A stream of server-sent events; it ends when the client leaves, or takes none for too long.

    Args:
        events: each item is one or more whole events.
        on_end: called once it is over, however that comes: even if it never began.
        stall_s: how long the client may leave events waiting.
    """

    def __init__(
        self, events: AsyncIterator[bytes], on_end: Callable[[], None], stall_s: float = STALL_S
    ) -> None:
        super().__init__(
            events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
        self._on_end = on_end
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream (ASGI)."""
        loop = asyncio.get_running_loop()
        # One timer that is moved; a wait_for per event would cost more than the event.
        timer = asyncio.timeout(None)

        async def send_in_time(message: Message) -> None:
            timer.reschedule(loop.time() + self._stall_s)
            await send(message)
            timer.reschedule(None)

        try:
            async with timer:
                await super().__call__(scope, receive, send_in_time)
        except TimeoutError:
            if not timer.expired():
                raise
            # The server closes a connection whose answer is incomplete.
            log.warning("a client took nothing of its stream for %g s: dropped", self._stall_s)
        finally:
            self._on_end()

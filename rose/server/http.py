"""What the routes need of HTTP beyond the framework: noticing that a client hung up."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TypeVar

from fastapi import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rose.server.errors import ClientGoneError

T = TypeVar("T")


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
    """A stream of server-sent events; it ends when the client leaves.

    Args:
        events: each item is one or more whole events.
        on_end: called once it is over, however that comes: even if it never began.
    """

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        super().__init__(
            events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream (ASGI)."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()

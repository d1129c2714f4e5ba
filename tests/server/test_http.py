"""Streams whose clients do not read, over real connections."""

import asyncio
import socket
from collections.abc import AsyncIterator

import uvicorn
from fastapi import FastAPI, Response

from rose.server.http import EventStream
from tests.engine_processes import PATIENCE_S


async def test_a_client_that_takes_nothing_is_dropped():
    ended = asyncio.Event()
    sent = 0

    async def events() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"data: %b\n\n" % (b"x" * 10_000)

    app = FastAPI()

    @app.get("/")
    async def endless() -> Response:
        return EventStream(events(), ended.set, stall_s=0.3)

    config = uvicorn.Config(app, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        _, writer = await asyncio.open_connection(*sock.getsockname(), limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        dropped_at = sent
        await asyncio.sleep(0.1)
        assert sent == dropped_at  # nothing is made for nobody
        writer.close()
        server.should_exit = True
        await serving

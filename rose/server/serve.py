"""Run a front end, with engine processes of its own or before ones that run already."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

import uvicorn

from rose.protocol import EngineDeadError
from rose.server.app import FrontEnd, create_app
from rose.server.children import Children
from rose.server.engine_client import EngineClient
from rose.server.listening import Server, bind, make_server, url_of
from rose.server.request_log import to_stderr
from rose.server.router import Router
from rose.server.serve_options import ServeOptions
from rose.server.siblings import EngineGone, Job, read_word

__all__ = ["ServeOptions", "attach", "serve", "serve_as_sibling"]

Announce = Callable[[str], None]

RETRY_S = 0.2
"""How often a further front end looks whether a dead engine is back."""


def serve(
    sock: socket.socket,
    engine_command: Callable[[str], Sequence[str]],
    options: ServeOptions | None = None,
    *,
    announce: Announce | None = None,
) -> None:
    """Start engine processes and serve HTTP until ^C or SIGTERM.

    While the engine loads, /health answers 503 "starting". If it dies later, what is in flight
    fails and it is started again (see ServeOptions.restart). The first signal drains: no new
    connections, requests in flight finish or are aborted after `drain_s`, the engine leaves. A
    second one quits at once. What lies at the engine's socket is removed, unless this process is
    killed.

    Args:
        sock: from `bind_for`; closed at the end.
        engine_command: the command line of an engine process that listens at the given ZeroMQ
            endpoint (`rose.engine.loop.run_engine_process`) and watches this process.
        options: see ServeOptions.
        announce: shows a line to people; None: on standard error.

    Raises:
        EngineDeadError: the engine failed to start, or kept dying.
        TokenizerError: the model's tokenizer.json is unusable.
        OSError: the engine's command cannot be run.
    """
    options = options or ServeOptions()
    with tempfile.TemporaryDirectory(prefix="rose-") as folder:
        endpoints = tuple(f"ipc://{folder}/engine{i}" for i in range(options.num_engines))
        host, port = sock.getsockname()[:2]
        job = Job(host, port, endpoints, own_engines=True, options=options)
        commands = [engine_command(endpoint) for endpoint in endpoints]

        def clean_up() -> None:
            shutil.rmtree(folder, ignore_errors=True)

        with contextlib.closing(sock):
            _run(_serve(sock, job, commands, announce or to_stderr, clean_up))


def attach(
    sock: socket.socket,
    endpoints: Sequence[str],
    options: ServeOptions | None = None,
    *,
    announce: Announce | None = None,
) -> None:
    """Serve HTTP before engines that others start and stop, until ^C or SIGTERM.

    It is as `serve`, but engines may come late, go and come again, and are left running at the
    end.

    Args:
        sock: from `bind_for`; closed at the end.
        endpoints: ZeroMQ addresses at which engines of the same model listen, now or later.
        options: see ServeOptions.
        announce: shows a line to people; None: on standard error.

    Raises:
        EngineDeadError: every engine says that it failed to start.
        TokenizerError: the model's tokenizer.json is unusable.
        OSError: an endpoint is no address.
    """
    host, port = sock.getsockname()[:2]
    options = options or ServeOptions()
    job = Job(host, port, tuple(endpoints), own_engines=False, options=options)
    with contextlib.closing(sock):
        _run(_serve(sock, job, [], announce or to_stderr, lambda: None))


def serve_as_sibling(job: Job, descriptor: int) -> None:
    """Be a further front end, until SIGTERM or until the first one is gone.

    It listens once the engine is ready: until then the first one answers that it is not.

    Args:
        job: from the first one.
        descriptor: where it sends what else it has to say; see `read_word`.
    """
    _run(_serve_sibling(job, descriptor))


def _run(serving: Coroutine[None, None, None]) -> None:
    factory = uvicorn.Config(app="unused").get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serving)


@contextlib.asynccontextmanager
async def _connected(job: Job) -> AsyncIterator[Router]:
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for endpoint in job.endpoints:
            client = EngineClient(
                endpoint, dead_after_s=job.options.dead_after_s, own_engine=job.own_engines
            )
            clients.append(await stack.enter_async_context(client))
        yield Router(clients)


def _make_front_end(job: Job, router: Router) -> tuple[FrontEnd, Server]:
    options = job.options
    front_end = FrontEnd(router, options.tokenizer_folder, options.chat_format, options.policy)
    app = create_app(front_end)
    server = make_server(
        app, options.tls, keep_alive_s=options.keep_alive_s, drain_s=options.drain_s
    )
    return front_end, server


async def _serve(
    sock: socket.socket,
    job: Job,
    commands: Sequence[Sequence[str]],
    announce: Announce,
    clean_up: Callable[[], None],
) -> None:
    async with _connected(job) as router, Children(router, job.options) as children:
        front_end, server = _make_front_end(job, router)

        def drain() -> None:
            _drain(server, router, job.options.drain_s)
            children.drain()
            announce(_farewell(router.num_in_flight, job.options))

        def quit_now() -> None:
            children.kill()
            clean_up()

        with _signals(drain, quit_now):
            children.start(commands, job)
            await _until_shutdown(
                server, sock, [_start(front_end, sock, job.options, announce), *children.watches()]
            )


async def _until_shutdown(
    server: Server, sock: socket.socket, works: Sequence[Coroutine[None, None, None]]
) -> None:
    """Serve, and work meanwhile; the first failure of a work ends the server, and is raised."""
    failures: list[BaseException] = []

    async def attempt(work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:
            failures.append(error)
            server.should_exit = True

    tasks = [asyncio.create_task(attempt(work)) for work in works]
    await server.serve(sockets=[sock])
    for task in tasks:
        task.cancel()  # ^C while the engine loads
    await asyncio.gather(*tasks, return_exceptions=True)
    if failures:
        raise failures[0]


async def _start(
    front_end: FrontEnd, sock: socket.socket, options: ServeOptions, announce: Announce
) -> None:
    """Wait for the engine and say so."""
    url = url_of(sock, options.tls)
    announce(f"Listening on {url}; {front_end.client.reason}")
    info = await front_end.client.wait_ready()
    await front_end.codec()
    several = ""
    if len(front_end.client.engines) > 1:
        several += f"; {len(front_end.client.engines)} engines"
    if options.num_front_ends > 1:
        several += f"; {options.num_front_ends} front ends"
    announce(f"Serving {info.model} on {url}/v1 ({info.description}{several})")


async def _serve_sibling(job: Job, descriptor: int) -> None:
    async with _connected(job) as router:
        front_end, server = _make_front_end(job, router)
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(_until_ready(front_end))

        def drain() -> None:
            waiting.cancel()
            _drain(server, router, job.options.drain_s)

        def listen_to_first() -> None:
            while isinstance(word := read_word(descriptor), EngineGone):
                engine = router.engines[word.number]
                loop.call_soon_threadsafe(engine.engine_exited, word.reason)
            os.kill(os.getpid(), signal.SIGTERM)  # the first front end is gone

        with _signals(drain, lambda: None), contextlib.suppress(asyncio.CancelledError):
            threading.Thread(target=listen_to_first, name="first-front-end", daemon=True).start()
            await waiting
            with bind(job.host, job.port, shared=True) as sock:
                await server.serve(sockets=[sock])


async def _until_ready(front_end: FrontEnd) -> None:
    while True:
        try:
            await front_end.client.wait_ready()
        except EngineDeadError:
            await asyncio.sleep(RETRY_S)  # it is the first front end's to give it up
        else:
            await front_end.codec()
            return


def _farewell(num_in_flight: int, options: ServeOptions) -> str:
    if options.num_front_ends > 1:
        requests = "requests"
    elif num_in_flight:
        requests = "1 request" if num_in_flight == 1 else f"{num_in_flight} requests"
    else:
        return "Shutting down; ^C again to quit now"
    return f"Draining {requests} for at most {options.drain_s:g} s; ^C again to quit now"


def _drain(server: Server, router: Router, drain_s: float) -> None:
    server.should_exit = True
    reason = "the server is shutting down"
    asyncio.get_running_loop().call_later(drain_s, router.fail_all, reason)


@contextlib.contextmanager
def _signals(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Call `first` on the first SIGINT or SIGTERM; on the next, call `second` and exit at once."""
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def handle(number: int) -> None:
        seen.append(number)
        if len(seen) == 1:
            first()
            return
        second()
        os._exit(128 + number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)

"""Run a front end, with an engine process of its own or before one that runs already."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from rose.server.app import FrontEnd, create_app
from rose.server.engine_client import EngineClient, EngineState
from rose.server.policy import Policy
from rose.server.tls import Tls

log = logging.getLogger("rose.server")

LAST_WORDS_S = 0.5
"""How long to wait for an exited engine's own account of why."""


@dataclass(frozen=True, slots=True)
class _OwnEngine:
    """The engine that a front end starts and ends.

    Attributes:
        command: its command line.
        folder: made for its socket alone.
    """

    command: Sequence[str]
    folder: str


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve.

    Attributes:
        tokenizer_folder: holds tokenizer.json; None: the folder of the engine's checkpoint.
        drain_s: seconds that requests in flight get to finish on ^C or SIGTERM.
        engine_exit_s: seconds that the engine process gets to leave before it is killed.
        dead_after_s: seconds of silence after which the engine counts as dead.
        chat_format: name of the model's chat format; None: found from its files.
        policy: about clients.
        tls: serve HTTPS; None: HTTP.
        keep_alive_s: seconds that a connection without a request stays open.
    """

    tokenizer_folder: Path | None = None
    drain_s: float = 30.0
    engine_exit_s: float = 10.0
    dead_after_s: float = 10.0
    chat_format: str | None = None
    policy: Policy = field(default_factory=Policy)
    tls: Tls | None = None
    keep_alive_s: int = 5


def bind(host: str, port: int) -> socket.socket:
    """A listening socket for `serve`, bound before the engine is started.

    Raises:
        OSError: the port is in use, or the address is none of this machine's.
    """
    if not host:  # to the socket library it would mean every address of this machine
        raise OSError("the host is empty; name an address, or 0.0.0.0 for all of this machine's")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as error:
        sock.close()
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    except (UnicodeError, TypeError):  # what it says of names that no encoding takes
        sock.close()
        raise OSError(f"cannot listen on {host[:80]!r}: this is no host name") from None
    return sock


def serve(
    sock: socket.socket,
    engine_command: Callable[[str], Sequence[str]],
    options: ServeOptions | None = None,
    *,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Start an engine process and serve HTTP until ^C or SIGTERM.

    While the engine loads, /health answers 503 "starting". If it dies later, the front end stays
    and says so. The first signal drains: no new connections, requests in flight finish or are
    aborted after `drain_s`, the engine leaves. A second one quits at once. What lies at the
    engine's socket is removed, unless this process is killed.

    Args:
        sock: from `bind`; closed at the end.
        engine_command: the command line of an engine process that listens at the given ZeroMQ
            endpoint (`rose.engine.loop.run_engine_process`) and watches this process.
        options: see ServeOptions.
        announce: shows a line to people; None: on standard error.

    Raises:
        EngineDeadError: the engine failed to start.
        TokenizerError: the model's tokenizer.json is unusable.
        OSError: the engine's command cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="rose-") as folder:
        endpoint = f"ipc://{folder}/engine"
        engine = _OwnEngine(engine_command(endpoint), folder)
        _run(sock, endpoint, engine, options, announce)


def attach(
    sock: socket.socket,
    endpoint: str,
    options: ServeOptions | None = None,
    *,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve HTTP before an engine that others start and stop, until ^C or SIGTERM.

    It is as `serve`, but the engine may come late, go and come again, and is left running at the
    end.

    Args:
        sock: from `bind`; closed at the end.
        endpoint: ZeroMQ address at which the engine listens, now or later.
        options: see ServeOptions.
        announce: shows a line to people; None: on standard error.

    Raises:
        EngineDeadError: the engine says that it failed to start.
        TokenizerError: the model's tokenizer.json is unusable.
        OSError: the endpoint is no address.
    """
    _run(sock, endpoint, None, options, announce)


def _run(
    sock: socket.socket,
    endpoint: str,
    engine: _OwnEngine | None,
    options: ServeOptions | None,
    announce: Callable[[str], None] | None,
) -> None:
    factory = uvicorn.Config(app="unused").get_loop_factory()
    with contextlib.closing(sock), asyncio.Runner(loop_factory=factory) as runner:
        runner.run(
            _serve(sock, endpoint, engine, options or ServeOptions(), announce or _to_stderr)
        )


def _to_stderr(line: str) -> None:
    if sys.stderr is None:  # the process was started without one
        return
    with contextlib.suppress(OSError):  # whoever read it may have left; serving goes on
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


async def _serve(
    sock: socket.socket,
    endpoint: str,
    engine: _OwnEngine | None,
    options: ServeOptions,
    announce: Callable[[str], None],
) -> None:
    async with EngineClient(
        endpoint, dead_after_s=options.dead_after_s, own_engine=engine is not None
    ) as client:
        front_end = FrontEnd(client, options.tokenizer_folder, options.chat_format, options.policy)
        server = _make_server(front_end, options)
        process = None if engine is None else _start_engine(engine.command)

        def drain() -> None:
            _drain(server, client, options.drain_s)
            announce(_farewell(client.num_in_flight, options.drain_s))

        def quit_now() -> None:
            if engine is not None and process is not None:
                _remove(process, engine.folder)

        with _signals(drain, quit_now):
            async with _supervised(process, client, options.engine_exit_s):
                starting = asyncio.create_task(_start(front_end, sock, server, announce))
                await server.serve(sockets=[sock])
                if not starting.done():
                    starting.cancel()  # ^C while the engine loads
                with contextlib.suppress(asyncio.CancelledError):
                    await starting


def _start_engine(command: Sequence[str]) -> subprocess.Popen[bytes]:
    # A process group of its own: a terminal's ^C is this process's business alone.
    return subprocess.Popen(list(command), stdin=subprocess.DEVNULL, process_group=0)


async def _start(
    front_end: FrontEnd,
    sock: socket.socket,
    server: uvicorn.Server,
    announce: Callable[[str], None],
) -> None:
    """Wait for the engine and say so; if it fails, end the server."""
    host, port = sock.getsockname()[:2]
    scheme = "https" if server.config.is_ssl else "http"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    announce(f"Listening on {url}; {front_end.client.reason}")
    try:
        info = await front_end.client.wait_ready()
        await front_end.codec()
    except Exception:
        server.should_exit = True
        raise
    announce(f"Serving {info.model} on {url}/v1 ({info.description})")


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: `serve` has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def _make_server(front_end: FrontEnd, options: ServeOptions) -> _Server:
    config = uvicorn.Config(
        create_app(front_end),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=options.keep_alive_s,
        ssl_certfile=options.tls.certificate if options.tls else None,
        ssl_keyfile=options.tls.key if options.tls else None,
        # Requests end by themselves at drain_s; this is for clients that do not read.
        timeout_graceful_shutdown=int(options.drain_s) + 3,
    )
    return _Server(config)


def _farewell(num_in_flight: int, drain_s: float) -> str:
    if not num_in_flight:
        return "Shutting down; ^C again to quit now"
    requests = "1 request" if num_in_flight == 1 else f"{num_in_flight} requests"
    return f"Draining {requests} for at most {drain_s:g} s; ^C again to quit now"


def _remove(process: subprocess.Popen[bytes], folder: str) -> None:
    """Kill an engine, and remove its socket's folder."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)  # lest it makes the socket meanwhile
    shutil.rmtree(folder, ignore_errors=True)


def _drain(server: uvicorn.Server, client: EngineClient, drain_s: float) -> None:
    server.should_exit = True
    reason = "the server is shutting down"
    asyncio.get_running_loop().call_later(drain_s, client.fail_all, reason)


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


@contextlib.asynccontextmanager
async def _supervised(
    process: subprocess.Popen[bytes] | None, client: EngineClient, exit_s: float
) -> AsyncIterator[None]:
    """Tell the client if its own engine process exits, and make that leave at the end."""
    if process is None:
        yield
        return
    watching = asyncio.create_task(_watch(process, client))
    try:
        yield
    finally:
        watching.cancel()
        if client.state is EngineState.READY:
            client.shutdown_engine()
        elif process.poll() is None:
            process.terminate()  # it loads, or hangs
        try:
            await asyncio.to_thread(process.wait, exit_s)
        except subprocess.TimeoutExpired:
            log.warning("the engine process did not leave within %g s: killed", exit_s)
            process.kill()


async def _watch(process: subprocess.Popen[bytes], client: EngineClient) -> None:
    status = await asyncio.to_thread(process.wait)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.wait_dead(), LAST_WORDS_S)
    client.engine_exited(_how_it_ended(status))


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"the engine process exited with status {status}"
    return f"the engine process was killed by {signal.Signals(-status).name}"

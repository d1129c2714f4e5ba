"""The socket that a front end listens on, and the uvicorn server behind it."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from rose.server.tls import Tls


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket for `serve`, bound before the engine is started.

    Args:
        host: name or address.
        port: 0 takes a free one.
        shared: let other front ends of this user listen there too, if they say so as well; the
            kernel spreads connections over them (SO_REUSEPORT).

    Raises:
        OSError: the port is in use, or the address is none of this machine's.
    """
    if not host:  # to the socket library it would mean every address of this machine
        raise OSError("the host is empty; name an address, or 0.0.0.0 for all of this machine's")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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


def bind_for(num_front_ends: int, host: str, port: int) -> socket.socket:
    """The listening socket of the first of so many front-end processes.

    Raises:
        OSError: the port is in use, or the address is none of this machine's.
    """
    if num_front_ends == 1:
        return bind(host, port)
    with bind(host, port) as probe:  # a shared one would join whoever shares the port already
        free_port = int(probe.getsockname()[1])
    return bind(host, free_port, shared=True)


def url_of(sock: socket.socket, tls: Tls | None) -> str:
    """The address that clients use."""
    host, port = sock.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


UNREAD_S = 10.0
"""What clients get, once their requests have ended, to read the rest of their answers."""


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: `serve` has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def make_server(app: FastAPI, tls: Tls | None, *, keep_alive_s: int, drain_s: float) -> Server:
    """A server of this application.

    Args:
        app: what it serves.
        tls: serve HTTPS; None: HTTP.
        keep_alive_s: seconds that a connection without a request stays open.
        drain_s: seconds in which requests in flight end by themselves once it shuts down.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=keep_alive_s,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
        # Requests end by themselves at drain_s; this is for clients that do not read.
        timeout_graceful_shutdown=int(drain_s + UNREAD_S),
    )
    return Server(config)

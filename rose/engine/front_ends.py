"""The engine process's side of the wire: one socket to all front ends, served by its own thread.

The engine thread may spend seconds in one step; this thread answers and sends heartbeats all the
while. The two share an inbox of commands (towards the engine) and an outbox of messages.
"""

import contextlib
import logging
import os
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import zmq

from rose import wire
from rose.protocol import (
    Abort,
    EngineFailed,
    EngineInfo,
    EngineStats,
    Heartbeat,
    Hello,
    Request,
    Shutdown,
)

log = logging.getLogger("rose.engine")

HARD_EXIT_S = 10.0
"""How long an orphaned engine may take to leave by itself, a hung step included."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals in seconds.

    Attributes:
        heartbeat_s: between heartbeats to each front end.
        front_end_timeout_s: a front end silent for so long is gone. Front ends say Hello at least
            every second.
        farewell_s: how long a failed engine waits for a first front end to tell it why.
    """

    heartbeat_s: float = 0.5
    front_end_timeout_s: float = 10.0
    farewell_s: float = 2.0


@dataclass(slots=True)
class Submit:
    """A front end wants a request served."""

    front_end: bytes
    request: Request


@dataclass(slots=True)
class Cancel:
    """A front end wants a request aborted, or one of its sequences."""

    front_end: bytes
    request_id: str
    index: int | None


@dataclass(slots=True)
class Vanished:
    """A front end is gone, and nobody wants its requests any more."""

    front_end: bytes


@dataclass(slots=True)
class Leave:
    """The engine process is to end; `error` is set if the I/O thread failed."""

    reason: str
    error: Exception | None = None


Command = Submit | Cancel | Vanished | Leave


@dataclass(slots=True)
class _Peer:
    last_heard: float
    session: str


@dataclass(frozen=True, slots=True)
class _SocketFile:
    """The file of an ipc:// socket, which ZeroMQ leaves behind.

    Attributes:
        path: where it lies.
        identity: device and inode. Another engine may bind the same path, and then the file there
            is that engine's.
    """

    path: Path
    identity: tuple[int, int]

    @classmethod
    def of(cls, endpoint: str) -> "_SocketFile | None":
        """That of a bound endpoint; None if it has no file: tcp, or Linux's abstract names."""
        scheme, _, name = endpoint.partition("://")
        if scheme != "ipc" or name.startswith("@"):
            return None
        found = os.stat(name)
        return cls(Path(name), (found.st_dev, found.st_ino))

    def remove(self) -> None:
        """Remove it, if it is there and still the same."""
        with contextlib.suppress(OSError):
            found = self.path.stat()
            if (found.st_dev, found.st_ino) == self.identity:
                self.path.unlink()


class FrontEnds:
    """All front ends of one engine process.

    Args:
        endpoint: ZeroMQ address to bind, `ipc://...` or `tcp://...`.
        timing: intervals.
        parent_pid: the process whose death ends this one; None: live on without it.

    Attributes:
        inbox: commands for the engine thread.

    Raises:
        OSError: the endpoint cannot be bound.
    """

    def __init__(
        self, endpoint: str, *, timing: Timing | None = None, parent_pid: int | None = None
    ) -> None:
        self.inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._timing = timing or Timing()
        self._parent_pid = parent_pid
        self._orphaned_at: float | None = None
        self._outbox: deque[tuple[bytes | None, wire.Message]] = deque()
        self._peers: dict[bytes, _Peer] = {}
        self._answer: EngineInfo | EngineFailed | None = None
        self._stats = EngineStats()
        self._closing_at: float | None = None
        self._context = zmq.Context()
        self._socket = _bind(self._context, endpoint)
        self._socket_file = _SocketFile.of(self._socket.get_string(zmq.LAST_ENDPOINT))
        self._wake_in, self._wake_out = _pair(self._context)
        self._thread = threading.Thread(target=self._run, name="front-ends", daemon=True)
        self._thread.start()

    # Called by the engine thread.

    def post(self, messages: Sequence[tuple[bytes | None, wire.Message]]) -> None:
        """Send messages, each to the front end of that identity (None: to all)."""
        self._outbox.extend(messages)
        self._wake()

    def announce(self, answer: EngineInfo | EngineFailed) -> None:
        """Tell all front ends, and those that come later, that the engine is ready or failed."""
        self.post([(None, answer)])

    def publish(self, stats: EngineStats) -> None:
        """Set what the next heartbeats carry."""
        self._stats = stats

    def close(self) -> None:
        """Send what is left to send, end the thread, close the socket and remove its file."""
        self._closing_at = time.monotonic()
        self._wake()
        self._thread.join()
        self._wake_in.close()
        self._context.term()
        if self._socket_file is not None:
            self._socket_file.remove()

    def _wake(self) -> None:
        # Without a receiver (the I/O thread failed) a blocking send would never return.
        with contextlib.suppress(zmq.Again):
            self._wake_in.send(b"", zmq.NOBLOCK)

    # The I/O thread.

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            log.exception("the engine's I/O thread failed")
            self.inbox.put(Leave(f"the engine's I/O thread failed: {error}", error))
        finally:
            self._socket.close(linger=1000)
            self._wake_out.close()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake_out, zmq.POLLIN)
        next_beat = time.monotonic()
        while not self._finished():
            wait_s = max(0.0, next_beat - time.monotonic())
            ready = dict(poller.poll(int(wait_s * 1000) + 1))
            if self._wake_out in ready:
                _drain(self._wake_out)
            if self._socket in ready:
                self._receive_all()
            while self._outbox:
                self._deliver(*self._outbox.popleft())
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + self._timing.heartbeat_s
                self._beat()

    def _finished(self) -> bool:
        if self._closing_at is None or self._outbox:
            return False
        untold = isinstance(self._answer, EngineFailed) and not self._peers
        return not untold or time.monotonic() > self._closing_at + self._timing.farewell_s

    def _receive_all(self) -> None:
        while True:
            try:
                identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = wire.decode(frames)
            except wire.WireError as error:
                log.warning("refused a message from a front end: %s", error)
                refusal = wire.encode(EngineFailed(str(error)))
                with contextlib.suppress(zmq.ZMQError):  # it may be gone again
                    self._socket.send_multipart([identity, *refusal], zmq.NOBLOCK)
                continue
            self._handle(identity, message)

    def _handle(self, identity: bytes, message: wire.Message) -> None:
        peer = self._peers.get(identity)
        if peer is None:
            peer = self._peers[identity] = _Peer(0.0, uuid.uuid4().hex)
        peer.last_heard = time.monotonic()
        if isinstance(message, Request):
            self.inbox.put(Submit(identity, message))
        elif isinstance(message, Abort):
            self.inbox.put(Cancel(identity, message.request_id, message.index))
        elif isinstance(message, Hello):
            if self._answer is not None:
                self._send(identity, self._answer)
        elif isinstance(message, Shutdown):
            self.inbox.put(Leave("a front end asked for it"))
        else:
            log.warning("ignored a %s from a front end", type(message).__name__)

    def _deliver(self, identity: bytes | None, message: wire.Message) -> None:
        if isinstance(message, EngineInfo | EngineFailed):
            self._answer = message
        for target in list(self._peers) if identity is None else [identity]:
            self._send(target, message)

    def _send(self, identity: bytes, message: wire.Message) -> None:
        peer = self._peers.get(identity)
        if peer is None:
            return  # it vanished, and the engine thread is about to learn that
        if isinstance(message, EngineInfo):
            message = replace(message, session=peer.session)
        try:
            self._socket.send_multipart([identity, *wire.encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self._forget(identity, "its connection closed")

    def _forget(self, identity: bytes, why: str) -> None:
        log.info("front end %s is gone: %s", identity.hex(), why)
        del self._peers[identity]
        self.inbox.put(Vanished(identity))

    def _beat(self) -> None:
        now = time.monotonic()
        for identity, peer in list(self._peers.items()):
            if now - peer.last_heard > self._timing.front_end_timeout_s:
                self._forget(identity, f"silent for {now - peer.last_heard:.1f} s")
        self._deliver(None, Heartbeat(self._stats))
        self._watch_parent(now)

    def _watch_parent(self, now: float) -> None:
        if self._parent_pid is None or os.getppid() == self._parent_pid:
            return
        if self._orphaned_at is None:
            self._orphaned_at = now
            self.inbox.put(Leave("the process that started the engine died"))
        elif now - self._orphaned_at > HARD_EXIT_S:
            os._exit(1)  # a step hangs, and nobody is left to kill this process


def _bind(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    if not endpoint.startswith(("ipc://", "tcp://")):  # what else there is reaches no front end
        context.term()
        raise OSError(f"cannot listen on {endpoint!r}: give ipc://PATH or tcp://HOST:PORT")
    socket = context.socket(zmq.ROUTER)
    # A router drops what exceeds the high-water mark; no output may be lost.
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.RCVHWM, 0)
    # Sending to a front end whose connection closed is an error, so its end shows at once.
    socket.set(zmq.ROUTER_MANDATORY, 1)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        socket.close()
        context.term()
        raise OSError(f"cannot listen on {endpoint}: {error.strerror}") from None
    return socket


def _pair(
    context: zmq.Context[zmq.Socket[bytes]],
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """Two connected sockets, by which one thread wakes another that polls."""
    sender, receiver = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    for socket in (sender, receiver):
        socket.set(zmq.SNDHWM, 0)
        socket.set(zmq.RCVHWM, 0)
    receiver.bind("inproc://wake")
    sender.connect("inproc://wake")
    return sender, receiver


def _drain(socket: zmq.Socket[bytes]) -> None:
    while True:
        try:
            socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return

"""The front end's side of the wire: requests to one engine process, and its outputs.

A dead engine is noticed by what it says (EngineFailed), by its supervisor (`engine_exited`), or by
its silence. Then everything in flight fails at once, and new requests are refused until an engine
answers at the endpoint again.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from enum import StrEnum
from types import TracebackType
from typing import Self

import zmq
import zmq.asyncio

from rose import wire
from rose.protocol import (
    Abort,
    EngineDeadError,
    EngineFailed,
    EngineInfo,
    EngineStats,
    Heartbeat,
    Hello,
    InvalidRequestError,
    OutputBatch,
    Rejected,
    Request,
    RequestOutput,
    Shutdown,
)

log = logging.getLogger("rose.server")


LOADING = "the engine is loading"


class EngineState(StrEnum):
    """What the front end knows of its engine."""

    STARTING = "starting"  # no engine has said that it is ready
    READY = "ready"
    DEAD = "dead"


SEQUENCE_LOAD = 512
"""Tokens of prompt that weigh as much as one sequence, when engines are compared."""


class EngineClient:
    """A connection to one engine process; use as an async context manager.

    Raises (on entry):
        OSError: the endpoint is no address that ZeroMQ knows.

    Args:
        endpoint: ZeroMQ address at which the engine listens, now or later.
        hello_interval_s: seconds between the Hellos by which the engine knows that this front end
            lives; the answers bring an engine that was restarted.
        dead_after_s: an engine silent for so long is dead. A starting one may be silent.
        own_engine: whether an engine is known to be loading; else it may not even be there.

    Attributes:
        state: see EngineState.
        reason: why the engine is not ready; empty if it is.
        info: of the engine that was ready last; None before the first.
        stats: of the last heartbeat.
        heard_at: time.monotonic() of the last message.
        ready_since: time.monotonic() when it last became ready; 0.0 before.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        hello_interval_s: float = 1.0,
        dead_after_s: float = 10.0,
        own_engine: bool = True,
    ) -> None:
        self.endpoint = endpoint
        self.state = EngineState.STARTING
        self.reason = LOADING if own_engine else f"waiting for the engine at {endpoint}"
        self.info: EngineInfo | None = None
        self.stats = EngineStats()
        self.heard_at = time.monotonic()
        self.ready_since = 0.0
        self._own_engine = own_engine
        self._hello_interval_s = hello_interval_s
        self._dead_after_s = dead_after_s
        self._generations: dict[str, Generation] = {}
        self._loads: dict[str, int] = {}
        self._own_load = 0
        self._others_load = 0
        self._own_sequences = 0
        self._changed = asyncio.Condition()
        self._context: zmq.asyncio.Context = zmq.asyncio.Context()
        self._socket: zmq.asyncio.Socket = self._context.socket(zmq.DEALER)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        # No identity: after a broken connection this is a new front end to the engine, with a new
        # session, so that what was lost on the way shows.
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.RECONNECT_IVL, 50)
        self._socket.set(zmq.RECONNECT_IVL_MAX, 1000)
        try:
            self._socket.connect(self.endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise OSError(f"cannot connect to {self.endpoint}: {error.strerror}") from None
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._tend())]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.fail_all("the front end is shutting down")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close(linger=500)
        self._context.term()

    @property
    def num_in_flight(self) -> int:
        """Calls of `generate` that have not ended."""
        return len(set(self._generations.values()))

    @property
    def engines(self) -> "tuple[EngineClient, ...]":
        """This one."""
        return (self,)

    @property
    def load(self) -> int:
        """The work in flight at the engine, in tokens; see SEQUENCE_LOAD.

        That of this front end is exact, that of others as of the last heartbeat.
        """
        return self._own_load + self._others_load

    async def wait_ready(self) -> EngineInfo:
        """Wait until the engine can take requests.

        Raises:
            EngineDeadError: it died instead; the message says why.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self.state is not EngineState.STARTING)
        if self.state is EngineState.DEAD or self.info is None:
            raise EngineDeadError(self.reason)
        return self.info

    async def wait_dead(self) -> None:
        """Wait until the engine is known to be dead."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.state is EngineState.DEAD)

    def generate(self, requests: Sequence[Request]) -> "Generation":
        """Submit requests together. Close what is returned: use it as a context manager.

        Raises:
            InvalidRequestError: a number in a request is too large to be sent.
            EngineDeadError: the engine is not ready.
        """
        if self.state is not EngineState.READY:
            raise EngineDeadError(self.reason)
        generation = Generation(self, requests)
        for request in requests:
            self._generations[request.request_id] = generation
            load = len(request.prompt_token_ids) + request.sampling.n * SEQUENCE_LOAD
            self._loads[request.request_id] = load
            self._own_load += load
        try:
            for request in requests:
                self._send(request)
        except wire.WireError as error:
            generation.close()
            raise InvalidRequestError(str(error)) from None
        return generation

    def engine_exited(self, reason: str) -> None:
        """The supervisor's word that the engine's process ended."""
        if self.state is not EngineState.DEAD:
            self._die(reason)

    def engine_starting(self, reason: str) -> None:
        """The supervisor's word that a new engine process loads; `reason` says after what."""
        self.state, self.reason = EngineState.STARTING, reason

    def will_restart(self, reason: str) -> None:
        """The supervisor's word on what becomes of a dead engine, for whoever asks meanwhile."""
        self.reason = reason

    def fail_all(self, reason: str) -> None:
        """Abort everything in flight; whoever waits for it gets an EngineDeadError."""
        for generation in set(self._generations.values()):
            generation.close()
            generation.fail(EngineDeadError(reason))

    def shutdown_engine(self) -> None:
        """Ask the engine process to leave."""
        self._send(Shutdown())

    def release(self, request_id: str) -> None:
        """Forget a request; what still comes of it is dropped (for Generation)."""
        self._generations.pop(request_id, None)
        self._own_load -= self._loads.pop(request_id, 0)

    def abort(self, request_id: str, index: int | None = None) -> None:
        """Tell the engine to end a request, or one sequence of it (for Generation)."""
        self._send(Abort(request_id, index))

    def _send(self, message: wire.Message) -> None:
        # Without a high-water mark this never waits. What is sent while there is no connection
        # reaches the next engine: Hellos, and requests each with its abort behind it.
        self._socket.send_multipart(wire.encode(message), zmq.NOBLOCK)

    async def _listen(self) -> None:
        while True:
            frames: list[bytes] = await self._socket.recv_multipart()
            self.heard_at = time.monotonic()
            try:
                message = wire.decode(frames)
            except wire.WireError as error:
                log.error("from the engine: %s", error)
                self._die(str(error))
                continue
            if isinstance(message, OutputBatch):
                for output in message.outputs:
                    generation = self._generations.get(output.request_id)
                    if generation is not None:  # else it was aborted
                        generation.deliver(output)
            else:
                await self._handle(message)

    async def _handle(self, message: wire.Message) -> None:
        if isinstance(message, Heartbeat):
            self._take_stats(message.stats)
        elif isinstance(message, EngineInfo):
            await self._welcome(message)
        elif isinstance(message, Rejected):
            generation = self._generations.get(message.request_id)
            if generation is not None:
                generation.forget(message.request_id)
                generation.fail(InvalidRequestError(message.message, message.param))
        elif isinstance(message, EngineFailed):
            self._die(message.message)

    def _take_stats(self, stats: EngineStats) -> None:
        self.stats = stats
        own = sum(generation.num_open for generation in set(self._generations.values()))
        # The engine may still count what ended since the last heartbeat.
        others = stats.running + stats.waiting - max(own, self._own_sequences)
        self._own_sequences = own
        self._others_load = max(0, others) * SEQUENCE_LOAD
        if self.state is EngineState.STARTING and not self._own_engine:
            self.reason = LOADING

    async def _welcome(self, info: EngineInfo) -> None:
        if self.info is not None and info.session != self.info.session:
            self.fail_all("the engine was restarted, or lost its connection to this front end")
        self.info = info
        if self.state is not EngineState.READY:
            self.state, self.reason = EngineState.READY, ""
            self.ready_since = time.monotonic()
            await self._notify()

    def _die(self, reason: str) -> None:
        if self.state is EngineState.READY:  # else `wait_ready` tells
            log.error("%s", reason)
        self.state, self.reason = EngineState.DEAD, reason
        self._take_stats(EngineStats())
        self.fail_all(reason)
        self._tasks.append(asyncio.create_task(self._notify()))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _tend(self) -> None:
        """Say Hello steadily, and watch for the engine's silence."""
        while True:
            self._send(Hello())
            before = time.monotonic()
            silent = before - self.heard_at > self._dead_after_s
            interval_s = self._hello_interval_s * (10 if silent else 1)  # they may queue up
            await asyncio.sleep(interval_s)
            now = time.monotonic()
            late_s = now - before - interval_s
            if late_s > self._dead_after_s / 4:
                self.heard_at = now  # this process slept; the engine's messages wait unread
            silent_s = now - self.heard_at
            if self.state is EngineState.READY and silent_s > self._dead_after_s:
                self._die(f"no heartbeat from the engine for {silent_s:.0f} s")


class Generation:
    """Requests that were submitted together, and their outputs as they come.

    Iterate to get lists of outputs: all that came since the last, in order. Closing it aborts
    what is unfinished.

    Raises (from the iteration):
        InvalidRequestError: the engine refused one of the requests.
        EngineDeadError: the engine died.
    """

    def __init__(self, client: EngineClient, requests: Sequence[Request]) -> None:
        self._client = client
        # The sequences that have not ended, by request.
        self._open = {r.request_id: set(range(r.sampling.n)) for r in requests}
        self._pending: list[RequestOutput] = []
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[RequestOutput]:
        while True:
            if self._pending:
                outputs, self._pending = self._pending, []
                return outputs
            if self._error is not None:
                raise self._error
            if not self._open:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    @property
    def num_open(self) -> int:
        """Sequences that have not ended."""
        return sum(map(len, self._open.values()))

    def finish(self, request_id: str, index: int) -> None:
        """This sequence's outputs suffice: abort it if the engine still runs it."""
        if index in self._open.get(request_id, ()):
            self._end(request_id, index)
            self._client.abort(request_id, index)

    def close(self) -> None:
        """Abort all that is unfinished. Closing again does nothing."""
        for request_id in list(self._open):
            self.forget(request_id)
            self._client.abort(request_id)

    def forget(self, request_id: str) -> None:
        """Expect nothing more of a request."""
        self._open.pop(request_id, None)
        self._client.release(request_id)

    def deliver(self, output: RequestOutput) -> None:
        """Take one output (for EngineClient)."""
        if output.index not in self._open.get(output.request_id, ()):
            return  # of a sequence whose outputs sufficed
        self._pending.append(output)
        if output.finish_reason is not None:
            self._end(output.request_id, output.index)
        self._wake()

    def _end(self, request_id: str, index: int) -> None:
        self._open[request_id].discard(index)
        if not self._open[request_id]:
            self.forget(request_id)

    def fail(self, error: Exception) -> None:
        """End the iteration with an error, once what came before is consumed."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

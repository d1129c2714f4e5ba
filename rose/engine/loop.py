"""The engine process: an engine that front ends reach over a socket.

The main thread steps the engine and sleeps while there is nothing to do; the thread of
`rose.engine.front_ends` does the talking.
"""

import logging
import queue
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rose import wire
from rose.engine.front_ends import Cancel, Command, FrontEnds, Leave, Submit, Timing, Vanished
from rose.protocol import (
    EngineFailed,
    EngineInfo,
    EngineStats,
    InvalidRequestError,
    OutputBatch,
    Rejected,
    Request,
    RequestOutput,
    UserError,
)

log = logging.getLogger("rose.engine")

STATS_INTERVAL_S = 0.2


class SteppedEngine(Protocol):
    """What the loop needs of an engine; `rose.engine.engine.Engine` is one."""

    def add_request(self, request: Request) -> None:
        """Queue a request. Raises InvalidRequestError if it can never be served."""
        ...

    def abort(self, request_id: str, index: int | None = None) -> None:
        """End one sequence of a request, or all; the next step returns their last outputs."""
        ...

    def step(self) -> list[RequestOutput]:
        """Run one step, and return what it added."""
        ...

    def has_work(self) -> bool:
        """Whether a step would do anything."""
        ...

    def stats(self) -> EngineStats:
        """Counters and gauges now."""
        ...

    def info(self) -> EngineInfo:
        """What front ends need to know."""
        ...

    def shutdown(self) -> None:
        """Free what the engine holds."""
        ...


@dataclass(slots=True)
class _Route:
    """Where the outputs of a request go.

    Attributes:
        front_end: identity of its socket.
        request_id: as that front end calls the request.
        open_sequences: how many of its sequences have not finished.
    """

    front_end: bytes
    request_id: str
    open_sequences: int


class EngineLoop:
    """Takes commands, steps the engine and routes outputs, until told to leave.

    Front ends choose request ids without knowing of each other, so the engine sees ids of the
    loop's making.
    """

    def __init__(self, engine: SteppedEngine, front_ends: FrontEnds) -> None:
        self._engine = engine
        self._front_ends = front_ends
        self._routes: dict[str, _Route] = {}
        self._engine_ids: dict[tuple[bytes, str], str] = {}
        self._num_requests = 0
        self._stats_at = 0.0

    def run(self) -> None:
        """Serve until a Leave command. Raises what the engine raised."""
        while self._take_commands():
            if self._engine.has_work():
                self._send(self._engine.step())
            self._publish_stats()

    def _take_commands(self) -> bool:
        """Carry out all waiting commands, or the next one if idle; False: leave."""
        inbox = self._front_ends.inbox
        idle = not self._engine.has_work()
        if idle:
            self._front_ends.publish(self._engine.stats())
        try:
            command = inbox.get(block=idle)
            while self._carry_out(command):
                command = inbox.get_nowait()
        except queue.Empty:
            return True
        return False

    def _carry_out(self, command: Command) -> bool:
        if isinstance(command, Submit):
            self._submit(command.front_end, command.request)
        elif isinstance(command, Cancel):
            self._abort(command.front_end, command.request_id, command.index)
        elif isinstance(command, Vanished):
            for front_end, request_id in list(self._engine_ids):
                if front_end == command.front_end:
                    self._abort(front_end, request_id, None)
        else:
            log.info("leaving: %s", command.reason)
            if command.error is not None:
                raise command.error
            return False
        return True

    def _submit(self, front_end: bytes, request: Request) -> None:
        request_id = request.request_id
        if (front_end, request_id) in self._engine_ids:
            self._reject(front_end, request_id, "this request id is in flight already", "")
            return
        engine_id = f"{self._num_requests}:{request_id}"
        self._num_requests += 1
        request.request_id = engine_id
        try:
            self._engine.add_request(request)
        except InvalidRequestError as error:
            self._reject(front_end, request_id, error.message, error.param)
            return
        self._routes[engine_id] = _Route(front_end, request_id, request.sampling.n)
        self._engine_ids[front_end, request_id] = engine_id

    def _reject(self, front_end: bytes, request_id: str, message: str, param: str) -> None:
        self._front_ends.post([(front_end, Rejected(request_id, message, param))])

    def _abort(self, front_end: bytes, request_id: str, index: int | None) -> None:
        engine_id = self._engine_ids.get((front_end, request_id))
        if engine_id is None:
            return  # it finished while the abort was on its way
        if index is None:
            # Nobody waits for its last outputs. Of one sequence they are sent, and counted.
            del self._engine_ids[front_end, request_id], self._routes[engine_id]
        self._engine.abort(engine_id, index)

    def _send(self, outputs: list[RequestOutput]) -> None:
        """Send each front end its outputs of this step, as one message."""
        batches: dict[bytes, list[RequestOutput]] = {}
        for output in outputs:
            engine_id = output.request_id
            route = self._routes.get(engine_id)
            if route is None:
                continue  # aborted while the step ran
            output.request_id = route.request_id
            batches.setdefault(route.front_end, []).append(output)
            if output.finish_reason is not None:
                route.open_sequences -= 1
                if route.open_sequences == 0:
                    del self._routes[engine_id]
                    del self._engine_ids[route.front_end, route.request_id]
        messages: list[tuple[bytes | None, wire.Message]]
        messages = [(front_end, OutputBatch(batch)) for front_end, batch in batches.items()]
        if messages:
            self._front_ends.post(messages)

    def _publish_stats(self) -> None:
        now = time.monotonic()
        if now - self._stats_at > STATS_INTERVAL_S:
            self._stats_at = now
            self._front_ends.publish(self._engine.stats())


def run_engine_process(
    endpoint: str,
    make_engine: Callable[[], SteppedEngine],
    *,
    parent_pid: int | None = None,
    timing: Timing | None = None,
) -> int:
    """Serve an engine at an endpoint until told to leave; the main program of the engine process.

    SIGTERM ends it in order, and so does SIGINT, unless it belongs to a parent: a terminal sends
    SIGINT to that too. A failure of the start or of a step is told to all front ends and logged.

    Args:
        endpoint: ZeroMQ address to bind, `ipc://...` or `tcp://...`.
        make_engine: loads the model; heartbeats run meanwhile.
        parent_pid: the process whose death ends this one; None: live on without it.
        timing: intervals.

    Returns:
        The exit status: 0 after an orderly end, 1 after a failure.

    Raises:
        OSError: the endpoint cannot be bound.
    """
    ending = [signal.SIGTERM]
    if parent_pid is None:
        ending.append(signal.SIGINT)
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    front_ends = FrontEnds(endpoint, timing=timing, parent_pid=parent_pid)
    try:
        return _serve(make_engine, front_ends, ending)
    finally:
        front_ends.close()


def _serve(
    make_engine: Callable[[], SteppedEngine],
    front_ends: FrontEnds,
    ending: list[signal.Signals],
) -> int:
    try:
        engine = make_engine()
    except (UserError, OSError) as error:  # one clear line
        _fail(front_ends, f"the engine failed to start: {error}")
        return 1
    except Exception as error:
        log.exception("the engine failed to start")
        _fail(front_ends, f"the engine failed to start: {type(error).__name__}: {error}")
        return 1
    # Until here a signal ended it at once: there was nothing to put in order.
    for number in ending:
        signal.signal(number, lambda number, _: front_ends.inbox.put(Leave(f"signal {number}")))
    try:
        front_ends.announce(engine.info())
        EngineLoop(engine, front_ends).run()
    except Exception as error:
        log.exception("the engine failed")
        _fail(front_ends, f"the engine failed: {type(error).__name__}: {error}")
        return 1
    finally:
        engine.shutdown()
    return 0


def _fail(front_ends: FrontEnds, reason: str) -> None:
    front_ends.announce(EngineFailed(reason))

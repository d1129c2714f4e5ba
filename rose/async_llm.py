"""The asynchronous API: many callers of one engine, which runs in a thread of its own."""

import asyncio
import contextlib
import itertools
import queue
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rose.engine.engine import Engine
from rose.engine.start import start_engine
from rose.options import EngineOptions
from rose.protocol import (
    Abort,
    EngineDeadError,
    EngineInfo,
    InvalidRequestError,
    Request,
    RequestOutput,
    SamplingParams,
    Shutdown,
)

Delivery = RequestOutput | InvalidRequestError | EngineDeadError


@dataclass(slots=True)
class _Submit:
    """A request, and how to reach who made it.

    Attributes:
        request: what to run.
        deliver: takes its outputs or its error; raises RuntimeError if the caller's event loop is
            closed.
        unfinished: sequences that go on.
    """

    request: Request
    deliver: Callable[[Delivery], None]
    unfinished: int


class _EngineThread:
    """Runs the engine; talks to the callers' event loops through commands and deliveries."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commands: queue.SimpleQueue[_Submit | Abort | Shutdown] = queue.SimpleQueue()
        self._open: dict[str, _Submit] = {}
        self._lock = threading.Lock()
        self._dead: EngineDeadError | None = None
        self._thread = threading.Thread(target=self._run, name="rose-engine", daemon=True)
        self._thread.start()

    def send(self, command: _Submit | Abort | Shutdown) -> None:
        """Hand over a command.

        Raises:
            EngineDeadError: nobody would see it.
        """
        # The lock makes sure that no command is queued after the thread drained the last ones.
        with self._lock:
            if self._dead is not None:
                raise self._dead
            self._commands.put(command)

    def stop(self) -> None:
        """End the thread, and whatever is in flight."""
        with contextlib.suppress(EngineDeadError):
            self.send(Shutdown())
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._take_commands():
                for output in self._engine.step():
                    self._deliver(output)
            reason = EngineDeadError("the engine was closed")
        except Exception as error:
            reason = EngineDeadError(f"the engine failed: {type(error).__name__}: {error}")
            reason.__cause__ = error
        self._die(reason)
        self._engine.shutdown()

    def _take_commands(self) -> bool:
        """Take what is queued, and wait for some if the engine is idle; False: shut down."""
        while True:
            try:
                command = self._commands.get(block=not self._engine.has_work())
            except queue.Empty:
                return True
            if isinstance(command, Shutdown):
                return False
            if isinstance(command, Abort):
                if self._open.pop(command.request_id, None) is not None:
                    self._engine.abort(command.request_id)
            else:
                self._add(command)

    def _add(self, command: _Submit) -> None:
        try:
            self._engine.add_request(command.request)
        except InvalidRequestError as error:
            command.deliver(error)
        else:
            self._open[command.request.request_id] = command

    def _deliver(self, output: RequestOutput) -> None:
        submitted = self._open.get(output.request_id)
        if submitted is None:
            return
        submitted.unfinished -= output.finish_reason is not None
        if submitted.unfinished == 0:
            del self._open[output.request_id]
        try:
            submitted.deliver(output)
        except RuntimeError:
            # The caller's event loop is closed: nobody waits for this request.
            self._open.pop(output.request_id, None)
            self._engine.abort(output.request_id)

    def _die(self, reason: EngineDeadError) -> None:
        with self._lock:
            self._dead = reason
        orphans = list(self._open.values())
        while not self._commands.empty():
            command = self._commands.get()
            if isinstance(command, _Submit):
                orphans.append(command)
        for orphan in orphans:
            with contextlib.suppress(RuntimeError):
                orphan.deliver(reason)


class AsyncLLM:
    """An engine in this process for asynchronous callers, any number at a time.

    Loading blocks: construct it before the event loop runs, or by `asyncio.to_thread`.

    Raises:
        ConfigError: the options, the checkpoint or the cache size cannot work.
    """

    def __init__(self, options: EngineOptions) -> None:
        engine = start_engine(options.resolve())
        self._info = engine.info()
        self._thread = _EngineThread(engine)
        self._ids = itertools.count()

    @property
    def info(self) -> EngineInfo:
        """What the engine is and holds."""
        return self._info

    async def generate(
        self, prompt: Sequence[int], params: SamplingParams | None = None, *, priority: int = 0
    ) -> AsyncIterator[RequestOutput]:
        """Continue one prompt of token ids; yields each new token of each sequence as it comes.

        Leaving the iteration early, or cancelling the task, aborts the request.

        Raises:
            InvalidRequestError: the prompt can never be served.
            EngineDeadError: the engine failed, or was closed.
        """
        request = Request(
            request_id=str(next(self._ids)),
            prompt_token_ids=list(prompt),
            sampling=params or SamplingParams(),
            priority=priority,
        )
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Delivery] = asyncio.Queue()

        def deliver(item: Delivery) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, item)

        self._thread.send(_Submit(request, deliver, request.sampling.n))
        unfinished = request.sampling.n
        try:
            while unfinished:
                item = await arrived.get()
                if isinstance(item, Exception):
                    unfinished = 0
                    raise item
                unfinished -= item.finish_reason is not None
                yield item
        finally:
            if unfinished:
                self._abort(request.request_id)

    def _abort(self, request_id: str) -> None:
        try:
            self._thread.send(Abort(request_id))
        except EngineDeadError:
            return  # nothing is in flight any more

    def close(self) -> None:
        """Stop the engine; requests in flight end with EngineDeadError. Waits for the last step."""
        self._thread.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

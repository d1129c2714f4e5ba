"""One process's part of a load: every n-th request, sent when it is due, and what came of it."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from rose.bench.results import Generator, RequestSample
from rose.bench.serving.arrivals import ClosedLoop, Extent, Load, OpenLoop
from rose.bench.serving.client import Client, Order, Target, open_session
from rose.bench.serving.health import LoopWatch
from rose.bench.serving.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """A load, and which part of it a process takes.

    Requests are numbered over the whole load; process `index` of `of` sends those whose number
    leaves the remainder `index`, so that all parts together are exactly the load.
    """

    target: Target
    plan: Plan
    load: Load
    extent: Extent
    index: int = 0
    of: int = 1

    def order(self, number: int, scheduled: float) -> Order:
        """The request of this number, due at `scheduled` by `time.monotonic`."""
        asked = self.plan.request(number)
        return Order(
            number=number,
            body=self.target.body(asked),
            scheduled=scheduled,
            prompt_tokens=0 if isinstance(asked.prompt, str) else len(asked.prompt),
            asked_tokens=asked.output_tokens,
            warmup=number < self.extent.warmup,
        )


class ShareResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one process's part.

    Attributes:
        origin: the load's start, by `time.monotonic`, from which samples count.
        samples: each with the request's number.
        generator: how this process fared.
    """

    origin: float
    samples: list[tuple[int, RequestSample]]
    generator: Generator


Count = Callable[[], None]
"""Called when a request has ended."""


async def run_share(
    assignment: Assignment, *, origin: float, stop: asyncio.Event, count: Count
) -> ShareResult:
    """Send this process's requests and wait for the answers.

    Args:
        assignment: what to send.
        origin: when the load starts, by `time.monotonic`; soon.
        stop: once set, no more is sent and what is in flight is given up.
        count: called whenever a request has ended.
    """
    # What is loaded lives to the end: the collector need not stop the clocks to look at it.
    gc.collect()
    gc.freeze()
    watch = LoopWatch()
    watching = asyncio.create_task(watch.run())
    try:
        async with open_session(assignment.target) as session:
            sender = _Sender(Client(assignment.target, session, origin), count)
            if isinstance(assignment.load, OpenLoop):
                await _open_loop(assignment, assignment.load, sender, origin, stop)
            else:
                await _closed_loop(assignment, assignment.load, sender, origin, stop)
        report = watch.report([sample for _, sample in sender.samples])
    finally:
        watching.cancel()
        gc.unfreeze()
    samples = sorted(sender.samples, key=lambda pair: pair[0])
    return ShareResult(origin=origin, samples=samples, generator=report)


class _Sender:
    """Sends orders and keeps their samples."""

    def __init__(self, client: Client, count: Count) -> None:
        self.samples: list[tuple[int, RequestSample]] = []
        self._client, self._count = client, count

    async def send(self, order: Order) -> None:
        """Send one and wait for its end."""
        self.samples.append((order.number, await self._client.send(order)))
        self._count()


async def _open_loop(
    assignment: Assignment, load: OpenLoop, sender: _Sender, origin: float, stop: asyncio.Event
) -> None:
    due = load.due(assignment.extent, assignment.plan.load_seed)
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    ended = asyncio.Event()
    clock = _Clock(
        numbers=range(assignment.index, len(due), assignment.of),
        make=lambda number: assignment.order(number, origin + float(due[number])),
        begin=lambda order: loop.call_soon_threadsafe(
            lambda: tasks.append(loop.create_task(sender.send(order)))
        ),
        end=lambda: loop.call_soon_threadsafe(ended.set),
    )
    clock.start()
    stopping = asyncio.create_task(_when(stop, clock.stop))
    try:
        await ended.wait()
        clock.check()
    finally:
        clock.stop()
        stopping.cancel()
    await _finish(tasks, stop)


class _Clock(threading.Thread):
    """Hands over each order when it is due.

    A thread, since it wakes within 0.1 or 0.2 ms, where an event loop's timers count whole
    milliseconds; and since it makes the next request before it waits, beside the event loop.
    """

    def __init__(
        self,
        *,
        numbers: Sequence[int],
        make: Callable[[int], Order],
        begin: Callable[[Order], object],
        end: Callable[[], object],
    ) -> None:
        super().__init__(name="clock", daemon=True)
        self._numbers, self._make, self._begin, self._end = numbers, make, begin, end
        self._stopped = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Until all are handed over, or it is stopped."""
        try:
            for number in self._numbers:
                order = self._make(number)
                if self._stopped.wait(max(0.0, order.scheduled - time.monotonic())):
                    break
                self._begin(order)
        except Exception as error:
            self._error = error
        self._end()

    def stop(self) -> None:
        """Hand over no more."""
        self._stopped.set()

    def check(self) -> None:
        """Raise what ended the thread, if it was an error."""
        if self._error is not None:
            raise self._error


async def _closed_loop(
    assignment: Assignment, load: ClosedLoop, sender: _Sender, origin: float, stop: asyncio.Event
) -> None:
    users = len(range(assignment.index, load.users, assignment.of))
    orders = _Queue(assignment)
    await asyncio.sleep(max(0.0, origin - time.monotonic()))

    async def user() -> None:
        while not stop.is_set() and (order := orders.next()) is not None:
            await sender.send(order)

    await _finish([asyncio.create_task(user()) for _ in range(users)], stop)


class _Queue:
    """The orders of a closed loop, each due when it is taken."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._number = assignment.index
        self._end: float | None = None

    def next(self) -> Order | None:
        """The next; None: there is no more."""
        extent, number = self._assignment.extent, self._number
        if extent.most is not None and number >= extent.most:
            return None
        order = self._assignment.order(number, 0.0)
        now = time.monotonic()
        if self._end is not None and now >= self._end:
            return None
        if self._end is None and not order.warmup and extent.duration is not None:
            self._end = now + extent.duration
        self._number += self._assignment.of
        return replace(order, scheduled=now)


async def _finish(tasks: Sequence[asyncio.Task[None]], stop: asyncio.Event) -> None:
    """Wait for all; once `stop` is set, give them up."""

    def give_up() -> None:
        for task in tasks:
            task.cancel()

    stopping = asyncio.create_task(_when(stop, give_up))
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    stopping.cancel()
    for end in ends:
        if isinstance(end, Exception):  # no CancelledError, which says it was not sent yet
            raise end


async def _when(event: asyncio.Event, act: Callable[[], None]) -> None:
    await event.wait()
    act()

"""A load spread over worker processes, each with an event loop and a core of its own.

There is at least one: nothing that the command itself does then disturbs the measuring. The clock
that samples are taken by, `time.monotonic`, is the machine's, and so one for all of them.
"""

import asyncio
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import msgspec
import uvloop

from rose.bench.results import BenchError
from rose.bench.serving.share import Assignment, ShareResult, run_share

START_AFTER_S = 0.2
"""From when all processes are ready to the start of the load."""

MOST_FILES = 65_536
"""That a worker process may have open, if the system lets it."""

_POLL_S = 0.1
_END_S = 10.0


class Interrupt:
    """Whether the user has asked for the end; the second time it is a KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Take the first ^C. Where ^C is ignored, it stays so."""
        before = signal.getsignal(signal.SIGINT)
        if before is signal.SIG_IGN:
            yield
            return

        def note(number: int, frame: object) -> None:
            self.asked = True
            signal.signal(signal.SIGINT, before)

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def run_processes(
    assignment: Assignment,
    workers: int,
    *,
    interrupt: Interrupt,
    advance: Callable[[int], None],
) -> list[ShareResult]:
    """Run a load to its end, or to the user's.

    Args:
        assignment: the whole load.
        workers: processes to spread it over.
        interrupt: once it is asked for, what is in flight is given up.
        advance: told how many more requests have ended.

    Raises:
        BenchError: a process failed; it has said why on standard error.
    """
    with _started(assignment, workers) as crew:
        for member in crew:
            member.receive()  # it is ready
        origin = time.monotonic() + START_AFTER_S
        for member in crew:
            member.connection.send(origin)
        working = {member.connection: member for member in crew}
        results: list[ShareResult] = []
        told = False
        while working:
            for connection in wait(list(working), timeout=_POLL_S):
                assert isinstance(connection, Connection)
                message = working[connection].receive()
                if isinstance(message, int):
                    advance(message)
                else:
                    results.append(msgspec.msgpack.decode(message, type=ShareResult))
                    del working[connection]
            if interrupt.asked and not told:
                told = True
                for member in working.values():
                    member.tell_the_end()
        return results


class _Member:
    """A worker process and the pipe to it."""

    def __init__(self, process: BaseProcess, connection: Connection) -> None:
        self.connection = connection
        self._process = process

    def receive(self) -> int | bytes:
        """What it says next.

        Raises:
            BenchError: it is gone.
        """
        try:
            message: int | bytes = self.connection.recv()
        except (EOFError, OSError):
            self._process.join(_END_S)
            status = self._process.exitcode
            raise BenchError(
                f"a worker process of the load generator ended with exit status {status}"
            ) from None
        return message

    def tell_the_end(self) -> None:
        """Have it give up what is in flight, unless it has ended by itself."""
        with suppress(ConnectionError):
            self.connection.send(None)

    def end(self) -> None:
        """Wait for its end; make it end, if it does not."""
        self.connection.close()
        self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@contextmanager
def _started(assignment: Assignment, workers: int) -> Iterator[Sequence[_Member]]:
    context = multiprocessing.get_context("spawn")
    crew: list[_Member] = []
    # The first process would start it, and its start lets ^C through again.
    resource_tracker.ensure_running()
    # They inherit the mask: ^C is for this process, which tells them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for index in range(workers):
            ours, theirs = context.Pipe()
            share = replace(assignment, index=index, of=workers)
            process = context.Process(target=_work, args=(theirs, share), daemon=True)
            process.start()
            theirs.close()
            crew.append(_Member(process, ours))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield crew
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for member in crew:
            member.end()


def _work(connection: Connection, assignment: Assignment) -> None:
    """What a worker process does."""
    _allow_many_connections()
    connection.send(0)
    try:
        origin = connection.recv()
    except EOFError:  # the command gave up
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(_run_reporting(connection, assignment, origin))
    with suppress(ConnectionError):  # the command gave up
        connection.send(msgspec.msgpack.encode(result))


async def _run_reporting(
    connection: Connection, assignment: Assignment, origin: float
) -> ShareResult:
    """Run the share, tell how many requests have ended, and listen for the user's end."""
    stop = asyncio.Event()
    ended = told = 0

    def count() -> None:
        nonlocal ended
        ended += 1

    def tell() -> None:
        nonlocal told
        with suppress(ConnectionError):  # the command gave up
            connection.send(ended - told)
        told = ended

    async def attend() -> None:
        # Asked now and then: an event loop that watched the pipe would make it non-blocking, and
        # a result is larger than what a pipe takes at once.
        while not connection.poll():
            await asyncio.sleep(_POLL_S)
            if ended > told:
                tell()
        stop.set()  # the user's end; or the command is gone, and it is over, too

    attending = asyncio.create_task(attend())
    try:
        return await run_share(assignment, origin=origin, stop=stop, count=count)
    finally:
        attending.cancel()
        tell()


def _allow_many_connections() -> None:
    """Raise the soft limit of open files: each request in flight has a socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, min(hard, MOST_FILES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

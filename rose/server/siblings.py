"""Further front-end processes on one port, before the same engines.

The first one starts them, tells them what it knows of the engines, and ends them. Each gets its
job over its standard input, where API keys show in no process list; when that closes, it leaves.
"""

import asyncio
import logging
import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass

from rose.server.serve_options import ServeOptions
from rose.server.supervisor import POLL_S, RestartPolicy

log = logging.getLogger("rose.server")

PROGRAM = "rose.server.sibling_main"
LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Job:
    """What all front ends of one server do.

    Attributes:
        host, port: where they listen.
        endpoints: of the engines.
        own_engines: whether the first front end starts these.
        options: how to serve.
    """

    host: str
    port: int
    endpoints: tuple[str, ...]
    own_engines: bool
    options: ServeOptions


@dataclass(frozen=True, slots=True)
class EngineGone:
    """The first front end's word on the death of an engine process.

    Attributes:
        number: which.
        reason: how it died.
    """

    number: int
    reason: str


class Siblings:
    """The further front ends of this process.

    Args:
        count: how many.
        job: what each does.
        restart: how often one that died is started again.
    """

    def __init__(self, count: int, job: Job, restart: RestartPolicy) -> None:
        self._job = job
        self._restart = restart
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started_at = [0.0] * count
        self._failures = [0] * count
        self._draining = False
        for number in range(count):
            self._processes.append(self._spawn(number))

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        self._started_at[number] = time.monotonic()
        # A process group of its own: a terminal's ^C is the first front end's business alone.
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM], stdin=subprocess.PIPE, process_group=0
        )
        _write(process, self._job)
        return process

    async def run(self) -> None:
        """Start those again that die, however often, until cancelled.

        Raises:
            OSError: one cannot be started any more.
        """
        await asyncio.gather(*map(self._keep, range(len(self._processes))))

    async def _keep(self, number: int) -> None:
        while True:
            while (status := self._processes[number].poll()) is None:
                await asyncio.sleep(POLL_S)
            if self._draining:
                return
            lived_s = time.monotonic() - self._started_at[number]
            failures = 0 if lived_s > self._restart.stable_s else self._failures[number] + 1
            self._failures[number] = failures
            delay_s = self._restart.delay_s(failures)
            log.error("a front-end process ended (%d); starting it in %g s", status, delay_s)
            await asyncio.sleep(delay_s)
            if self._draining:
                return
            self._processes[number] = self._spawn(number)

    def tell(self, word: EngineGone) -> None:
        """Tell all of them that an engine is gone."""
        for process in self._processes:
            _write(process, word)

    def drain(self) -> None:
        """Let them finish their requests and leave."""
        if self._draining:  # to them a second signal means to quit at once
            return
        self._draining = True
        for process in self._processes:
            process.terminate()

    async def stop(self, seconds: float) -> None:
        """Make them leave; kill those that did not after so many seconds."""
        end = time.monotonic() + seconds
        self.drain()
        while any(process.poll() is None for process in self._processes):
            if time.monotonic() > end:
                log.warning("a front-end process did not leave within %g s: killed", seconds)
                self.kill()
                return
            await asyncio.sleep(POLL_S)

    def kill(self) -> None:
        """End them at once."""
        for process in self._processes:
            process.kill()


def _write(process: subprocess.Popen[bytes], word: object) -> None:
    """Send a word; to one that is gone, none."""
    assert process.stdin is not None
    data = pickle.dumps(word)
    try:
        process.stdin.write(len(data).to_bytes(LENGTH_BYTES) + data)
        process.stdin.flush()
    except OSError:
        log.debug("a front-end process is gone")


def read_word(descriptor: int) -> object | None:
    """The next word of the process that started this one; None: it is gone."""
    length = _read(descriptor, LENGTH_BYTES)
    data = _read(descriptor, int.from_bytes(length))
    if not data:
        return None
    word: object = pickle.loads(data)
    return word


def _read(descriptor: int, size: int) -> bytes:
    """So many bytes, or none if the other side closed."""
    data = b""
    while len(data) < size:
        # No buffered reader: at the end of the process the thread that sits in it holds its lock.
        more = os.read(descriptor, size - len(data))
        if not more:
            return b""
        data += more
    return data

"""An engine process that this front end started: it is started again when it dies."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rose.protocol import EngineDeadError
from rose.server.engine_client import EngineClient, EngineState

log = logging.getLogger("rose.server")

LAST_WORDS_S = 2.0
"""How long to wait for an exited engine's own account of why. One that a signal killed has none."""

POLL_S = 0.05
"""How often to look whether the process lives."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a process that dies is started again.

    Attributes:
        first_delay_s: seconds before it is started again; doubled with each quick failure.
        longest_delay_s: the most seconds.
        max_failures: quick failures in a row after which it is given up.
        stable_s: a process that was ready for so long did not fail quickly.
        hung_s: one that is still there so long after it was found silent is killed.
    """

    first_delay_s: float = 1.0
    longest_delay_s: float = 30.0
    max_failures: int = 5
    stable_s: float = 60.0
    hung_s: float = 30.0

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many quick failures in a row (0: after a long life)."""
        exponent = min(max(0, failures - 1), 32)
        return float(min(self.longest_delay_s, self.first_delay_s * 2**exponent))


class EngineSupervisor:
    """One engine process of this front end.

    Args:
        command: its command line.
        client: the connection to it.
        restart: how it is started again; None: not at all.
        environment: variables that it gets besides this process's.
    """

    def __init__(
        self,
        command: Sequence[str],
        client: EngineClient,
        restart: RestartPolicy | None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._client = client
        self._restart = restart
        self._environment = environment or {}
        self._started_at = time.monotonic()
        self._process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._started_at = time.monotonic()
        # A process group of its own: a terminal's ^C is this process's business alone.
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            process_group=0,
            env=os.environ | self._environment,
        )

    async def run(self, tell: Callable[[str], None]) -> None:
        """Keep the engine running, or at least say how it ended, until cancelled.

        Args:
            tell: called with how it ended, each time.

        Raises:
            EngineDeadError: it did not start at first, or kept failing.
            OSError: its command cannot be run any more.
        """
        failures = 0
        while True:
            status = await self._exit_status()
            if status >= 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._client.wait_dead(), LAST_WORDS_S)
            self._client.engine_exited(_how_it_ended(status))
            reason = self._client.reason
            tell(reason)
            if self._client.info is None:
                raise EngineDeadError(reason)
            if self._restart is None:
                return
            failures = 0 if self._was_stable(self._restart) else failures + 1
            if failures >= self._restart.max_failures:
                raise EngineDeadError(f"the engine died {failures} times in a row; {reason}")
            await self._start_again(reason, self._restart.delay_s(failures))

    async def _start_again(self, reason: str, delay_s: float) -> None:
        self._client.will_restart(f"{reason}; it is started again in {delay_s:g} s")
        log.warning("the engine is started again in %g s", delay_s)
        await asyncio.sleep(delay_s)
        self._client.engine_starting(f"the engine is loading again: {reason}")
        self._process = self._spawn()

    async def _exit_status(self) -> int:
        """Wait for the process's end; one that hangs is killed, if it can be started again."""
        dead_since: float | None = None
        while (status := self._process.poll()) is None:
            await asyncio.sleep(POLL_S)  # a thread for each engine could use up the pool
            if self._client.state is not EngineState.DEAD or self._restart is None:
                dead_since = None
                continue
            now = time.monotonic()
            dead_since = dead_since or now
            if now - dead_since > self._restart.hung_s:
                log.warning("the engine process hangs: killed")
                self._process.kill()
        return status

    def _was_stable(self, restart: RestartPolicy) -> bool:
        ready_since = self._client.ready_since
        was_ready = ready_since > self._started_at
        return was_ready and time.monotonic() - ready_since > restart.stable_s

    async def stop(self, exit_s: float) -> None:
        """Make the engine leave; kill it after `exit_s` seconds."""
        if self._client.state is EngineState.READY:
            self._client.shutdown_engine()
        elif self._process.poll() is None:
            self._process.terminate()  # it loads, or hangs
        try:
            await asyncio.to_thread(self._process.wait, exit_s)
        except subprocess.TimeoutExpired:
            log.warning("the engine process did not leave within %g s: killed", exit_s)
            self._process.kill()

    def kill(self) -> None:
        """End the engine at once."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # lest it makes its socket after that is removed


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"the engine process exited with status {status}"
    return f"the engine process was killed by {signal.Signals(-status).name}"


def gpu_environment(number: int, num_engines: int) -> dict[str, str]:
    """Variables that give each of several engines a GPU of its own, where there are GPUs.

    Raises:
        OSError: CUDA_VISIBLE_DEVICES names too few.
    """
    if num_engines == 1:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:
        return {} if visible == "" else {"CUDA_VISIBLE_DEVICES": str(number)}
    names = visible.split(",")
    if len(names) < num_engines:
        raise OSError(
            f"{num_engines} engines need as many GPUs; CUDA_VISIBLE_DEVICES={visible} names "
            f"{len(names)}"
        )
    return {"CUDA_VISIBLE_DEVICES": names[number]}

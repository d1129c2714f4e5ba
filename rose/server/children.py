"""The processes that a first front end starts: its engines, and further front ends."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Self

from rose.protocol import EngineDeadError
from rose.server.engine_client import EngineState
from rose.server.listening import UNREAD_S
from rose.server.router import Router
from rose.server.serve_options import ServeOptions
from rose.server.siblings import EngineGone, Job, Siblings
from rose.server.supervisor import EngineSupervisor, RestartPolicy, gpu_environment

log = logging.getLogger("rose.server")

FAREWELL_S = UNREAD_S + 5.0
"""What a further front end gets to leave, besides the time for its requests."""


class Children:
    """All processes of a server but its first; they leave when this context is left.

    Args:
        router: the connections to the engines.
        options: see ServeOptions.
    """

    def __init__(self, router: Router, options: ServeOptions) -> None:
        self._router = router
        self._options = options
        self._engines: list[EngineSupervisor] = []
        self._siblings: Siblings | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._siblings is not None:  # their requests need the engines
            await self._siblings.stop(self._options.drain_s + FAREWELL_S)
        exit_s = self._options.engine_exit_s
        await asyncio.gather(*(engine.stop(exit_s) for engine in self._engines))

    def start(self, commands: Sequence[Sequence[str]], job: Job) -> None:
        """Start them all.

        Args:
            commands: of the engines, in the router's order; none: others start these.
            job: of the further front ends.

        Raises:
            OSError: one cannot be started.
        """
        for number, command in enumerate(commands):
            client = self._router.engines[number]
            environment = gpu_environment(number, len(commands))
            restart = self._options.restart
            self._engines.append(EngineSupervisor(command, client, restart, environment))
        if self._options.num_front_ends > 1:
            restart = self._options.restart or RestartPolicy()
            self._siblings = Siblings(self._options.num_front_ends - 1, job, restart)

    def watches(self) -> list[Coroutine[None, None, None]]:
        """What keeps them running, to be awaited all at once.

        Raises (when awaited):
            EngineDeadError: an engine did not start at first, or the last one was given up.
            OSError: one cannot be started any more.
        """
        works = [self._keep_engine(number) for number in range(len(self._engines))]
        if self._siblings is not None:
            works.append(self._siblings.run())
        return works

    async def _keep_engine(self, number: int) -> None:
        client = self._router.engines[number]
        try:
            await self._engines[number].run(lambda reason: self._tell(number, reason))
        except EngineDeadError as error:
            if client.info is None or self._router.state is EngineState.DEAD:
                raise
            log.error("engine %d is given up, others go on: %s", number, error)
            client.will_restart(f"{error}; it was given up")

    def _tell(self, number: int, reason: str) -> None:
        if self._siblings is not None:
            self._siblings.tell(EngineGone(number, reason))

    def drain(self) -> None:
        """Let the further front ends finish their requests."""
        if self._siblings is not None:
            self._siblings.drain()

    def kill(self) -> None:
        """End all at once."""
        if self._siblings is not None:
            self._siblings.kill()
        for engine in self._engines:
            engine.kill()

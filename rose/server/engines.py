"""What the routes need of what is behind them: one engine, or a router before several."""

from collections.abc import Sequence
from typing import Protocol

from rose.protocol import EngineInfo, Request
from rose.server.engine_client import EngineClient, EngineState, Generation


class Engines(Protocol):
    """One engine or several; EngineClient and Router are such."""

    @property
    def state(self) -> EngineState:
        """READY if requests are taken."""
        ...

    @property
    def reason(self) -> str:
        """Why they are not; empty if they are."""
        ...

    @property
    def info(self) -> EngineInfo | None:
        """Of the engine; None before one has been ready."""
        ...

    @property
    def engines(self) -> Sequence[EngineClient]:
        """Each connection, for /health and /metrics."""
        ...

    async def wait_ready(self) -> EngineInfo:
        """Wait until requests are taken. Raises EngineDeadError if that fails."""
        ...

    def generate(self, requests: Sequence[Request]) -> Generation:
        """Submit requests together; see EngineClient."""
        ...

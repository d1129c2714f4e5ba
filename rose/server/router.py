"""Several engines behind one front end: which of them takes a call.

The least loaded one, unless another holds enough of the prompt in its prefix cache. Engines say
nothing of their caches, so the router remembers where it sent prompts that began alike.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from rose.protocol import EngineDeadError, EngineInfo, Request
from rose.server.engine_client import SEQUENCE_LOAD, EngineClient, EngineState, Generation

log = logging.getLogger("rose.server")

SHORTEST_PREFIX = 128
"""Tokens; prompts that share less than this do not attract each other."""

CACHED_TOKEN_WORTH = 4
"""By how many tokens of load an engine may exceed another for a token of prompt that it holds."""

MOST_EXCESS = 16 * SEQUENCE_LOAD
"""The most load by which it may, lest all who share a long system prompt crowd at one engine."""

MAX_PREFIXES = 1 << 16
"""Prefixes remembered, the least recently used forgotten first."""


class Router:
    """Connections to several engines that serve the same model; does what EngineClient does.

    A call goes to one engine whole. Calls at an engine that dies fail; others go on.

    Args:
        engines: the connections, entered and closed by whoever made them.
    """

    def __init__(self, engines: Sequence[EngineClient]) -> None:
        self.engines = tuple(engines)
        self._prefixes = _Prefixes()
        self._odd: set[tuple[str, str]] = set()

    @property
    def state(self) -> EngineState:
        """READY if any engine is, else STARTING if any may become so."""
        states = {engine.state for engine in self.engines}
        for state in (EngineState.READY, EngineState.STARTING):
            if state in states:
                return state
        return EngineState.DEAD

    @property
    def reason(self) -> str:
        """Why no engine takes requests; empty if one does."""
        if self.state is EngineState.READY:
            return ""
        if len(self.engines) == 1:
            return self.engines[0].reason
        return "; ".join(f"engine {i}: {e.reason}" for i, e in enumerate(self.engines))

    @property
    def info(self) -> EngineInfo | None:
        """Of the first engine that is ready, or else was."""
        known = [engine for engine in self.engines if engine.info is not None]
        ready = [engine for engine in known if engine.state is EngineState.READY]
        return next((engine.info for engine in ready + known), None)

    @property
    def num_in_flight(self) -> int:
        """Calls of `generate` that have not ended."""
        return sum(engine.num_in_flight for engine in self.engines)

    async def wait_ready(self) -> EngineInfo:
        """Wait until the first engine can take requests.

        Raises:
            EngineDeadError: all died instead; the message is the last one's.
        """
        waiting = [asyncio.create_task(engine.wait_ready()) for engine in self.engines]
        try:
            for number, first in enumerate(asyncio.as_completed(waiting), start=1):
                try:
                    return await first
                except EngineDeadError:
                    if number == len(waiting):
                        raise
            raise EngineDeadError("there are no engines")
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def generate(self, requests: Sequence[Request]) -> Generation:
        """Submit requests together to one engine. Close what is returned.

        Raises:
            InvalidRequestError: a number in a request is too large to be sent.
            EngineDeadError: no engine is ready.
        """
        ready = self._usable()
        if not ready:
            raise EngineDeadError(self.reason)
        if len(self.engines) == 1:
            return ready[0].generate(requests)
        prefixes = list(_prefix_keys(requests[0].prompt_token_ids))
        engine = min(ready, key=lambda one: one.load - self._prefixes.worth(one, prefixes))
        generation = engine.generate(requests)
        self._prefixes.remember(engine, prefixes)
        return generation

    def fail_all(self, reason: str) -> None:
        """Abort everything in flight; whoever waits for it gets an EngineDeadError."""
        for engine in self.engines:
            engine.fail_all(reason)

    def _usable(self) -> list[EngineClient]:
        """The engines that are ready, and serve what the first of them serves."""
        served, usable = self.info, []
        for engine in self.engines:
            if engine.state is not EngineState.READY or engine.info is None or served is None:
                continue
            if engine.info.model == served.model:
                usable.append(engine)
            elif (odd := (engine.endpoint, engine.info.model)) not in self._odd:
                self._odd.add(odd)
                log.error(
                    "the engine at %s serves %s and gets no requests: others serve %s",
                    *(*odd, served.model),
                )
        return usable


def _prefix_keys(token_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(length, hash) of the prompt's first 128, 256, 512, ... tokens, shortest first."""
    begin, end, key = 0, SHORTEST_PREFIX, 0
    while end <= len(token_ids):
        key = hash((key, tuple(token_ids[begin:end])))
        yield end, key
        begin, end = end, 2 * end


class _Prefixes:
    """Which engines saw which beginnings of prompts."""

    def __init__(self) -> None:
        # The engines by their sessions: one that was restarted has an empty cache.
        self._sessions: OrderedDict[int, set[str]] = OrderedDict()

    def worth(self, engine: EngineClient, prefixes: Sequence[tuple[int, int]]) -> int:
        """The load by which this engine may exceed another for what it holds of a prompt."""
        session = "" if engine.info is None else engine.info.session
        for length, key in reversed(prefixes):
            if session in self._sessions.get(key, ()):
                return min(length * CACHED_TOKEN_WORTH, MOST_EXCESS)
        return 0

    def remember(self, engine: EngineClient, prefixes: Sequence[tuple[int, int]]) -> None:
        """This engine is about to hold these."""
        session = "" if engine.info is None else engine.info.session
        for _, key in prefixes:
            self._sessions.setdefault(key, set()).add(session)
            self._sessions.move_to_end(key)
        while len(self._sessions) > MAX_PREFIXES:
            self._sessions.popitem(last=False)

"""Responses that are made while nobody waits for them."""

import asyncio
import logging
from dataclasses import dataclass

from rose.protocol import InvalidRequestError
from rose.server import errors
from rose.server.engine_client import Generation
from rose.server.errors import ApiError
from rose.server.front_end import FrontEnd
from rose.server.responses.call import ResponseCall, in_own_terms

log = logging.getLogger("rose.server")

MAX_RUNNING = 1000
"""Responses in the background at a time; each holds its input in memory."""


class _StoppedError(Exception):
    """The client wants no more of it."""


@dataclass(frozen=True, slots=True)
class _Running:
    call: ResponseCall
    generation: Generation
    task: asyncio.Task[None]


class BackgroundResponses:
    """Those that are being made. Each keeps itself when it has ended."""

    def __init__(self, front_end: FrontEnd) -> None:
        self._front_end = front_end
        self._running: dict[str, _Running] = {}

    def start(self, call: ResponseCall) -> None:
        """Begin to make a response.

        Raises:
            ApiError: too many are being made (429).
            EngineDeadError: the engine is not ready.
        """
        if len(self._running) >= MAX_RUNNING:
            raise ApiError(
                429,
                f"{MAX_RUNNING} responses run in the background; wait until some have ended",
                kind="rate_limit_error",
                code="too_many_background_responses",
                headers={"Retry-After": "5"},
            )
        generation = self._front_end.client.generate(call.requests)
        task = asyncio.create_task(self._make(call, generation))
        self._running[call.id] = _Running(call, generation, task)

    def get(self, response_id: str) -> ResponseCall | None:
        """One that is being made."""
        running = self._running.get(response_id)
        return running.call if running else None

    async def cancel(self, response_id: str) -> bool:
        """Stop one, with what there is of it; whether it was being made."""
        running = self._running.get(response_id)
        if running is None:
            return False
        # Not the task: one that is cancelled before its first step would never end its response.
        running.generation.close()
        running.generation.fail(_StoppedError())
        await asyncio.wait({running.task})
        return True

    async def _make(self, call: ResponseCall, generation: Generation) -> None:
        timer = self._front_end.metrics.start()
        try:
            with generation:
                async for outputs in generation:
                    timer.observe(outputs)
                    call.collect(outputs)
                    for request_id, index in call.take_cut_short():
                        generation.finish(request_id, index)
            call.whole()
            timer.outcome = "completed"
        except _StoppedError:
            call.cancel()
        except InvalidRequestError as error:
            timer.outcome = "refused"
            call.fail(errors.from_exception(in_own_terms(error)))
        except Exception as error:
            timer.outcome = "failed"
            answer = errors.from_exception(error)
            if answer.status == 500:
                log.error("a background response failed", exc_info=error)
            call.fail(answer)
        finally:
            timer.end()
            del self._running[call.id]

"""Responses that are made while nobody waits for them."""

import asyncio
import logging
from dataclasses import dataclass

from rose.protocol import InvalidRequestError
from rose.server import errors
from rose.server.admission import Admitted, admit, in_clients_terms
from rose.server.answering import run_whole
from rose.server.errors import ApiError
from rose.server.front_end import FrontEnd
from rose.server.responses.call import ResponseCall

log = logging.getLogger("rose.server")

MAX_RUNNING = 1000
"""Responses in the background at a time; each holds its input in memory."""


class _StoppedError(Exception):
    """The client wants no more of it."""


@dataclass(frozen=True, slots=True)
class _Running:
    call: ResponseCall
    admitted: Admitted
    task: asyncio.Task[None]


class BackgroundResponses:
    """Those that are being made. Each keeps itself when it has ended."""

    def __init__(self, front_end: FrontEnd) -> None:
        self._front_end = front_end
        self._running: dict[str, _Running] = {}

    def start(self, call: ResponseCall) -> None:
        """Begin to make a response.

        Raises:
            ApiError: too many are being made, or too many calls run or wait (429).
            InvalidRequestError: it asks for too much.
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
        try:
            admitted = admit(self._front_end, call.requests)
        except InvalidRequestError as error:
            raise in_clients_terms(error, call.field_names) from None
        task = asyncio.create_task(self._make(call, admitted))
        self._running[call.id] = _Running(call, admitted, task)

    def get(self, response_id: str, owner: str) -> ResponseCall | None:
        """One of this owner's that is being made."""
        running = self._running.get(response_id)
        return running.call if running and running.call.owner == owner else None

    async def cancel(self, response_id: str, owner: str) -> bool:
        """Stop one, with what there is of it; whether it was being made."""
        running = self._running.get(response_id)
        if running is None or running.call.owner != owner:
            return False
        # Not the task: one that is cancelled before its first step would never end its response.
        running.admitted.close()
        running.admitted.generation.fail(_StoppedError())
        await asyncio.wait({running.task})
        return True

    async def _make(self, call: ResponseCall, admitted: Admitted) -> None:
        timer = self._front_end.metrics.start()
        try:
            await run_whole(call, admitted.generation, timer)
        except _StoppedError:
            call.cancel()
        except InvalidRequestError as error:
            timer.outcome = "refused"
            call.fail(errors.from_exception(in_clients_terms(error, call.field_names)))
        except Exception as error:
            timer.outcome = "failed"
            answer = errors.from_exception(error)
            if answer.status == 500:
                log.error("a background response failed", exc_info=error)
            call.fail(answer)
        finally:
            admitted.close()
            timer.end()
            del self._running[call.id]

"""Calls on their way to the engine: within the server's limits, each with a place and a time."""

import asyncio
from collections.abc import Mapping, Sequence

from rose.protocol import InvalidRequestError, Request
from rose.server.engine_client import Generation
from rose.server.front_end import FrontEnd
from rose.server.limits import Place

PROMPT_FIELD = "prompt_token_ids"
"""What the engine calls the prompt."""


class Admitted:
    """A call that the engine works at.

    Args:
        generation: of its engine requests.
        place: in the queue.
        deadline: ends it when its time is over.

    Attributes:
        generation: of its engine requests.
    """

    def __init__(
        self, generation: Generation, place: Place, deadline: asyncio.TimerHandle | None
    ) -> None:
        self.generation = generation
        self._place = place
        self._deadline = deadline

    def close(self) -> None:
        """Abort what is unfinished, and free the place. Closing again does nothing."""
        self.generation.close()
        self._place.release()
        if self._deadline is not None:
            self._deadline.cancel()


def admit(front_end: FrontEnd, requests: Sequence[Request]) -> Admitted:
    """Submit a call's engine requests. Close what is returned.

    Raises:
        InvalidRequestError: a request asks for more than the limits, or than can be sent.
        ApiError: the queue is full (429).
        EngineDeadError: the engine is not ready.
    """
    limits = front_end.policy.limits
    bounded = limits.apply(requests)
    place = front_end.queue.take()
    try:
        generation = front_end.client.generate(bounded)
    except BaseException:
        place.release()
        raise

    def time_out() -> None:
        generation.close()
        generation.fail(limits.timeout_error())

    deadline = None
    if limits.request_timeout_s is not None:
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(limits.request_timeout_s, time_out)
    return Admitted(generation, place, deadline)


def in_clients_terms(error: InvalidRequestError, fields: Mapping[str, str]) -> InvalidRequestError:
    """A refusal of an engine request, by the names of the endpoint's fields.

    Args:
        error: names a field of the engine's.
        fields: the client's name of each that goes by another.
    """
    name = fields.get(error.param)
    if name is None:
        return error
    message = error.message
    if error.param != PROMPT_FIELD and name != error.param:
        message = message.replace(error.param, name)
    return InvalidRequestError(message, name)

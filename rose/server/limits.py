"""What one server takes: how many calls at a time, and how large each may be."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rose.protocol import InvalidRequestError, Request
from rose.server.errors import ApiError
from rose.server.http import MAX_BODY_BYTES

RETRY_AFTER_S = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what clients ask for. None: only the engine's own.

    Attributes:
        max_queue: calls that run or wait at a time; the next is refused (429).
        max_body_bytes: of one request.
        max_prompt_tokens: of one prompt.
        max_n: choices a prompt.
        max_output_tokens: a choice; a call that asks for no number gets this one.
        request_timeout_s: seconds that the engine gets for a call.
    """

    max_queue: int = 2048
    max_body_bytes: int = MAX_BODY_BYTES
    max_prompt_tokens: int | None = None
    max_n: int | None = None
    max_output_tokens: int | None = None
    request_timeout_s: float | None = None

    def apply(self, requests: Sequence[Request]) -> list[Request]:
        """A call's engine requests, within these limits.

        Raises:
            InvalidRequestError: one asks for more; it names the engine's field.
        """
        return [self._apply(request) for request in requests]

    def _apply(self, request: Request) -> Request:
        sampling, most = request.sampling, self.max_output_tokens
        length = len(request.prompt_token_ids)
        _check("prompt_token_ids", "the prompt's tokens", length, self.max_prompt_tokens)
        _check("n", "n", sampling.n, self.max_n)
        _check("max_tokens", "max_tokens", sampling.max_tokens or 0, most)
        if most is not None and sampling.max_tokens is None:
            return replace(request, sampling=replace(sampling, max_tokens=most))
        return request

    def timeout_error(self) -> ApiError:
        """What a call ends with that took longer than it may."""
        message = (
            f"the request took longer than the {self.request_timeout_s:g} s that this server gives "
            "each: ask for fewer tokens"
        )
        return ApiError(504, message, kind="server_error", code="request_timeout")


def _check(param: str, what: str, found: int, most: int | None) -> None:
    if most is not None and found > most:
        raise InvalidRequestError(
            f"{what} must be at most {most} on this server; got {found}", param
        )


class Queue:
    """The calls that run or wait, counted.

    Args:
        most: at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._turn = asyncio.Lock()

    @property
    def full(self) -> bool:
        """Whether no further call is taken."""
        return self._taken >= self._most

    def check(self) -> None:
        """Refuse a call before work is put into it.

        Raises:
            ApiError: the queue is full (429).
        """
        if self.full:
            raise ApiError(
                429,
                f"{self._most} requests run or wait already: try again in a while",
                kind="rate_limit_error",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )

    async def turn(self) -> None:
        """Wait until this call may be prepared: one in each round of the event loop.

        So streams go on while hundreds of calls that came at once are prepared.
        """
        async with self._turn:
            await asyncio.sleep(0)

    def take(self) -> "Place":
        """A place for one call.

        Raises:
            ApiError: the queue is full (429).
        """
        self.check()
        self._taken += 1
        return Place(self)

    def leave(self) -> None:
        """One call has ended (for Place)."""
        self._taken -= 1


class Place:
    """A call's place in the queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue: Queue | None = queue

    def release(self) -> None:
        """Give it up. Doing so again does nothing."""
        if self._queue is not None:
            self._queue.leave()
            self._queue = None

"""From a call's engine requests to its HTTP answer, whole or streamed; the same for every endpoint.

A call knows its endpoint's objects and events; this module knows the engine, the client and time.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from fastapi import Request as HttpRequest
from fastapi import Response

from rose.protocol import InvalidRequestError, Request, RequestOutput
from rose.server import errors
from rose.server.admission import admit, in_clients_terms
from rose.server.engine_client import Generation
from rose.server.errors import ApiError, ClientGoneError
from rose.server.front_end import FrontEnd
from rose.server.http import EventStream, unless_client_leaves
from rose.server.metrics import CallTimer
from rose.server.request_log import note_call

log = logging.getLogger("rose.server")


class Call(Protocol):
    """One HTTP call: the engine requests it makes, and the answer that their outputs make.

    Attributes:
        requests: to submit to the engine.
        field_names: the body's name of each engine field that goes by another, for errors.
    """

    requests: list[Request]
    field_names: Mapping[str, str]

    def collect(self, outputs: Sequence[RequestOutput]) -> None:
        """Take outputs of an answer that is not streamed."""
        ...

    def whole(self) -> bytes:
        """The body of an answer that is not streamed, once all outputs are collected."""
        ...

    def events(self, outputs: Sequence[RequestOutput]) -> bytes:
        """Take outputs of a streamed answer; the events that they make, if any."""
        ...

    def closing_events(self) -> bytes:
        """The end of a stream that went well."""
        ...

    def failure_event(self, error: ApiError) -> bytes:
        """The end of a stream that did not."""
        ...

    def take_cut_short(self) -> list[tuple[str, int]]:
        """Sequences (request id, index) that need to run no further, since the last call."""
        ...


async def answer(
    front_end: FrontEnd, http_request: HttpRequest, call: Call, *, stream: bool
) -> Response:
    """Run a call. Its engine requests end with the answer, or when the client leaves.

    Raises:
        InvalidRequestError: a request asks for too much, or the engine refused it.
        ApiError: too many calls run or wait (429), or this one took too long (504).
        EngineDeadError: the engine is not ready, or died before the answer began.
        ClientGoneError: the client left.
    """
    timer = front_end.metrics.start()
    try:
        admitted = admit(front_end, call.requests)
    except InvalidRequestError as error:
        raise in_clients_terms(error, call.field_names) from None
    generation = admitted.generation
    note_call(http_request.scope, timer)
    streaming = False

    def end() -> None:
        admitted.close()
        timer.end()

    try:
        if not stream:
            body = await unless_client_leaves(http_request, run_whole(call, generation, timer))
            return Response(body, media_type="application/json")
        # Until the engine's first answer a refusal is still an HTTP status of its own. (Of several
        # prompts, one may be refused after another began: then the stream ends with the error.)
        first = await unless_client_leaves(http_request, _next(generation))
        streaming = True
        return EventStream(_events(call, generation, timer, first), end)
    except InvalidRequestError as error:
        timer.outcome = "refused"
        raise in_clients_terms(error, call.field_names) from None
    except Exception as error:
        timer.outcome = "aborted" if isinstance(error, ClientGoneError) else "failed"
        raise
    finally:
        if not streaming:
            end()


async def _next(generation: Generation) -> list[RequestOutput]:
    return await anext(generation)


async def run_whole(call: Call, generation: Generation, timer: CallTimer) -> bytes:
    """The body of an answer that is not streamed, when the engine has written all of it.

    Raises:
        InvalidRequestError: the engine refused a request.
        EngineDeadError: the engine died.
    """
    async for outputs in generation:
        timer.observe(outputs)
        call.collect(outputs)
        for request_id, index in call.take_cut_short():
            generation.finish(request_id, index)
    timer.outcome = "completed"
    return call.whole()


async def _events(
    call: Call, generation: Generation, timer: CallTimer, first: Sequence[RequestOutput]
) -> AsyncIterator[bytes]:
    """The events of a stream. Once it has begun, an error is an event too, and the last one."""
    outputs = list(first)
    try:
        while outputs:
            timer.observe(outputs)
            events = call.events(outputs)
            for request_id, index in call.take_cut_short():
                generation.finish(request_id, index)
            if events:
                yield events
            outputs = await anext(generation, [])
    except Exception as error:
        if isinstance(error, InvalidRequestError):
            error = in_clients_terms(error, call.field_names)
        refusal = errors.from_exception(error)
        if refusal.status == 500:
            log.error("a stream failed", exc_info=error)
        timer.outcome = "failed"
        yield call.failure_event(refusal)
        return
    timer.outcome = "completed"
    yield call.closing_events()

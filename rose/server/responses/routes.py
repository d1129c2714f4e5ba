"""The routes of /v1/responses."""

import functools
from collections.abc import Sequence

import msgspec
from fastapi import APIRouter, Request, Response

from rose.protocol import InvalidRequestError
from rose.server.answering import answer
from rose.server.body import parse_body
from rose.server.errors import ApiError, shown
from rose.server.front_end import FrontEnd
from rose.server.http import read_body
from rose.server.responses.background import BackgroundResponses
from rose.server.responses.call import ResponseCall, make_response_call
from rose.server.responses.checks import check
from rose.server.responses.items import Item, read_input
from rose.server.responses.request import ResponseRequest
from rose.server.responses.store import ResponseStore, StoredResponse, StoreLimits

MAX_LISTED = 100


def responses_router(front_end: FrontEnd, limits: StoreLimits | None = None) -> APIRouter:
    """The routes.

    Args:
        front_end: of this server.
        limits: of the responses that are kept.
    """
    responses = Responses(front_end, limits)
    router = APIRouter(prefix="/v1/responses")
    schema = {"application/json": {"schema": ResponseRequest.model_json_schema()}}
    body_schema = {"requestBody": {"required": True, "content": schema}}

    # The body is parsed here and not by the framework, as those of all other routes.
    @router.post("", openapi_extra=body_schema)
    async def create(request: Request) -> Response:
        front_end.queue.check()
        raw = await read_body(request, front_end.policy.limits.max_body_bytes)
        await front_end.queue.turn()
        return await responses.create(request, parse_body(ResponseRequest, raw))

    @router.get("/{response_id}")
    async def retrieve(request: Request, response_id: str, stream: str = "false") -> Response:
        if stream != "false":
            raise InvalidRequestError("a kept response cannot be streamed: leave it out", "stream")
        return _json(responses.body(response_id, _owner(request)))

    @router.delete("/{response_id}")
    async def delete(request: Request, response_id: str) -> Response:
        await responses.delete(response_id, _owner(request))
        fields = {"id": response_id, "object": "response", "deleted": True}
        return _json(msgspec.json.encode(fields))

    @router.post("/{response_id}/cancel")
    async def cancel(request: Request, response_id: str) -> Response:
        return _json(await responses.cancel(response_id, _owner(request)))

    @router.get("/{response_id}/input_items")
    async def input_items(
        request: Request,
        response_id: str,
        after: str | None = None,
        limit: str = "20",
        order: str = "desc",
    ) -> Response:
        items = responses.input_items(response_id, _owner(request))
        return _json(_listed(items, after=after, limit=limit, order=order))

    return router


class Responses:
    """What the routes share: responses in the making, and those that have ended.

    Args:
        front_end: of this server.
        limits: of the responses that are kept.
    """

    def __init__(self, front_end: FrontEnd, limits: StoreLimits | None = None) -> None:
        self._front_end = front_end
        self._store = ResponseStore(limits)
        self._background = BackgroundResponses(front_end)

    async def create(self, http_request: Request, body: ResponseRequest) -> Response:
        """Make a response.

        Raises:
            InvalidRequestError: the body asks for what cannot be; it names the field.
            ApiError: the model is another, is not ready, or takes no chats.
            EngineDeadError: the engine died before the answer began.
            ClientGoneError: the client left.
        """
        self._front_end.require_model(body.model)
        body.check()
        owner = _owner(http_request)
        before = self._context(body.previous_response_id, owner)
        known = functools.partial(self._store.item, owner=owner)
        items = [*before, *read_input(body.input, before, known)]
        call = await make_response_call(self._front_end, body, items, self._store.put, owner)
        if body.background:
            self._background.start(call)
            return _json(call.in_progress())
        return await answer(self._front_end, http_request, call, stream=bool(body.stream))

    def _context(self, previous_id: str | None, owner: str) -> list[Item]:
        """What the model was given and wrote in the response that is continued."""
        if previous_id is None:
            return []
        param = "previous_response_id"
        if self._background.get(previous_id, owner) is not None:
            raise InvalidRequestError(f"response {shown(previous_id)} is still being made", param)
        previous = self._store.get(previous_id, owner)
        if previous is None:
            raise ApiError(
                400,
                f"previous response {shown(previous_id)} is not kept here, or no longer: send the "
                "whole conversation as input",
                param=param,
                code="previous_response_not_found",
            )
        return [*previous.input_items, *previous.output]

    def body(self, response_id: str, owner: str) -> bytes:
        """A response's object.

        Raises:
            ApiError: this owner has none of this id (404).
        """
        found = self._find(response_id, owner)
        return found.in_progress() if isinstance(found, ResponseCall) else found.body

    def input_items(self, response_id: str, owner: str) -> Sequence[Item]:
        """All that the model was given, of the responses that it continues too.

        Raises:
            ApiError: this owner has none of this id (404).
        """
        return self._find(response_id, owner).input_items

    async def delete(self, response_id: str, owner: str) -> None:
        """Forget a response; one in the making is stopped.

        Raises:
            ApiError: this owner has none of this id (404).
        """
        await self._background.cancel(response_id, owner)
        if not self._store.delete(response_id, owner):
            raise _not_found(response_id)

    async def cancel(self, response_id: str, owner: str) -> bytes:
        """Stop a response in the background; the object, as it is then.

        Raises:
            ApiError: this owner has none of this id (404).
            InvalidRequestError: it did not run in the background.
        """
        await self._background.cancel(response_id, owner)
        found = self._find(response_id, owner)
        if isinstance(found, StoredResponse) and not found.background:
            raise InvalidRequestError(
                "only responses in the background can be cancelled; to end another, close its "
                "connection",
                "response_id",
            )
        return self.body(response_id, owner)

    def _find(self, response_id: str, owner: str) -> ResponseCall | StoredResponse:
        background = self._background.get(response_id, owner)
        found = background or self._store.get(response_id, owner)
        if found is None:
            raise _not_found(response_id)
        return found


def _owner(request: Request) -> str:
    """Who the key of a request belongs to."""
    owner: str = request.state.owner
    return owner


def _not_found(response_id: str) -> ApiError:
    message = f"no response {shown(response_id)} is kept here, or no longer"
    return ApiError(404, message, param="response_id", code="response_not_found")


def _listed(items: Sequence[Item], *, after: str | None, limit: str, order: str) -> bytes:
    most = int(limit) if limit.isascii() and limit.isdecimal() and len(limit) <= 3 else 0
    check(1 <= most <= MAX_LISTED, "limit", f"1 to {MAX_LISTED}", limit)
    check(order in ("asc", "desc"), "order", '"asc" or "desc"', order)
    ordered = list(items) if order == "asc" else list(reversed(items))
    if after is not None:
        ids = [item.id for item in ordered]
        check(after in ids, "after", "the id of an input item of this response", after)
        ordered = ordered[ids.index(after) + 1 :]
    page = ordered[:most]
    fields = {
        "object": "list",
        "data": page,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
        "has_more": len(ordered) > len(page),
    }
    return msgspec.json.encode(fields)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")

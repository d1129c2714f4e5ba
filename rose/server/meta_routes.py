"""Routes about the server itself, and those that turn text into tokens and back."""

import time

import msgspec
from fastapi import APIRouter, Request, Response

from rose.server.body import parse_body
from rose.server.conversation import conversation_from_chat
from rose.server.engine_client import EngineClient, EngineState
from rose.server.engines import Engines
from rose.server.errors import ApiError
from rose.server.front_end import FrontEnd, encode_text, render
from rose.server.http import read_body
from rose.server.metrics import CONTENT_TYPE
from rose.server.openapi import json_body
from rose.server.token_types import DetokenizeRequest, TokenizeRequest
from rose.version import __version__


def meta_router(front_end: FrontEnd) -> APIRouter:
    """The routes."""
    router = APIRouter()
    most = front_end.policy.limits.max_body_bytes

    @router.head("/health", include_in_schema=False)
    @router.get("/health")
    async def health() -> Response:
        return _health(front_end.client)

    @router.head("/ready", include_in_schema=False)
    @router.get("/ready")
    async def ready() -> Response:
        return await _ready(front_end)

    @router.get("/version")
    async def version() -> Response:
        return _json({"version": __version__})

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(front_end.metrics.render(), media_type=CONTENT_TYPE)

    @router.get("/v1/models")
    async def models() -> Response:
        return _json({"object": "list", "data": [_model(front_end)]})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        front_end.require_model(name)
        return _json(_model(front_end))

    @router.post("/tokenize", openapi_extra=json_body(TokenizeRequest))
    async def tokenize(request: Request) -> Response:
        raw = await read_body(request, most)
        return await _tokenize(front_end, parse_body(TokenizeRequest, raw), len(raw))

    @router.post("/detokenize", openapi_extra=json_body(DetokenizeRequest))
    async def detokenize(request: Request) -> Response:
        raw = await read_body(request, most)
        return await _detokenize(front_end, parse_body(DetokenizeRequest, raw))

    return router


async def _tokenize(front_end: FrontEnd, body: TokenizeRequest, size: int) -> Response:
    body.check()
    info = front_end.info()
    if body.model is not None:
        front_end.require_name(body.model)
    if body.messages is None:
        tokens = await encode_text(await front_end.require_codec(), body.prompt or "")
    else:
        chat_format, _ = await front_end.chat()
        conversation = conversation_from_chat(
            body.messages, tools=body.tools, reasoning_effort=body.reasoning_effort
        )
        tokens = await render(chat_format, conversation, size=size, field="messages")
    return _json({"tokens": tokens, "count": len(tokens), "max_model_len": info.max_model_len})


async def _detokenize(front_end: FrontEnd, body: DetokenizeRequest) -> Response:
    if body.model is not None:
        front_end.require_name(body.model)
    codec = await front_end.require_codec()
    text = codec.decode(body.tokens, skip_special_tokens=bool(body.skip_special_tokens))
    return _json({"prompt": text})


def _health(client: Engines) -> Response:
    fields: dict[str, object] = {"status": client.state.value}
    if client.state is EngineState.READY:
        status = 200
        ready = next(one for one in client.engines if one.state is EngineState.READY)
        fields |= _condition(ready)
        fields["running"] = sum(one.stats.running for one in client.engines)
        fields["waiting"] = sum(one.stats.waiting for one in client.engines)
    else:
        status = 503
        fields["reason"] = client.reason
    if len(client.engines) > 1:
        fields["engines"] = [
            {"endpoint": one.endpoint, "status": one.state.value, **_condition(one)}
            for one in client.engines
        ]
    return _json(fields, status)


def _condition(engine: EngineClient) -> dict[str, object]:
    if engine.state is not EngineState.READY or engine.info is None:
        return {"reason": engine.reason}
    return {
        "model": engine.info.model,
        "engine": engine.info.description,
        "running": engine.stats.running,
        "waiting": engine.stats.waiting,
        "heartbeat_age_s": round(time.monotonic() - engine.heard_at, 3),
    }


async def _ready(front_end: FrontEnd) -> Response:
    """Whether a request that came now would be served.

    Raises:
        UserError: the model's tokenizer cannot be used; /v1 would answer the same.
        ApiError: the engine is not ready, or the queue is full (503).
    """
    if front_end.client.state is not EngineState.READY:
        raise front_end.unavailable()
    await front_end.text()
    if front_end.queue.full:
        raise ApiError(503, "the queue is full", kind="server_error", code="queue_full")
    return _json({"ready": True})


def _model(front_end: FrontEnd) -> dict[str, object]:
    info = front_end.info()
    return {
        "id": info.model,
        "object": "model",
        "created": front_end.created,
        "owned_by": "rose",
        "max_model_len": info.max_model_len,
    }


def _json(fields: dict[str, object], status: int = 200) -> Response:
    return Response(msgspec.json.encode(fields), status, media_type="application/json")

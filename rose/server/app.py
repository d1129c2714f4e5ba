"""The HTTP routes of the front end."""

import asyncio
import time
from typing import TypeVar

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError

from rose.protocol import InvalidRequestError
from rose.server import errors
from rose.server.answering import answer
from rose.server.chat_completions import make_chat_call
from rose.server.chat_types import ChatCompletionRequest
from rose.server.completions import CompletionCall
from rose.server.detokenize import TextCodec
from rose.server.engine_client import EngineClient, EngineState
from rose.server.engines import Engines
from rose.server.front_end import LONG_TEXT, FrontEnd
from rose.server.http import read_body
from rose.server.metrics import CONTENT_TYPE
from rose.server.openai_types import CompletionRequest, Prompt
from rose.server.openapi import describe_bodies, json_body
from rose.server.responses.routes import responses_router
from rose.version import __version__

__all__ = ["FrontEnd", "create_app"]

Body = TypeVar("Body", bound=BaseModel)


def create_app(front_end: FrontEnd) -> FastAPI:
    """The application. Its client must be entered, and is not closed."""
    app = FastAPI(title="Rose", version=__version__, redirect_slashes=False)
    errors.install(app)
    _add_plain_routes(app, front_end)

    # Bodies are parsed here and not by the framework: in one pass from bytes, whatever the
    # content type says.
    @app.post("/v1/completions", openapi_extra=json_body(CompletionRequest))
    async def completions(request: Request) -> Response:
        body = _parse(CompletionRequest, await read_body(request))
        return await _complete(front_end, request, body)

    @app.post("/v1/chat/completions", openapi_extra=json_body(ChatCompletionRequest))
    async def chat_completions(request: Request) -> Response:
        raw = await read_body(request)
        body = _parse(ChatCompletionRequest, raw)
        call = await make_chat_call(front_end, body, len(raw))
        return await answer(front_end, request, call, stream=bool(body.stream))

    app.include_router(responses_router(front_end))
    describe_bodies(app)
    return app


def _add_plain_routes(app: FastAPI, front_end: FrontEnd) -> None:
    """Those that ask the engine for nothing."""

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> Response:
        return _health(front_end.client)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(front_end.metrics.render(), media_type=CONTENT_TYPE)

    @app.get("/v1/models")
    async def models() -> Response:
        return _json({"object": "list", "data": [_model(front_end)]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        front_end.require_model(name)
        return _json(_model(front_end))


def _parse(kind: type[Body], raw: bytes) -> Body:
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise errors.from_validation(error) from None


async def _complete(front_end: FrontEnd, request: Request, body: CompletionRequest) -> Response:
    front_end.require_model(body.model)
    body.check()
    codec = await front_end.codec()
    prompts = [await _token_ids(codec, prompt) for prompt in body.prompts()]
    call = CompletionCall(body, prompts, codec=codec, model=body.model)
    return await answer(front_end, request, call, stream=bool(body.stream))


async def _token_ids(codec: TextCodec | None, prompt: Prompt) -> list[int]:
    if isinstance(prompt, list):
        return prompt
    if codec is None:
        raise InvalidRequestError(
            "prompt is text, and this model has no tokenizer.json; post a list of token ids",
            "prompt",
        )
    if len(prompt) > LONG_TEXT:
        return await asyncio.to_thread(codec.encode, prompt)
    return codec.encode(prompt)


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

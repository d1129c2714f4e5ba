"""The HTTP routes of the front end."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import ValidationError

from rose.protocol import EngineInfo, InvalidRequestError, RequestOutput
from rose.server import errors
from rose.server.completions import CompletionCall
from rose.server.detokenize import TextCodec
from rose.server.engine_client import EngineClient, EngineState, Generation
from rose.server.errors import ApiError
from rose.server.http import EventStream, read_body, unless_client_leaves
from rose.server.metrics import CONTENT_TYPE, CallTimer, Metrics
from rose.server.openai_types import CompletionRequest, Prompt
from rose.version import __version__

log = logging.getLogger("rose.server")

LONG_TEXT = 10_000
"""Texts of more characters are tokenised in a thread, lest other streams stall."""


class FrontEnd:
    """What the routes share: the engine, its tokenizer and the metrics.

    Args:
        client: a connection to the engine.
        tokenizer_folder: holds tokenizer.json; None: the folder of the engine's checkpoint.
    """

    def __init__(self, client: EngineClient, tokenizer_folder: Path | None) -> None:
        self.client = client
        self.metrics = Metrics(client)
        self.created = int(time.time())
        self._tokenizer_folder = tokenizer_folder
        self._codecs: dict[Path, TextCodec | None] = {}
        self._loading = asyncio.Lock()

    async def codec(self) -> TextCodec | None:
        """The model's tokenizer, read on first use; None: there is none.

        Raises:
            TokenizerError: it is unusable.
        """
        folder = self._tokenizer_folder or Path(self.info().model_path)
        async with self._loading:
            if folder not in self._codecs:
                self._codecs[folder] = await asyncio.to_thread(TextCodec.load, folder)
        return self._codecs[folder]

    def info(self) -> EngineInfo:
        """The engine's description.

        Raises:
            ApiError: none has been ready yet.
        """
        if self.client.info is None:
            raise self.unavailable()
        return self.client.info

    def require_model(self, model: str) -> None:
        """Refuse a model of another name, and any while no engine is ready.

        Raises:
            ApiError: 404 or 503.
        """
        served = self.info().model
        if model != served:
            message = f"the model {model!r} does not exist; this server has {served!r}"
            raise ApiError(404, message, param="model", code="model_not_found")
        if self.client.state is not EngineState.READY:
            raise self.unavailable()

    def unavailable(self) -> ApiError:
        """The answer while the engine takes no requests."""
        code = f"engine_{self.client.state}"
        return ApiError(503, self.client.reason, kind="server_error", code=code)


def create_app(front_end: FrontEnd) -> FastAPI:
    """The application. Its client must be entered, and is not closed."""
    app = FastAPI(title="Rose", version=__version__, redirect_slashes=False)
    errors.install(app)

    @app.api_route("/health", methods=["GET", "HEAD"])
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

    body_schema = {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": CompletionRequest.model_json_schema()}},
        }
    }

    # The body is parsed here and not by the framework: in one pass from bytes, whatever the
    # content type says.
    @app.post("/v1/completions", openapi_extra=body_schema)
    async def completions(request: Request) -> Response:
        try:
            body = CompletionRequest.model_validate_json(await read_body(request))
        except ValidationError as error:
            raise errors.from_validation(error) from None
        return await _complete(front_end, request, body)

    return app


async def _complete(front_end: FrontEnd, request: Request, body: CompletionRequest) -> Response:
    front_end.require_model(body.model)
    body.check()
    codec = await front_end.codec()
    prompts = [await _token_ids(codec, prompt) for prompt in body.prompts()]
    call = CompletionCall(body, prompts, codec=codec, model=body.model)
    timer = front_end.metrics.start()
    generation = front_end.client.generate(call.requests)
    streaming = False

    def end() -> None:
        generation.close()
        timer.end()

    try:
        if not body.stream:
            answer = await unless_client_leaves(request, _whole(call, generation, timer))
            return Response(answer, media_type="application/json")
        # Until the engine's first answer a refusal is still an HTTP status of its own. (Of several
        # prompts, one may be refused after another began: then the stream ends with the error.)
        first = await unless_client_leaves(request, _next(generation))
        streaming = True
        return EventStream(_events(call, generation, timer, first), end)
    except InvalidRequestError:
        timer.outcome = "refused"
        raise
    except Exception as error:
        timer.outcome = "aborted" if isinstance(error, errors.ClientGoneError) else "failed"
        raise
    finally:
        if not streaming:
            end()


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


async def _next(generation: Generation) -> list[RequestOutput]:
    return await anext(generation)


async def _whole(call: CompletionCall, generation: Generation, timer: CallTimer) -> bytes:
    deltas = call.empty_wholes()
    async for outputs in generation:
        timer.observe(outputs)
        for number, delta in call.feed(outputs):
            deltas[number].add(delta)
        for request_id, index in call.take_cut_short():
            generation.finish(request_id, index)
    timer.outcome = "completed"
    return call.whole(deltas)


async def _events(
    call: CompletionCall, generation: Generation, timer: CallTimer, first: Sequence[RequestOutput]
) -> AsyncIterator[bytes]:
    """The events of a stream. Once it has begun, an error is an event too, and the last one."""
    outputs = list(first)
    try:
        while outputs:
            timer.observe(outputs)
            events = b"".join([call.chunk(number, delta) for number, delta in call.feed(outputs)])
            for request_id, index in call.take_cut_short():
                generation.finish(request_id, index)
            if events:
                yield events
            outputs = await anext(generation, [])
    except Exception as error:
        answer = errors.from_exception(error)
        if answer.status == 500:
            log.error("a stream failed", exc_info=error)
        timer.outcome = "failed"
        yield b"data: %b\n\n" % answer.body()
        return
    timer.outcome = "completed"
    yield call.closing_chunks()


def _health(client: EngineClient) -> Response:
    fields: dict[str, object] = {"status": client.state.value}
    if client.state is EngineState.READY and client.info is not None:
        fields |= {
            "model": client.info.model,
            "engine": client.info.description,
            "running": client.stats.running,
            "waiting": client.stats.waiting,
            "heartbeat_age_s": round(time.monotonic() - client.heard_at, 3),
        }
        return _json(fields)
    fields["reason"] = client.reason
    return _json(fields, status=503)


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

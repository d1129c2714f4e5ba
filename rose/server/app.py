"""The application: all routes of the front end, and what stands before them."""

from fastapi import FastAPI, Request, Response
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from rose.server import errors
from rose.server.answering import answer
from rose.server.auth import KeyGate
from rose.server.body import parse_body
from rose.server.chat_completions import make_chat_call
from rose.server.chat_types import ChatCompletionRequest
from rose.server.completions import CompletionCall
from rose.server.front_end import FrontEnd, encode_text
from rose.server.http import read_body
from rose.server.meta_routes import meta_router
from rose.server.openai_types import CompletionRequest, Prompt
from rose.server.openapi import describe_bodies, json_body
from rose.server.policy import Policy
from rose.server.request_log import RequestLog, to_stderr
from rose.server.responses.routes import responses_router
from rose.version import __version__

__all__ = ["FrontEnd", "create_app"]

EXPOSED_HEADERS = ("X-Request-ID", "Retry-After")
"""To pages of other origins."""


class _App(FastAPI):
    """The routes behind the policy's gates.

    The gates stand outside of all that the framework adds, so that what it answers by itself, to
    bugs too, has their headers and is in the log.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(title="Rose", version=__version__, redirect_slashes=False)
        self._policy = policy

    def build_middleware_stack(self) -> ASGIApp:
        """All that a request passes, from the outside in (the framework calls this once)."""
        app: ASGIApp = KeyGate(super().build_middleware_stack(), self._policy.keys)
        if self._policy.cors_origins:
            app = CORSMiddleware(
                app,
                allow_origins=self._policy.cors_origins,
                allow_methods=("GET", "POST", "DELETE"),
                allow_headers=("*",),
                expose_headers=EXPOSED_HEADERS,
            )
        return RequestLog(app, to_stderr if self._policy.access_log else None)


def create_app(front_end: FrontEnd) -> FastAPI:
    """The application. Its client must be entered, and is not closed."""
    policy = front_end.policy
    app = _App(policy)
    errors.install(app)
    app.include_router(meta_router(front_end))

    @app.post("/v1/completions", openapi_extra=json_body(CompletionRequest))
    async def completions(request: Request) -> Response:
        front_end.queue.check()
        raw = await read_body(request, policy.limits.max_body_bytes)
        await front_end.queue.turn()
        return await _complete(front_end, request, parse_body(CompletionRequest, raw))

    @app.post("/v1/chat/completions", openapi_extra=json_body(ChatCompletionRequest))
    async def chat_completions(request: Request) -> Response:
        front_end.queue.check()
        raw = await read_body(request, policy.limits.max_body_bytes)
        await front_end.queue.turn()
        body = parse_body(ChatCompletionRequest, raw)
        call = await make_chat_call(front_end, body, len(raw))
        return await answer(front_end, request, call, stream=bool(body.stream))

    app.include_router(responses_router(front_end, policy.stored))
    describe_bodies(app)
    return app


async def _complete(front_end: FrontEnd, request: Request, body: CompletionRequest) -> Response:
    front_end.require_model(body.model)
    body.check()
    prompts = [await _token_ids(front_end, prompt) for prompt in body.prompts()]
    call = CompletionCall(body, prompts, codec=await front_end.codec(), model=body.model)
    return await answer(front_end, request, call, stream=bool(body.stream))


async def _token_ids(front_end: FrontEnd, prompt: Prompt) -> list[int]:
    if isinstance(prompt, list):
        return prompt
    return await encode_text(await front_end.require_codec(), prompt)

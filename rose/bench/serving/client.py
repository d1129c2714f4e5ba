"""One request over HTTP: what is posted, and when each token of the answer came."""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

import aiohttp
import msgspec

from rose.bench.results import RequestSample
from rose.bench.serving.counted import INTERRUPTED
from rose.bench.serving.plan import Asked
from rose.bench.serving.sse import EventParser, StreamError
from rose.bench.serving.tokens import Output, ServerError

Api = Literal["completions", "chat"]

IDLE_S = 2.0
"""How long a connection is kept for another request: less than servers do (uvicorn: 5 s), so that
none is written to while the server closes it."""

MAX_ERROR_BYTES = 10_000
_DONE = b"[DONE]"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server and how to ask it.

    Attributes:
        url: of its API, with /v1.
        api: which of the two endpoints.
        model: to ask for.
        api_key: opens it; None: it needs none.
        fields: of the body besides the prompt, model and budget.
        timeout: seconds from when a request was due to its end.
    """

    url: str
    api: Api
    model: str
    api_key: str | None
    fields: dict[str, object]
    timeout: float

    @property
    def endpoint(self) -> str:
        """Where requests are posted."""
        return self.url + ("/completions" if self.api == "completions" else "/chat/completions")

    def body(self, asked: Asked) -> bytes:
        """The JSON to post."""
        head = {"model": self.model, "max_tokens": asked.output_tokens, "stream": True}
        if self.api == "completions":
            head["prompt"] = asked.prompt
        else:
            head["messages"] = [{"role": "user", "content": asked.prompt}]
        return msgspec.json.encode(head | self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request about to be sent.

    Attributes:
        number: of the request in the plan.
        body: to post.
        scheduled: when it was due, by `time.monotonic`.
        prompt_tokens: of the prompt; 0: it is text.
        asked_tokens: of output.
        warmup: no part of the statistics.
    """

    number: int
    body: bytes
    scheduled: float
    prompt_tokens: int
    asked_tokens: int
    warmup: bool


class _RefusedError(Exception):
    """An answer that is no stream; the message is the error's kind and details."""


def open_session(target: Target) -> aiohttp.ClientSession:
    """Connections to a server, as many as are needed."""
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if target.api_key is not None:
        headers["Authorization"] = f"Bearer {target.api_key}"
    return aiohttp.ClientSession(
        headers=headers,
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
        timeout=aiohttp.ClientTimeout(total=None),
    )


class Client:
    """Sends requests and times what comes back.

    Args:
        target: the server.
        session: its connections, which the caller closes.
        origin: the load's start, by `time.monotonic`; samples count from it.
    """

    def __init__(self, target: Target, session: aiohttp.ClientSession, origin: float) -> None:
        self._target, self._session, self._origin = target, session, origin

    async def send(self, order: Order) -> RequestSample:
        """Send one and read the answer to its end; whatever goes wrong is in the sample.

        Cancelling it ends the request, whose sample is then marked as interrupted.
        """
        sent = time.monotonic()
        output = Output()
        left = order.scheduled + self._target.timeout - sent
        error: str | None = None
        try:
            async with asyncio.timeout(left):
                await self._receive(order.body, output)
        except asyncio.CancelledError:
            error = INTERRUPTED
        except TimeoutError:
            error = f"timeout: no end within {self._target.timeout:g} s"
        except _RefusedError as refused:
            error = str(refused)
        except ServerError as told:
            error = f"server error: {one_line(str(told))}"
        except StreamError as broken:
            error = f"bad stream: {broken}"
        except (aiohttp.ClientError, OSError) as failed:
            error = f"connection: {one_line(str(failed)) or type(failed).__name__}"
        return self._sample(order, sent, output, error)

    async def _receive(self, body: bytes, output: Output) -> None:
        parser = EventParser()
        done = False
        post = self._session.post(self._target.endpoint, data=body, allow_redirects=False)
        async with post as response:
            await _check_streams(response)
            async for received in response.content.iter_any():
                now = time.monotonic()
                for data in parser.feed(received):
                    if done:
                        raise StreamError(f"an event after [DONE]: {data[:80]!r}")
                    if data == _DONE:
                        done = True
                    else:
                        output.take(data, now)
        if not done:
            raise StreamError("it ended without [DONE]")

    def _sample(
        self, order: Order, sent: float, output: Output, error: str | None
    ) -> RequestSample:
        finished = time.monotonic()
        times, counts = output.times_and_counts()
        if error is None and not times:
            error = "no output: the answer has no token"
        usage = output.usage
        return RequestSample(
            scheduled=order.scheduled - self._origin,
            sent=sent - self._origin,
            token_times=[at - self._origin for at in times],
            token_counts=counts,
            finished=finished - self._origin,
            prompt_tokens=usage.prompt_tokens if usage else order.prompt_tokens,
            output_tokens=sum(counts),
            asked_tokens=order.asked_tokens,
            error=error,
            warmup=order.warmup,
        )


async def _check_streams(response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        said = await response.content.read(MAX_ERROR_BYTES)
        raise _RefusedError(f"http {response.status}: {error_message(said)}")
    if response.content_type != "text/event-stream":
        raise StreamError(f"the answer is {response.content_type}, no stream of events")


class _ErrorBody(msgspec.Struct):
    message: str


class _Error(msgspec.Struct):
    error: _ErrorBody | str | None = None
    message: str | None = None


def error_message(body: bytes) -> str:
    """What an answer with an error says, in OpenAI's form or any other; one line."""
    try:
        found = msgspec.json.decode(body, type=_Error)
        inner = found.error.message if isinstance(found.error, _ErrorBody) else found.error
        text = inner or found.message
    except msgspec.DecodeError:
        text = None
    return one_line(text or body.decode(errors="replace")) or "nothing"


def one_line(text: str) -> str:
    """The beginning of what another program says, without what would do things to a terminal."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(plain.split())[:300]

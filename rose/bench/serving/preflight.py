"""Before a load: which model the server has, and which fields of a request it takes."""

from dataclasses import replace
from typing import Annotated

import aiohttp
import msgspec

from rose.bench.results import MOST_LETTERS, PLAIN_NAME, BenchError
from rose.bench.serving.client import MAX_ERROR_BYTES, Target, error_message, one_line, open_session
from rose.bench.serving.plan import Asked

SECONDS = 300.0
"""A first request may compile kernels."""

LOOK_UP_S = 30.0
"""What a server knows by heart takes no longer."""

MOST_BYTES = 2**24
"""Of an answer."""

OPTIONAL = ("ignore_eos", "stream_options", "return_token_ids")
"""Fields that a server need not know; without them, less is exact."""

_PROBE_TOKENS = 4

VOCABULARIES = (32_000, 16_000, 8_000, 4_000, 2_000, 1_000)
"""Sizes to try, in this order, where none is given. The first leaves out the control tokens of all
usual models; the others are for small ones."""


_Name = Annotated[str, msgspec.Meta(pattern=PLAIN_NAME, max_length=MOST_LETTERS)]


class _Model(msgspec.Struct):
    id: _Name
    owned_by: _Name = ""


class _Models(msgspec.Struct):
    data: list[_Model]


class _Version(msgspec.Struct):
    version: _Name


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the server turned out to be.

    Attributes:
        target: how to ask it.
        engine: its name and version, as "vllm 0.11.0", so far as it tells them.
        vocab_size: whose ids it takes.
        notes: what it was asked without, or differently.
    """

    target: Target
    engine: str
    vocab_size: int
    notes: list[str]


def api_url(url: str) -> str:
    """The URL of a server's API; /v1 at the end may be left out.

    Raises:
        BenchError: it is none of HTTP.
    """
    if not url.startswith(("http://", "https://")):
        raise BenchError(f"URL must begin with http:// or https://; got {url!r}")
    return url.rstrip("/").removesuffix("/v1") + "/v1"


async def explore(target: Target, vocab_size: int | None) -> Found:
    """Find the model and what the server takes, by one short request or a few.

    Args:
        target: `model` may be empty: the first that the server has; OPTIONAL fields that the server
            refuses by name are dropped.
        vocab_size: whose ids to ask with; None: try.

    Raises:
        BenchError: there is no server, it has no such model, or refuses the request itself.
    """
    async with open_session(target) as session:
        models = await _models(session, target.url)
        if not target.model:
            target = replace(target, model=models[0].id)
        named = [model for model in models if model.id == target.model]
        if not named:
            have = ", ".join(model.id for model in models)
            raise BenchError(f"{target.url} has no model {target.model!r}; it has {have}")
        version = await _version(session, target.url)
        engine = f"{named[0].owned_by or 'unknown server'} {version}".strip()
        return await _agree(session, target, engine, vocab_size)


async def _agree(
    session: aiohttp.ClientSession, target: Target, engine: str, vocab_size: int | None
) -> Found:
    """Drop what is refused until a request is served."""
    notes: list[str] = []
    sizes = [vocab_size] if vocab_size is not None else list(VOCABULARIES)
    while True:
        refusal = await _probe(session, target, sizes[0])
        if refusal is None:
            break
        status, raw = refusal
        said = error_message(raw)
        named = [name for name in OPTIONAL if name in target.fields and name.encode() in raw]
        if status not in (400, 422):
            raise BenchError(f"{target.endpoint} answers {status}: {said}")
        if named:
            rest = {name: value for name, value in target.fields.items() if name != named[0]}
            target = replace(target, fields=rest)
            notes.append(f"the server refuses the field {named[0]}; asked without")
        elif target.api == "completions" and len(sizes) > 1:
            sizes.pop(0)
        else:
            raise BenchError(
                f"{target.endpoint} answers {status} to token ids below {sizes[0]}: {said}"
                if target.api == "completions"
                else f"{target.endpoint} answers {status}: {said}"
            )
    return Found(target=target, engine=engine, vocab_size=sizes[0], notes=notes)


async def _probe(
    session: aiohttp.ClientSession, target: Target, vocab_size: int
) -> tuple[int, bytes] | None:
    """Status and body of a refusal; None: it was served."""
    ids = [vocab_size - 1 - i for i in range(_PROBE_TOKENS)]
    prompt = ids if target.api == "completions" else "the rose"
    body = target.body(Asked(prompt, _PROBE_TOKENS))
    status, said = await _exchange(session, "POST", target.endpoint, body)
    return None if status == 200 else (status, said)


async def _models(session: aiohttp.ClientSession, url: str) -> list[_Model]:
    status, said = await _exchange(session, "GET", f"{url}/models", None)
    if status != 200:
        raise BenchError(f"{url}/models answers {status}: {error_message(said)}")
    try:
        models = msgspec.json.decode(said, type=_Models).data
    except msgspec.DecodeError as error:
        raise BenchError(f"{url}/models is no list of models: {error}") from None
    if not models:
        raise BenchError(f"{url} has no model")
    return models


async def _version(session: aiohttp.ClientSession, url: str) -> str:
    """Of the server; empty: it tells none, as it need not."""
    status, said = await _exchange(session, "GET", url.removesuffix("/v1") + "/version", None)
    try:
        return msgspec.json.decode(said, type=_Version).version if status == 200 else ""
    except msgspec.DecodeError:
        return ""


async def _exchange(
    session: aiohttp.ClientSession, method: str, url: str, body: bytes | None
) -> tuple[int, bytes]:
    """Status and body of one answer; of an error, its beginning.

    Raises:
        BenchError: there is none.
    """
    seconds = LOOK_UP_S if method == "GET" else SECONDS
    timeout = aiohttp.ClientTimeout(total=seconds)
    request = session.request(method, url, data=body, timeout=timeout, allow_redirects=False)
    try:
        async with request as response:
            if 300 <= response.status < 400:
                to = response.headers.get("Location", "nowhere")
                raise BenchError(f"{url} sends on to {to!r}; give the URL of the server itself")
            if response.status != 200:
                return response.status, await response.content.read(MAX_ERROR_BYTES)
            return response.status, await _read_all(response, url)
    except TimeoutError:
        raise BenchError(f"{url} did not answer to the end within {seconds:g} s") from None
    except BenchError:
        raise
    except (aiohttp.ClientError, OSError, ValueError) as error:
        why = one_line(str(error)) or type(error).__name__
        raise BenchError(f"cannot reach {url}: {why}") from None


async def _read_all(response: aiohttp.ClientResponse, url: str) -> bytes:
    """Unlike the library's own, with a bound: a server may send without end."""
    found = bytearray()
    async for part in response.content.iter_any():
        found += part
        if len(found) > MOST_BYTES:
            raise BenchError(f"{url} answers with over {MOST_BYTES} bytes")
    return bytes(found)

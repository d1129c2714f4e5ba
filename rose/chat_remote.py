"""The assistant of a chat, on a server that speaks OpenAI's chat completions API."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from typing import cast

from rose.protocol import UserError
from rose.server.chat.format import (
    ContentDelta,
    Conversation,
    Delta,
    FunctionTool,
    Message,
    ReasoningDelta,
    ToolCallDelta,
)

SILENCE_S = 300.0
"""A server that says nothing for so long has hung."""

MAX_ERROR_BYTES = 10_000

Json = dict[str, object]


class ChatServerError(UserError):
    """The server refused, failed, or is none; the message says which."""


class ServerSpeaker:
    """Speaks by a server.

    Args:
        url: of its API, such as http://127.0.0.1:8000; a /v1 at the end may be left out.
        api_key: opens it; None: it needs none.
        temperature: 0 is greedy; None: the server's choice.

    Attributes:
        model: asked for; empty until `choose_model`.
    """

    def __init__(self, url: str, api_key: str | None, temperature: float | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ChatServerError(f"{url!r} must begin with http:// or https://")
        self.model = ""
        self._url = url.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._temperature = temperature

    def choose_model(self, wanted: str | None) -> None:
        """Take this model; None: the first that the server has.

        Raises:
            ChatServerError: it has none, or not this one.
        """
        with self._open("/models", None) as response:
            listed = _object(response.read()).get("data")
        ids = [str(model["id"]) for model in cast(list[Json], listed or [])]
        if not ids or (wanted is not None and wanted not in ids):
            raise ChatServerError(f"{self._url} has {', '.join(ids) or 'no model'}; not {wanted}")
        self.model = wanted or ids[0]

    def turn(self, conversation: Conversation) -> Iterator[Delta]:
        """One turn of the assistant, as it comes.

        Raises:
            ChatServerError: the server refused it, or failed.
        """
        body: Json = {
            "model": self.model,
            "messages": posted_messages(conversation.messages),
            "reasoning_effort": conversation.reasoning_effort,
            "stream": True,
        }
        if conversation.tools:
            body["tools"] = [_tool(tool) for tool in conversation.tools]
        if self._temperature is not None:
            body["temperature"] = self._temperature
        with self._open("/chat/completions", body) as response:
            try:
                yield from _deltas(response)
            except (OSError, HTTPException) as error:
                raise ChatServerError(f"the answer of {self._url} broke off: {error}") from None

    def _open(self, path: str, body: Json | None) -> HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self._url + path, data, self._headers)
            return cast(HTTPResponse, urllib.request.urlopen(request, timeout=SILENCE_S))
        except urllib.error.HTTPError as error:
            with error:
                said = _error_message(error.read(MAX_ERROR_BYTES))
            raise ChatServerError(f"{self._url} answers {error.code}: {said}") from None
        except urllib.error.URLError as error:
            raise ChatServerError(f"cannot reach {self._url}: {error.reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise ChatServerError(f"cannot reach {self._url}: {error}") from None


def posted_messages(messages: Iterable[Message]) -> list[Json]:
    """Messages in the form of chat completions: one a turn, results with the ids of their calls."""
    posted: list[Json] = []
    open_calls: list[str] = []
    number = 0
    for message in messages:
        if message.role == "tool":
            call_id = open_calls.pop(0)
            posted.append({"role": "tool", "tool_call_id": call_id, "content": message.content})
        elif message.role != "assistant":
            posted.append({"role": message.role, "content": message.content})
        else:
            if not posted or posted[-1]["role"] != "assistant":
                posted.append({"role": "assistant"})
            if message.recipient is not None:
                number += 1
                open_calls.append(f"call_{number}")
            _add_to_turn(posted[-1], message, f"call_{number}")
    return posted


def _add_to_turn(turn: Json, message: Message, call_id: str) -> None:
    if message.recipient is not None:
        function = {"name": message.recipient, "arguments": message.content}
        calls = cast(list[Json], turn.setdefault("tool_calls", []))
        calls.append({"id": call_id, "type": "function", "function": function})
        return
    field = "reasoning" if message.channel == "analysis" else "content"
    turn[field] = str(turn.get(field, "")) + message.content


def _tool(tool: FunctionTool) -> Json:
    function: Json = {"name": tool.name, "description": tool.description}
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    return {"type": "function", "function": function}


def _deltas(lines: Iterable[bytes]) -> Iterator[Delta]:
    """The deltas of a stream of events."""
    for line in lines:
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        chunk = _object(data)
        if "error" in chunk:
            raise ChatServerError(_error_message(data))
        for choice in cast(list[Json], chunk.get("choices") or []):
            yield from _of_chunk(cast(Json, choice.get("delta") or {}))
    raise ChatServerError("the server's answer broke off")


def _of_chunk(delta: Json) -> Iterator[Delta]:
    reasoning = delta.get("reasoning") or delta.get("reasoning_content")
    if reasoning:
        yield ReasoningDelta(str(reasoning))
    if delta.get("content"):
        yield ContentDelta(str(delta["content"]))
    for call in cast(list[Json], delta.get("tool_calls") or []):
        function = cast(Mapping[str, str | None], call.get("function") or {})
        index = cast(int, call.get("index") or 0)
        yield ToolCallDelta(index, function.get("name"), function.get("arguments") or "")


def _object(data: bytes) -> Json:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ChatServerError(f"the server answers what is no JSON object: {data[:80]!r}")
    return found


def _error_message(data: bytes) -> str:
    """What an error says, in OpenAI's form or any other."""
    try:
        return str(json.loads(data)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return data[:200].decode(errors="replace") or "nothing"

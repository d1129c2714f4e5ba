"""The response object: what was asked, and what came of it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from rose.server.responses.items import Item
from rose.server.responses.request import ResponseRequest, Wanted

ResponseStatus = Literal["in_progress", "queued", "completed", "incomplete", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a response.

    Attributes:
        prompt: all of the prompt's.
        cached: of those, from the prefix cache.
        generated: all that the model wrote.
        reasoning: of those, its reasoning.
    """

    prompt: int
    cached: int
    generated: int
    reasoning: int

    def fields(self) -> dict[str, object]:
        """In OpenAI's form."""
        return {
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.generated,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.prompt + self.generated,
        }


class ResponseObject:
    """A response object in the making.

    Args:
        response_id: its id.
        body: what the client posted, checked.
        wanted: what its objects say.

    Attributes:
        background: whether it is made while nobody waits.
    """

    def __init__(self, response_id: str, body: ResponseRequest, wanted: Wanted) -> None:
        self.background = bool(body.background)
        fields = {
            "id": response_id,
            "object": "response",
            "created_at": int(time.time()),
            "model": body.model,
            **_settings(body, wanted),
        }
        self._head = msgspec.json.encode(fields)[:-1]  # the rest follows

    def encode(
        self,
        status: ResponseStatus,
        output: Sequence[Item],
        *,
        usage: Usage | None = None,
        error: Mapping[str, str] | None = None,
    ) -> bytes:
        """The object as JSON.

        Args:
            status: what became of it.
            output: its items.
            usage: once it has ended.
            error: code and message, if it failed.
        """
        fields = {
            "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "error": error,
            "incomplete_details": (
                {"reason": "max_output_tokens"} if status == "incomplete" else None
            ),
            "output": output,
            "usage": usage.fields() if usage else None,
        }
        return b"%b,%b" % (self._head, msgspec.json.encode(fields)[1:])


def _settings(body: ResponseRequest, wanted: Wanted) -> dict[str, object]:
    """What the client asked for, with what held where it said nothing."""
    reasoning = body.reasoning
    return {
        "background": bool(body.background),
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": (reasoning and reasoning.effort) or "medium", "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.stores(),
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {
            "format": wanted.text_format.model_dump(by_alias=True, exclude_none=True),
            "verbosity": "medium",
        },
        "tool_choice": body.tool_choice or "auto",
        "tools": [tool.model_dump() for tool in wanted.tools],
        "top_logprobs": 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }

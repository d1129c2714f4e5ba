"""What clients post to /tokenize and /detokenize."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rose.protocol import InvalidRequestError
from rose.server.chat_types import ChatMessage, Effort, Tool

MAX_TOKEN_ID = 2**31 - 1


class TokenizeRequest(BaseModel):
    """A raw text, or a chat as it would be rendered. Exactly one of `prompt` and `messages`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[Tool] | None = None
    reasoning_effort: Effort | None = None

    def check(self) -> None:
        """Refuse combinations that make no sense.

        Raises:
            InvalidRequestError: it names the field.
        """
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequestError("post either prompt or messages", "prompt")
        for field in ("tools", "reasoning_effort"):
            if self.messages is None and getattr(self, field) is not None:
                raise InvalidRequestError(f"{field} needs messages", field)


class DetokenizeRequest(BaseModel):
    """Token ids whose text is wanted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]]
    skip_special_tokens: bool | None = None

"""What all routes share: the engine, its tokenizer and chat format, and the metrics."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rose.protocol import EngineInfo, InvalidRequestError, UserError
from rose.server.chat.format import ChatFormat, Conversation
from rose.server.chat.registry import ChatFormatError, find_chat_format
from rose.server.collector import spare_long_lived_objects
from rose.server.detokenize import TextCodec
from rose.server.engine_client import EngineState
from rose.server.engines import Engines
from rose.server.errors import ApiError
from rose.server.limits import Queue
from rose.server.metrics import Metrics
from rose.server.policy import Policy

T = TypeVar("T")

log = logging.getLogger("rose.server")

LONG_TEXT = 10_000
"""More characters than this are worked at in a thread, lest other streams stall."""


@dataclass(frozen=True, slots=True)
class ModelText:
    """How a model's token ids and text go together.

    Attributes:
        codec: its tokenizer; None: it has none.
        chat_format: how it is chatted with; None: not at all.
        no_chat: why not.
    """

    codec: TextCodec | None
    chat_format: ChatFormat | None
    no_chat: str = ""

    @classmethod
    def load(cls, folder: Path, chat_format: str | None) -> "ModelText":
        """Read the tokenizer and find the chat format.

        Args:
            folder: of the checkpoint, or of its tokenizer.
            chat_format: by name; None: what the folder's files call for, if anything.

        Raises:
            TokenizerError: the tokenizer is unusable.
            ChatFormatError: the named format cannot be had.
        """
        codec = TextCodec.load(folder)
        try:
            return cls(codec, find_chat_format(folder, codec, chat_format))
        except ChatFormatError as error:
            if chat_format is not None:
                raise
            log.warning("no chats, only completions: %s", error)
            return cls(codec, None, str(error))


class FrontEnd:
    """What the routes share.

    Args:
        client: a connection to the engine, or a router before several.
        tokenizer_folder: holds tokenizer.json; None: the folder of the engine's checkpoint.
        chat_format: name of the chat format; None: found from that folder.
        policy: about clients; None: open to all, with the usual limits.

    Attributes:
        queue: the calls that run or wait.
    """

    def __init__(
        self,
        client: Engines,
        tokenizer_folder: Path | None,
        chat_format: str | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.client = client
        self.policy = policy or Policy()
        self.queue = Queue(self.policy.limits.max_queue)
        self.metrics = Metrics(client)
        self.created = int(time.time())
        self._tokenizer_folder = tokenizer_folder
        self._chat_format = chat_format
        self._texts: dict[Path, ModelText] = {}
        self._loading = asyncio.Lock()

    async def text(self) -> ModelText:
        """The model's tokenizer and chat format, read on first use.

        Raises:
            TokenizerError: the tokenizer is unusable.
            ChatFormatError: the chat format that was asked for cannot be had.
        """
        folder = self._tokenizer_folder or Path(self.info().model_path)
        async with self._loading:
            if folder not in self._texts:
                self._texts[folder] = await asyncio.to_thread(
                    ModelText.load, folder, self._chat_format
                )
                spare_long_lived_objects()
        return self._texts[folder]

    async def codec(self) -> TextCodec | None:
        """The model's tokenizer; None: it has none. See `text`."""
        return (await self.text()).codec

    async def require_codec(self) -> TextCodec:
        """The model's tokenizer.

        Raises:
            InvalidRequestError: it has none.
        """
        codec = await self.codec()
        if codec is None:
            raise InvalidRequestError(
                "prompt is text, and this model has no tokenizer.json; post a list of token ids",
                "prompt",
            )
        return codec

    async def chat(self) -> tuple[ChatFormat, TextCodec]:
        """The model's chat format and tokenizer.

        Raises:
            ApiError: this model cannot be chatted with (400).
        """
        text = await self.text()
        if text.chat_format is None or text.codec is None:
            message = f"this model takes no chats: {text.no_chat}; post to /v1/completions"
            raise ApiError(400, message, code="no_chat_format")
        return text.chat_format, text.codec

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
        self.require_name(model)
        if self.client.state is not EngineState.READY:
            raise self.unavailable()

    def require_name(self, model: str) -> None:
        """Refuse a model of another name.

        Raises:
            ApiError: 404, or 503 if no engine has been ready yet.
        """
        served = self.info().model
        if model != served:
            message = f"the model {model!r} does not exist; this server has {served!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def unavailable(self) -> ApiError:
        """The answer while the engine takes no requests."""
        code = f"engine_{self.client.state}"
        return ApiError(503, self.client.reason, kind="server_error", code=code)


async def by_size(size: int, work: Callable[[], T]) -> T:
    """The result of work on so many characters or bytes; much of it is done in a thread."""
    if size > LONG_TEXT:
        return await asyncio.to_thread(work)
    return work()


async def encode_text(codec: TextCodec, text: str) -> list[int]:
    """Ids of a raw prompt; a long one is tokenised in a thread."""
    return await by_size(len(text), lambda: codec.encode(text))


async def render(
    chat_format: ChatFormat, conversation: Conversation, *, size: int, field: str
) -> list[int]:
    """The conversation's prompt; a large one is made in a thread.

    Args:
        chat_format: the model's.
        conversation: what to render.
        size: of the body that it came in, in bytes.
        field: of that body, for errors.

    Raises:
        InvalidRequestError: the format has no form for it.
    """
    try:
        return await by_size(size, lambda: chat_format.render(conversation))
    except InvalidRequestError:
        raise
    except UserError as error:
        raise InvalidRequestError(str(error), field) from None

"""POST /v1/chat/completions: one HTTP call, the engine request it makes and the answer."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from rose.protocol import FinishReason, Request, RequestOutput, TokenLogprobs
from rose.server.admission import PROMPT_FIELD
from rose.server.chat.format import (
    ChatFormat,
    ContentDelta,
    Conversation,
    Delta,
    JsonSchema,
    ReasoningDelta,
)
from rose.server.chat.turn import ParsedTurn
from rose.server.chat_turn import Turn, TurnDelta
from rose.server.chat_types import ChatCompletionRequest
from rose.server.conversation import conversation_from_chat, tool_choice_of
from rose.server.detokenize import TextCodec
from rose.server.errors import ApiError
from rose.server.front_end import FrontEnd, by_size, render
from rose.server.grammar import chat_grammar, gave_up

_encode = msgspec.json.encode
DONE = b"data: [DONE]\n\n"


async def make_chat_call(
    front_end: FrontEnd, body: ChatCompletionRequest, size: int
) -> "ChatCompletionCall":
    """The call that a body of so many bytes asks for.

    Raises:
        InvalidRequestError: the body asks for what cannot be; it names the field.
        ApiError: the model is another, is not ready, or takes no chats.
    """
    front_end.require_model(body.model)
    body.check()
    chat_format, codec = await front_end.chat()
    conversation = conversation_from_chat(
        body.messages,
        tools=body.tools,
        tool_choice=body.tool_choice,
        response_format=body.response_format,
        reasoning_effort=body.reasoning_effort,
    )
    choice = tool_choice_of(body.tool_choice)
    grammar = await by_size(
        size,
        lambda: chat_grammar(
            conversation,
            layout=chat_format.layout,
            response_format=_schema_to_follow(conversation),
            tool_choice=choice,
            strict_tools=[t.function.name for t in body.tools or () if t.function.strict],
        ),
    )
    request = Request(
        request_id=f"chatcmpl-{uuid.uuid4().hex}",
        prompt_token_ids=await render(chat_format, conversation, size=size, field="messages"),
        sampling=body.sampling(chat_format.stop_token_ids),
        priority=body.priority or 0,
        grammar=grammar,
    )
    turns = [_turn(body, chat_format, conversation, codec) for _ in range(body.num_choices())]
    return ChatCompletionCall(body, request, turns, codec)


def _schema_to_follow(conversation: Conversation) -> Literal["text"] | JsonSchema:
    schema = conversation.response_schema
    return "text" if schema is None else schema.schema


def _turn(
    body: ChatCompletionRequest,
    chat_format: ChatFormat,
    conversation: Conversation,
    codec: TextCodec,
) -> Turn:
    return Turn(
        chat_format.parser(conversation),
        stop_token_ids=chat_format.stop_token_ids,
        control_ids=codec.special_token_ids(),
        stop=body.stop_strings(),
        min_tokens=body.min_tokens or 0,
        parallel_calls=body.parallel_tool_calls is not False,
    )


class _Choice:
    """One choice of the answer.

    Attributes:
        turn: makes its deltas.
        whole: its deltas put together, unless they are streamed; with it, the rest that is told.
        begun: its role has been streamed.
    """

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.whole = ParsedTurn()
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: str | None = None
        self.begun = False

    def add(self, new: TurnDelta) -> None:
        """Keep what is new."""
        for delta in new.deltas:
            self.whole.add(delta)
        self.logprobs += new.logprobs
        self.finish_reason = new.finish_reason or self.finish_reason


class ChatCompletionCall:
    """Turns the outputs of a chat's engine request into OpenAI's chat completion objects.

    Args:
        body: what the client posted, checked.
        request: to submit to the engine.
        turns: one a choice.
        codec: the tokenizer.

    Attributes:
        requests: the one request.
        field_names: the body's name of each engine field that goes by another.
    """

    def __init__(
        self,
        body: ChatCompletionRequest,
        request: Request,
        turns: Sequence[Turn],
        codec: TextCodec,
    ) -> None:
        self.requests = [request]
        length = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
        self.field_names: Mapping[str, str] = {PROMPT_FIELD: "messages", "max_tokens": length}
        self._codec = codec
        self._choices = [_Choice(turn) for turn in turns]
        self._prompt_tokens = len(request.prompt_token_ids)
        self._cached_tokens = 0
        self._cut_short: list[tuple[str, int]] = []
        self._wants_logprobs = bool(body.logprobs)
        self._wants_top = body.top_logprobs or 0
        options = body.stream_options
        self._streams_usage = bool(options and options.include_usage)
        self._chunk_tail = b',"usage":null}\n\n' if self._streams_usage else b"}\n\n"
        self._fields: dict[str, object] = {
            "id": request.request_id,
            "created": int(time.time()),
            "model": body.model,
        }
        chunk = _encode(self._fields | {"object": "chat.completion.chunk"})
        self._chunk_head = b"data: %b" % chunk[:-1]  # without its closing brace: choices follow

    def collect(self, outputs: Sequence[RequestOutput]) -> None:
        """Take outputs of an answer that is not streamed."""
        for output in outputs:
            self._choices[output.index].add(self._feed(output))

    def events(self, outputs: Sequence[RequestOutput]) -> bytes:
        """Take outputs of a streamed answer; the events that they make, if any."""
        chunks: list[bytes] = []
        for output in outputs:
            new = self._feed(output)
            if new.deltas or new.finish_reason or not self._choices[output.index].begun:
                self._add_chunks(output.index, new, chunks)
        return b"".join(chunks)

    def take_cut_short(self) -> list[tuple[str, int]]:
        """Sequences (request id, index) that need to run no further, since the last call."""
        cut_short, self._cut_short = self._cut_short, []
        return cut_short

    def _feed(self, output: RequestOutput) -> TurnDelta:
        """What an output adds to its choice.

        Raises:
            InvalidRequestError, EngineDeadError: the engine gave up the sequence.
        """
        if output.finish_reason is FinishReason.ERROR:
            raise gave_up(self.requests[0].grammar)
        self._cached_tokens = max(self._cached_tokens, output.num_cached_tokens)
        turn = self._choices[output.index].turn
        new = turn.feed(output)
        if turn.finished and output.finish_reason is None:
            self._cut_short.append((output.request_id, output.index))
        return new

    def _add_chunks(self, number: int, new: TurnDelta, chunks: list[bytes]) -> None:
        choice = self._choices[number]
        if not choice.begun:
            choice.begun = True
            chunks.append(self._chunk(number, b'{"role":"assistant","content":""}'))
        for delta in new.deltas:
            logprobs: list[TokenLogprobs] | None = None
            if isinstance(delta, ContentDelta) and self._wants_logprobs:
                logprobs, new.logprobs = new.logprobs, []
            chunks.append(self._chunk(number, _delta_json(delta), logprobs))
        if new.finish_reason:
            # Log-probabilities of a content's end that gave no text of its own come last.
            chunks.append(self._chunk(number, b"{}", new.logprobs or None, new.finish_reason))

    def _chunk(
        self,
        number: int,
        delta: bytes,
        logprobs: list[TokenLogprobs] | None = None,
        finish_reason: str | None = None,
    ) -> bytes:
        return b'%b,"choices":[{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}]%b' % (
            self._chunk_head,
            number,
            delta,
            b"null" if logprobs is None else _encode(self._logprobs(logprobs)),
            b'"%b"' % finish_reason.encode() if finish_reason else b"null",
            self._chunk_tail,
        )

    def closing_events(self) -> bytes:
        """The end of a stream: the usage, if asked for, and the end mark."""
        if not self._streams_usage:
            return DONE
        usage = _encode(self._usage())
        return b'%b,"choices":[],"usage":%b}\n\n%b' % (self._chunk_head, usage, DONE)

    def failure_event(self, error: ApiError) -> bytes:
        """The end of a stream that failed."""
        return b"data: %b\n\n" % error.body()

    def whole(self) -> bytes:
        """The answer that is not streamed, once all outputs are collected."""
        choices = [self._choice(number) for number in range(len(self._choices))]
        fields = self._fields | {"object": "chat.completion"}
        return _encode(fields | {"choices": choices, "usage": self._usage()})

    def _choice(self, number: int) -> dict[str, object]:
        choice = self._choices[number]
        logprobs = self._logprobs(choice.logprobs) if self._wants_logprobs else None
        return {
            "index": number,
            "message": _message(choice.whole),
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }

    def _logprobs(self, content: Sequence[TokenLogprobs]) -> dict[str, object]:
        return {"content": [self._entry(logprobs) for logprobs in content], "refusal": None}

    def _entry(self, logprobs: TokenLogprobs) -> dict[str, object]:
        top = [self._token(token_id, value) for token_id, value in logprobs.top[: self._wants_top]]
        return self._token(logprobs.token_id, logprobs.logprob) | {"top_logprobs": top}

    def _token(self, token_id: int, logprob: float) -> dict[str, object]:
        raw = self._codec.token_bytes(token_id)
        text = raw.decode(errors="replace")
        return {"token": text, "logprob": logprob, "bytes": list(raw)}

    def _usage(self) -> dict[str, object]:
        turns = [choice.turn for choice in self._choices]
        generated = sum(turn.num_tokens for turn in turns)
        reasoning = sum(turn.num_reasoning_tokens for turn in turns)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self._prompt_tokens + generated,
            "prompt_tokens_details": {"cached_tokens": self._cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }


def _delta_json(delta: Delta) -> bytes:
    if isinstance(delta, ContentDelta):
        return b'{"content":%b}' % _encode(delta.text)
    if isinstance(delta, ReasoningDelta):
        return b'{"reasoning":%b}' % _encode(delta.text)
    arguments = _encode(delta.arguments)
    if delta.name is None:
        call = b'{"index":%d,"function":{"arguments":%b}}' % (delta.index, arguments)
        return b'{"tool_calls":[%b]}' % call
    call = b'{"index":%d,"id":"%b","type":"function","function":{"name":%b,"arguments":%b}}' % (
        delta.index,
        _call_id().encode(),
        _encode(delta.name),
        arguments,
    )
    return b'{"tool_calls":[%b]}' % call


def _message(turn: ParsedTurn) -> dict[str, object]:
    calls = [
        {
            "id": _call_id(),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in turn.calls
    ]
    message: dict[str, object] = {
        "role": "assistant",
        "content": turn.content if turn.content or not calls else None,
        "refusal": None,
    }
    if turn.reasoning:
        message["reasoning"] = turn.reasoning
    return message | {"tool_calls": calls} if calls else message


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"

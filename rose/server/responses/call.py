"""POST /v1/responses: one response, the engine request it makes and what comes of it."""

import datetime
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rose.protocol import (
    FinishReason,
    Request,
    RequestOutput,
)
from rose.server.admission import PROMPT_FIELD
from rose.server.chat.format import Conversation, FunctionTool, Message
from rose.server.chat_turn import Turn
from rose.server.errors import ApiError
from rose.server.front_end import FrontEnd, by_size, render
from rose.server.grammar import RESPONSES_PARAMS, chat_grammar, gave_up
from rose.server.responses.items import Item, messages_of, new_id, size_of
from rose.server.responses.output import EventNumbers, OutputWriter
from rose.server.responses.parts import (
    callable_tools,
    grammar_choice,
    grammar_format,
    response_schema,
)
from rose.server.responses.request import ResponseRequest, Wanted
from rose.server.responses.response_object import ResponseObject, ResponseStatus, Usage
from rose.server.responses.store import StoredResponse

_FAILURE_CODE = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


async def make_response_call(
    front_end: FrontEnd,
    body: ResponseRequest,
    items: Sequence[Item],
    keep: Callable[[str, StoredResponse], None],
    owner: str,
) -> "ResponseCall":
    """The call that a checked body asks for.

    Args:
        front_end: of this server.
        body: what the client posted.
        items: all that the model is given: its input, after what it continues.
        keep: takes the response, with its id, when it has ended.
        owner: whose it is.

    Raises:
        InvalidRequestError: the body asks for what cannot be; it names the field.
        ApiError: the model takes no chats.
    """
    chat_format, codec = await front_end.chat()
    wanted = body.wanted()
    conversation = _conversation(body.instructions, wanted, items)
    size = sum(map(size_of, items)) + len(body.instructions or "")
    size += len(repr(body.tools)) + len(repr(body.text))  # their schemas
    grammar = await by_size(
        size,
        lambda: chat_grammar(
            conversation,
            layout=chat_format.layout,
            response_format=grammar_format(wanted.text_format),
            tool_choice=grammar_choice(wanted.tool_choice),
            strict_tools=[tool.name for tool in wanted.tools if tool.strict],
            params=RESPONSES_PARAMS,
        ),
    )
    request = Request(
        request_id=new_id("resp"),
        prompt_token_ids=await render(chat_format, conversation, size=size, field="input"),
        sampling=body.sampling(chat_format.stop_token_ids),
        priority=body.priority or 0,
        grammar=grammar,
    )
    turn = Turn(
        chat_format.parser(conversation),
        stop_token_ids=chat_format.stop_token_ids,
        control_ids=codec.special_token_ids(),
        parallel_calls=body.parallel_tool_calls is not False,
    )
    response = ResponseObject(request.request_id, body, wanted)
    return ResponseCall(response, request, turn, items, keep if body.stores() else None, owner)


def _conversation(instructions: str | None, wanted: Wanted, items: Sequence[Item]) -> Conversation:
    messages = [Message(role="developer", content=instructions)] if instructions else []
    return Conversation(
        messages=[*messages, *messages_of(items)],
        tools=[
            FunctionTool(
                name=tool.name, description=tool.description or "", parameters=tool.parameters
            )
            for tool in callable_tools(wanted.tools, wanted.tool_choice)
        ],
        response_schema=response_schema(wanted.text_format),
        reasoning_effort=wanted.effort,
        current_date=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


class ResponseCall:
    """Turns the outputs of a response's engine request into its object or its events.

    Args:
        response: the object to be.
        request: to submit to the engine; its id is the response's.
        turn: reads the outputs.
        items: all that the model is given.
        keep: takes the response when it has ended; None: the client wants it forgotten.
        owner: whose it is.

    Attributes:
        id: of the response.
        requests: the one request.
        field_names: the body's name of each engine field that goes by another.
        owner: whose it is.
        input_items: all that the model is given.
    """

    field_names: Mapping[str, str] = {PROMPT_FIELD: "input", "max_tokens": "max_output_tokens"}

    def __init__(
        self,
        response: ResponseObject,
        request: Request,
        turn: Turn,
        items: Sequence[Item],
        keep: Callable[[str, StoredResponse], None] | None,
        owner: str,
    ) -> None:
        self.owner = owner
        self.id = request.request_id
        self.requests = [request]
        self.input_items = items
        self._keep = keep
        self._object = response
        self._turn = turn
        self._numbers = EventNumbers()
        self._writer = OutputWriter(self._numbers)
        self._prompt_tokens = len(request.prompt_token_ids)
        self._cached_tokens = 0
        self._finish_reason: str | None = None
        self._cut_short: list[tuple[str, int]] = []
        self._begun = False
        self._unsent: list[bytes] = []  # events

    def collect(self, outputs: Sequence[RequestOutput]) -> None:
        """Take outputs of an answer that is not streamed."""
        self._feed(outputs)
        self._unsent.clear()

    def events(self, outputs: Sequence[RequestOutput]) -> bytes:
        """Take outputs of a streamed answer; the events that they make, if any."""
        self._begin()
        self._feed(outputs)
        return self._take_events()

    def take_cut_short(self) -> list[tuple[str, int]]:
        """Sequences (request id, index) that need to run no further, since the last call."""
        cut_short, self._cut_short = self._cut_short, []
        return cut_short

    def _feed(self, outputs: Sequence[RequestOutput]) -> None:
        """Read what the model wrote.

        Raises:
            InvalidRequestError, EngineDeadError: the engine gave up the sequence; what came
                before it is read.
        """
        for output in outputs:
            if output.finish_reason is FinishReason.ERROR:
                raise gave_up(self.requests[0].grammar, RESPONSES_PARAMS)
            self._cached_tokens = max(self._cached_tokens, output.num_cached_tokens)
            new = self._turn.feed(output)
            self._unsent += [self._writer.feed(delta) for delta in new.deltas]
            self._finish_reason = new.finish_reason or self._finish_reason
            if self._turn.finished and output.finish_reason is None:
                self._cut_short.append((output.request_id, output.index))

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._tell("created", self.in_progress())
            self._tell("in_progress", self.in_progress())

    def _tell(self, what: str, body: bytes) -> None:
        """An event about the whole response."""
        fields = {"response": msgspec.Raw(body)}
        self._unsent.append(self._numbers.event(f"response.{what}", fields))

    def _take_events(self) -> bytes:
        events = b"".join(self._unsent)
        self._unsent.clear()
        return events

    def in_progress(self) -> bytes:
        """The response object while the model writes: the items that are whole."""
        return self._object.encode("in_progress", self._writer.items)

    def whole(self) -> bytes:
        """The response object, once all outputs are collected."""
        cut = self._finish_reason not in ("stop", "tool_calls")
        return self._end("incomplete" if cut else "completed")

    def closing_events(self) -> bytes:
        """The end of a stream."""
        self.whole()
        return self._take_events()

    def failure_event(self, error: ApiError) -> bytes:
        """The end of a stream that failed."""
        self._begin()
        self.fail(error)
        return self._take_events()

    def fail(self, error: ApiError) -> None:
        """End it with an error."""
        code = _FAILURE_CODE.get(error.status, "server_error")
        self._end("failed", {"code": code, "message": error.message})

    def cancel(self) -> None:
        """End it where it is."""
        self._end("cancelled")

    def _end(self, status: ResponseStatus, error: dict[str, str] | None = None) -> bytes:
        self._unsent.append(
            self._writer.end("completed" if status == "completed" else "incomplete")
        )
        usage = Usage(
            self._prompt_tokens,
            self._cached_tokens,
            self._turn.num_tokens,
            self._turn.num_reasoning_tokens,
        )
        body = self._object.encode(status, self._writer.items, usage=usage, error=error)
        if self._keep is not None:
            kept = StoredResponse(
                body,
                self.input_items,
                self._writer.items,
                background=self._object.background,
                owner=self.owner,
            )
            self._keep(self.id, kept)
        self._tell(status, body)
        return body

"""A chat in the terminal: what is said, thought, called and answered, as it comes.

`Chat` holds the conversation and knows no terminal; `run_terminal` reads lines and prints.
"""

import datetime
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, get_args

from rose.chat_tools import LocalTool, run_tool
from rose.protocol import SamplingParams, UserError
from rose.server.chat.format import (
    Channel,
    ChatFormat,
    ContentDelta,
    Conversation,
    Delta,
    Message,
    ReasoningDelta,
    ReasoningEffort,
    ToolCallDelta,
)

if TYPE_CHECKING:  # a chat with a server needs no torch
    from rose.llm import LLM

MOST_CALLS = 8
"""Calls in answer to one message; a model that calls for ever is stopped."""

EFFORTS: tuple[ReasoningEffort, ...] = get_args(ReasoningEffort)
DIM, BLUE, PLAIN = "\x1b[2m", "\x1b[34m", "\x1b[0m"
HELP = """\
/effort low|medium|high   how much the model is to think
/tools                    what it may call
/reset                    begin a new conversation
/quit                     leave (so does ^D); ^C stops an answer"""

Write = Callable[[list[int]], Iterable[int]]
"""Continues a prompt: ids as they come, the stop token included."""


def engine_writer(llm: "LLM", params: SamplingParams) -> Write:
    """Writes with a model in this process; ^C stops it between two steps, never within one."""

    def write(prompt: list[int]) -> Iterator[int]:
        stopped: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, frame: stopped.append(number))
        try:
            with llm.stream(prompt, params) as stream:
                for output in stream:
                    if stopped:
                        raise KeyboardInterrupt
                    yield from output.token_ids
        finally:
            signal.signal(signal.SIGINT, before)

    return write


class Speaker(Protocol):
    """Who speaks the assistant's part."""

    def turn(self, conversation: Conversation) -> Iterator[Delta]:
        """The next turn, as it comes.

        Raises:
            UserError: there can be none; the message says why.
        """
        ...


class FormatSpeaker:
    """Speaks by a model that reads and writes token ids.

    Args:
        chat_format: of the model.
        write: the model.
    """

    def __init__(self, chat_format: ChatFormat, write: Write) -> None:
        self._format = chat_format
        self._write = write

    def turn(self, conversation: Conversation) -> Iterator[Delta]:
        """The next turn, as it comes.

        Raises:
            InvalidRequestError: the conversation is longer than the model can read.
        """
        parser = self._format.parser(conversation)
        for token_id in self._write(self._format.render(conversation)):
            yield from parser.push(token_id)
            if parser.over:
                break
        yield from parser.flush()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A called function has answered."""

    name: str
    content: str


class Chat:
    """A conversation with a model that may call functions here.

    Args:
        speaker: the model.
        tools: what it may call, by name.
        effort: how much it is to think.
    """

    def __init__(
        self,
        speaker: Speaker,
        *,
        tools: Mapping[str, LocalTool],
        effort: ReasoningEffort = "medium",
    ) -> None:
        self.messages: list[Message] = []
        self.tools = tools
        self.effort: ReasoningEffort = effort
        self._speaker = speaker

    def answer(self, text: str) -> Iterator[Delta | ToolResult]:
        """Say something; the answer as it comes, over as many calls as it takes.

        An answer that is not taken to its end is forgotten, and with it what was said.

        Raises:
            UserError: there can be no answer; the message says why.
        """
        messages = [*self.messages, Message(role="user", content=text)]
        for _ in range(MOST_CALLS + 1):
            turn = _Turn()
            for delta in self._turn(messages):
                turn.add(delta)
                yield delta
            messages += turn.messages()
            for name, arguments in turn.calls.values():
                result = ToolResult(name, run_tool(self.tools, name, arguments))
                messages.append(Message(role="tool", name=name, content=result.content))
                yield result
            if not turn.calls:
                break
        self.messages = messages

    def _turn(self, messages: list[Message]) -> Iterator[Delta]:
        conversation = Conversation(
            messages=messages,
            tools=[tool.declaration for tool in self.tools.values()],
            reasoning_effort=self.effort,
            current_date=datetime.date.today().isoformat(),
        )
        return self._speaker.turn(conversation)


class _Turn:
    """What one turn said, put together from its deltas."""

    def __init__(self) -> None:
        self.reasoning = self.content = ""
        self.calls: dict[int, tuple[str, str]] = {}

    def add(self, delta: Delta) -> None:
        match delta:
            case ReasoningDelta(text):
                self.reasoning += text
            case ContentDelta(text):
                self.content += text
            case ToolCallDelta(index, name, arguments):
                before = self.calls.get(index, ("", ""))
                self.calls[index] = (before[0] + (name or ""), before[1] + arguments)

    def messages(self) -> list[Message]:
        """The turn as the next prompt is to show it."""
        found = []
        if self.reasoning:
            found.append(Message(role="assistant", channel="analysis", content=self.reasoning))
        if self.content or not self.calls:
            channel: Channel = "commentary" if self.calls else "final"
            found.append(Message(role="assistant", channel=channel, content=self.content))
        for name, arguments in self.calls.values():
            found.append(
                Message(role="assistant", channel="commentary", recipient=name, content=arguments)
            )
        return found


class _Printer:
    """Prints an answer: reasoning dimmed, calls in colour, each on lines of its own."""

    def __init__(self, put: Callable[[str], None], *, colour: bool) -> None:
        self._put = put
        self._colour = colour
        self._kind: object = None

    def show(self, event: Delta | ToolResult) -> None:
        match event:
            case ReasoningDelta(text):
                self._piece("reasoning", DIM, text)
            case ContentDelta(text):
                self._piece("content", "", text)
            case ToolCallDelta(index, name, arguments):
                self._piece(index, BLUE, f"{name} {arguments}" if name else arguments)
            case ToolResult(_, content):
                self._piece("result", BLUE, f"-> {content}")

    def _piece(self, kind: object, colour: str, text: str) -> None:
        if kind != self._kind and self._kind is not None:
            self._put("\n")
        self._kind = kind
        # What a model writes must not steer the terminal.
        text = "".join(char for char in text if char.isprintable() or char in "\n\t")
        self._put(f"{colour}{text}{PLAIN}" if self._colour and colour else text)

    def end(self) -> None:
        self._kind = None
        self._put("\n")


def run_terminal(
    chat: Chat,
    read: Callable[[], str],
    put: Callable[[str], None],
    *,
    colour: bool,
) -> None:
    """Talk until the user leaves.

    Args:
        chat: with whom.
        read: the next line of the user; raises EOFError at the end.
        put: prints text as it is, at once.
        colour: whether the terminal shows colours.
    """
    while True:
        try:
            line = read().strip()
        except (EOFError, KeyboardInterrupt):
            put("\n")
            return
        if line in ("/quit", "/exit"):
            return
        if line.startswith("/"):
            put(_command(chat, line) + "\n")
        elif line:
            _answer(chat, line, _Printer(put, colour=colour))


def _answer(chat: Chat, line: str, printer: _Printer) -> None:
    try:
        for event in chat.answer(line):
            printer.show(event)
    except KeyboardInterrupt:
        printer.show(ContentDelta(" (stopped; this exchange is forgotten)"))
    except UserError as error:
        printer.show(ContentDelta(f"{error} (/reset begins anew)"))
    printer.end()


def _command(chat: Chat, line: str) -> str:
    """Carry out a command; what to say about it."""
    name, *words = line.split()
    if name == "/reset":
        chat.messages = []
        return "A new conversation."
    if name == "/tools":
        declared = [tool.declaration for tool in chat.tools.values()]
        return "\n".join(f"{d.name}: {d.description}" for d in declared) or "None."
    if name == "/effort":
        for effort in EFFORTS:
            if words == [effort]:
                chat.effort = effort
                return f"Reasoning: {effort}."
        return f"Reasoning: {chat.effort}. Choose one of {', '.join(EFFORTS)}."
    return HELP if name == "/help" else f"There is no {name}.\n{HELP}"

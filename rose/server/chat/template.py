"""The chat template that a checkpoint brings: Jinja, as Hugging Face's tokenizers write it.

For models without Harmony. A template is somebody else's program, so it runs in jinja2's sandbox.
What the model writes is content, all of it: a template says how to write a conversation, and
nothing about how to read one.
"""

import datetime
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rose.protocol import UserError
from rose.server.chat.format import ContentDelta, Conversation, Delta, FunctionTool, Message
from rose.server.detokenize import Detokenizer, TextCodec

TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"

GUARD = "\U0010ffff"
"""Stands within names of special tokens that users typed, while the template runs, so that they
differ from those that the template writes. Unicode will never give this code point a meaning."""


class ChatTemplateError(UserError):
    """A chat template that is missing or does not work; the message says why."""


class TemplateParser:
    """Passes the text of a turn through; special tokens are no text.

    Attributes:
        over: never; templates have no end of a turn but the stop token.
    """

    over = False

    def __init__(self, codec: TextCodec) -> None:
        self._detokenizer = Detokenizer(codec)

    def push(self, token_id: int) -> Sequence[Delta]:
        """Take one token."""
        text = self._detokenizer.add(token_id)
        return (ContentDelta(text),) if text else ()

    def flush(self) -> Sequence[Delta]:
        """No more tokens come: give out what was held back."""
        text = self._detokenizer.flush()
        return (ContentDelta(text),) if text else ()


class TemplateFormat:
    """A format by a Jinja template.

    Args:
        template: its source.
        codec: the model's tokenizer.
        special_names: `bos_token`, `eos_token` and the like, as the template knows them.

    Raises:
        ChatTemplateError: the source is no template.
    """

    layout: Literal["harmony", "text"] = "text"

    def __init__(self, template: str, codec: TextCodec, special_names: dict[str, str]) -> None:
        self._codec = codec
        self._template = _compile(template)
        self._special_names = special_names
        eos = codec.special_token_id(special_names.get("eos_token", ""))
        self.stop_token_ids: tuple[int, ...] = () if eos is None else (eos,)
        # Longest first: a name may begin another.
        names = sorted(filter(None, codec.special_token_names()), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        guarded = "|".join(re.escape(name[0] + GUARD + name[1:]) for name in names)
        self._guarded = re.compile(f"({guarded or '(?!)'})")

    @classmethod
    def load(cls, folder: Path, codec: TextCodec) -> "TemplateFormat":
        """Read a checkpoint's template.

        Raises:
            ChatTemplateError: there is none, or it is none.
        """
        config = _read_config(folder / CONFIG_FILE)
        path = folder / TEMPLATE_FILE
        template = path.read_text() if path.is_file() else _default_template(config)
        if template is None:
            raise ChatTemplateError(f"{folder} has no {TEMPLATE_FILE}, nor one in {CONFIG_FILE}")
        names = {key: _token_name(value) for key, value in config.items() if key.endswith("_token")}
        return cls(template, codec, {key: name for key, name in names.items() if name})

    def render(self, conversation: Conversation) -> list[int]:
        """The prompt, up to where the assistant's turn begins.

        Raises:
            ChatTemplateError: the template refuses the conversation, or fails over it.
        """
        try:
            text = self._template.render(
                messages=self._guard(list(_grouped(conversation.messages))),
                tools=self._guard([_tool(tool) for tool in conversation.tools]) or None,
                add_generation_prompt=True,
                reasoning_effort=conversation.reasoning_effort,
                **self._special_names,
            )
        except Exception as error:  # it runs somebody else's program, which may do anything
            raise ChatTemplateError(f"the model's chat template refuses this: {error}") from None
        ids: list[int] = []
        for number, piece in enumerate(self._guarded.split(text)):
            typed = number % 2 == 1
            plain = piece.replace(GUARD, "")
            ids += self._codec.encode_plain(plain) if typed else self._codec.encode(plain)
        return ids

    def parser(self, conversation: Conversation) -> TemplateParser:
        """A parser for the turn that answers this conversation."""
        return TemplateParser(self._codec)

    def _guard(self, value: object) -> object:
        """The same value, with all names of special tokens in its texts guarded."""
        if isinstance(value, str):
            value = value.replace(GUARD, "")
            return self._names.sub(lambda found: found[0][0] + GUARD + found[0][1:], value)
        if isinstance(value, list):
            return [self._guard(item) for item in value]
        if isinstance(value, dict):
            return {self._guard(key): self._guard(item) for key, item in value.items()}
        return value


def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda layout: datetime.datetime.now().strftime(layout)
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise ChatTemplateError(f"the chat template cannot be read: {error}") from None


def _to_json(value: object, indent: int | None = None) -> str:
    # Jinja's own escapes for HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _read_config(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ChatTemplateError(f"cannot read {path}: {error}") from None
    return config if isinstance(config, dict) else {}


def _default_template(config: dict[str, object]) -> str | None:
    template = config.get("chat_template")
    if isinstance(template, list):  # several by name
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _token_name(value: object) -> str | None:
    if isinstance(value, dict):  # an added token with its properties
        value = value.get("content")
    return value if isinstance(value, str) else None


def _grouped(messages: Sequence[Message]) -> Iterator[dict[str, object]]:
    """Messages as templates know them: all that the assistant said at once is one."""
    turn: dict[str, object] = {}
    for message in messages:
        if message.role != "assistant":
            if turn:
                yield turn
                turn = {}
            yield _plain(message)
            continue
        turn = turn or {"role": "assistant", "content": ""}
        _add(message, turn)
    if turn:
        yield turn


def _plain(message: Message) -> dict[str, object]:
    # Few templates know developers, and all know system messages.
    role = "system" if message.role == "developer" else message.role
    plain: dict[str, object] = {"role": role, "content": message.content}
    return plain if message.name is None else plain | {"name": message.name}


def _add(message: Message, turn: dict[str, object]) -> None:
    if message.recipient is not None:
        function = {"name": message.recipient, "arguments": _arguments(message.content)}
        calls = turn.setdefault("tool_calls", [])
        assert isinstance(calls, list)
        calls.append({"type": "function", "function": function})
        return
    field = "reasoning_content" if message.channel == "analysis" else "content"
    turn[field] = f"{turn.get(field, '')}{message.content}"


def _arguments(text: str) -> object:
    """Templates write arguments from their values; what is no JSON they get as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _tool(tool: FunctionTool) -> dict[str, object]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": function}

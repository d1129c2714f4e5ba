"""rose chat: a chat in the terminal, with a model in this process or on a server."""

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rose.cli_options import choice, engine_options
from rose.options import EngineOptions
from rose.protocol import SamplingParams
from rose.server.chat.format import ReasoningEffort

if TYPE_CHECKING:
    from rose.chat import Speaker

DEFAULT_MODEL = "nano"


@click.command()
@functools.partial(engine_options, default_model=DEFAULT_MODEL, unless="url")
@click.option("--url", help="Of a server to chat with, instead of a model in this process.")
@click.option("--api-key", metavar="KEY", help="Opens that server.")
@click.option("--effort", type=choice(ReasoningEffort), default="medium", show_default=True)
@click.option(
    "--temperature", type=float, help="0 is greedy.  [default: 0 for a built-in model, else 1]"
)
@click.option(
    "--chat-format", metavar="NAME", help="harmony or template.  [default: the model's own]"
)
@click.option(
    "--tools",
    type=click.Choice(["none", "clock", "all"]),
    default="clock",
    show_default=True,
    help="What the model may call; all: a calculator too, which is beyond nano.",
)
def chat(
    options: EngineOptions,
    url: str | None,
    api_key: str | None,
    effort: ReasoningEffort,
    temperature: float | None,
    chat_format: str | None,
    tools: str,
) -> None:
    """Talk with MODEL (nano, if none is named) in the terminal; /help lists what else it does."""
    from rose.chat import Chat, run_terminal
    from rose.chat_tools import TOOL_SETS

    terminal = sys.stdin.isatty()
    if terminal:
        # Line editing and history come with the import.
        import readline  # noqa: F401
    if url is None:
        speaking = _embedded(options, temperature, chat_format)
    else:
        speaking = _remote(options, url, api_key, temperature)
    with speaking as (speaker, name):
        talk = Chat(speaker, tools=TOOL_SETS[tools], effort=effort)
        click.echo(f"{name}; /help, /quit", err=True)
        run_terminal(
            talk,
            lambda: input("> " if terminal else ""),
            lambda text: click.echo(text, nl=False),
            colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
        )


@contextmanager
def _embedded(
    options: EngineOptions, temperature: float | None, format_name: str | None
) -> Iterator[tuple["Speaker", str]]:
    """A model in this process, and what it is."""
    from rose.chat import FormatSpeaker, engine_writer
    from rose.llm import LLM
    from rose.models.builtin import SERVED_NAMES
    from rose.server.chat.registry import find_chat_format
    from rose.server.detokenize import TextCodec

    if temperature is None:
        temperature = 0.0 if options.model in SERVED_NAMES else 1.0
    with LLM.from_options(options) as llm:
        folder = Path(llm.info.model_path)
        chat_format = find_chat_format(folder, TextCodec.load(folder), format_name)
        stops = chat_format.stop_token_ids
        params = SamplingParams(temperature=temperature, stop_token_ids=stops)
        speaker = FormatSpeaker(chat_format, engine_writer(llm, params))
        yield speaker, f"{llm.info.model} ({llm.info.description})"


@contextmanager
def _remote(
    options: EngineOptions, url: str, api_key: str | None, temperature: float | None
) -> Iterator[tuple["Speaker", str]]:
    """A model on a server, and what it is."""
    from rose.chat_remote import ServerSpeaker

    speaker = ServerSpeaker(url, api_key, temperature)
    speaker.choose_model(None if options.model == DEFAULT_MODEL else options.model)
    yield speaker, f"{speaker.model} at {url}"

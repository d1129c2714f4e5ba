"""The commands: rose serve, chat, engine, front-end, generate, score, convert.

Imports are lazy: `rose --help` and the front end load no torch. A user's mistake is one line on
standard error and exit status 1 (2 for a wrong command line), never a traceback.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rose.cli_bench import bench
from rose.cli_bench_report import cost
from rose.cli_chat import chat
from rose.cli_files import check_output, parse_prompt, read_prompts, write_whole
from rose.cli_http import HttpOptions, http_options
from rose.cli_options import (
    engine_arguments,
    engine_options,
    tokens_file_option,
    tokens_option,
)
from rose.config import ConfigError
from rose.options import EngineOptions
from rose.protocol import EngineDeadError, SamplingParams, UserError
from rose.requirements import require_engine
from rose.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

    from rose.engine.engine import Engine

INTERRUPTED = 128 + signal.SIGINT
"""Exit status after ^C, as shells have it."""


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn what a user can mend into one clear line."""
    try:
        yield
    except (UserError, EngineDeadError) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        raise  # whoever read the output has left; click ends without a word
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise click.ClickException(f"{where}{error.strerror or error}") from None


class _Commands(click.Group):
    """A group whose commands report a user's mistakes in one line."""

    def invoke(self, ctx: click.Context) -> object:
        with _one_line_errors():
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rose")
def main() -> None:
    """Rose serves OpenAI's gpt-oss models.

    MODEL is nano (comes with Rose), a checkpoint folder or a Hugging Face id.
    """


def _prompts(tokens: str | None, tokens_file: Path | None) -> tuple[list[list[int]], bool]:
    """The prompts, and whether they came as an array of arrays."""
    if tokens is not None and tokens_file is None:
        return [parse_prompt(tokens)], False
    if tokens_file is not None and tokens is None:
        return read_prompts(tokens_file)
    raise click.UsageError("give either --tokens 1,2,3 or --tokens-file FILE")


@main.command()
@engine_options
@tokens_option
@tokens_file_option
@click.option("--max-tokens", type=int, default=128, show_default=True)
@click.option("--min-tokens", type=int, default=0)
@click.option("--temperature", type=float, default=0.0, show_default="0, greedy")
@click.option("--top-k", type=int, default=0, help="0: all.")
@click.option("--top-p", type=float, default=1.0)
@click.option("--min-p", type=float, default=0.0)
@click.option("--sampling-seed", type=int, help="Makes sampling reproducible.")
@click.option("--n", type=int, default=1, help="Samples a prompt.")
@click.option("--ignore-eos", is_flag=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def generate(
    options: EngineOptions,
    tokens: str | None,
    tokens_file: Path | None,
    max_tokens: int,
    min_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    sampling_seed: int | None,
    n: int,
    ignore_eos: bool,
    as_json: bool,
) -> None:
    """Continue prompts of token ids; prints the new ids."""
    prompts, _ = _prompts(tokens, tokens_file)
    sampling = SamplingParams(
        n=n,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=sampling_seed,
        ignore_eos=ignore_eos,
    )
    from rose.engine.validation import check_prompts
    from rose.llm import LLM

    config = options.resolve()
    check_prompts(config, prompts, sampling)
    with LLM.from_config(config) as llm:
        results = llm.generate(prompts, sampling, progress=len(prompts) > 1)
    for number, result in enumerate(results):
        for output in result.outputs:
            if as_json:
                fields: dict[str, object] = {"prompt": number, "index": output.index}
                fields["token_ids"] = output.token_ids
                fields["finish_reason"] = output.finish_reason
                click.echo(json.dumps(fields))
            else:
                click.echo(",".join(map(str, output.token_ids)))


@main.command()
@engine_options
@tokens_option
@tokens_file_option
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Safetensors to write.")
def score(options: EngineOptions, tokens: str | None, tokens_file: Path | None, out: Path) -> None:
    """Write the float32 logits [tokens, vocabulary] of every position of a prompt.

    The tensor is named `logits`; for an array of prompts, `logits.0`, `logits.1`, ...
    """
    prompts, nested = _prompts(tokens, tokens_file)
    check_output(out)
    from rose.engine.validation import check_prompts
    from rose.llm import LLM
    from rose.progress import Progress

    config = options.resolve()
    check_prompts(config, prompts)
    with LLM.from_config(config) as llm:
        llm.check(prompts)  # the cache may hold less than the model
        with Progress("scoring", total=len(prompts), unit="prompts") as progress:
            tensors = {}
            for number, prompt in enumerate(prompts):
                tensors[f"logits.{number}" if nested else "logits"] = llm.score(prompt)
                progress.advance()
    write_whole(out, lambda path: _save(tensors, path))


def _save(tensors: "dict[str, Tensor]", path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path)
    except SafetensorError as error:  # how it reports a full disk
        raise OSError(str(error)) from error


@main.command()
@click.argument("source")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--format", "target_format", type=click.Choice(["fp8"]), required=True)
def convert(source: str, target: Path, target_format: str) -> None:
    """Convert the checkpoint SOURCE (folder or Hugging Face id) into the new folder TARGET.

    It can be interrupted and run again: finished shards are kept.
    """
    require_engine()
    from rose.convert import convert_checkpoint
    from rose.models.hub import find_checkpoint

    report = convert_checkpoint(find_checkpoint(source), target, format=target_format)
    click.echo(report.summary())


@main.command()
@engine_options
@click.option("--endpoint", required=True, help="ZeroMQ address to bind: ipc://... or tcp://...")
@click.option("--parent-pid", type=int, hidden=True)
def engine(options: EngineOptions, endpoint: str, parent_pid: int | None) -> None:
    """Run an engine process alone, for `rose front-end`; `rose serve` starts one by itself."""
    from rose.engine.loop import run_engine_process

    def make_engine() -> "Engine":
        from rose.engine.start import start_engine

        return start_engine(options.resolve())

    sys.exit(run_engine_process(endpoint, make_engine, parent_pid=parent_pid))


main.add_command(bench)
main.add_command(cost)
main.add_command(chat)


front_ends_option = click.option(
    "--front-ends",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Processes that serve HTTP on this port.",
)


@main.command()
@engine_options
@http_options
@click.option(
    "--engines",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Engine processes, each on a GPU of its own if there are GPUs.",
)
@front_ends_option
@click.option("--restart/--no-restart", default=True, help="Start a dead engine again.")
def serve(
    options: EngineOptions, http: HttpOptions, engines: int, front_ends: int, restart: bool
) -> None:
    """Serve MODEL over an OpenAI-compatible HTTP API, until ^C."""
    from rose.models.builtin import served_name as default_name
    from rose.models.hub import find_checkpoint
    from rose.server.listening import bind_for
    from rose.server.serve import serve as serve_http

    sock = bind_for(front_ends, http.host, http.port)
    name = options.served_name or default_name(options.model)
    # Downloads show their progress here, before there is an engine process.
    folder = find_checkpoint(options.model, dummy=options.load_format == "dummy")
    local = replace(options, model=str(folder), served_name=name)

    def engine_command(endpoint: str) -> list[str]:
        own = ["--endpoint", endpoint, "--parent-pid", str(os.getpid())]
        return [sys.executable, "-m", "rose", "engine", *own, *engine_arguments(local)]

    serving = replace(http.serving, num_engines=engines, num_front_ends=front_ends)
    if not restart:
        serving = replace(serving, restart=None)
    serve_http(sock, engine_command, serving)


@main.command()
@click.argument("endpoints", nargs=-1, required=True, metavar="ENDPOINT...")
@http_options
@front_ends_option
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Holds tokenizer.json.  [default: the engine's checkpoint]",
)
def front_end(
    endpoints: tuple[str, ...], http: HttpOptions, front_ends: int, tokenizer: Path | None
) -> None:
    """Serve the API before engines that `rose engine` runs at each ENDPOINT, until ^C."""
    from rose.server.listening import bind_for
    from rose.server.serve import attach

    if tokenizer is not None and not (tokenizer / "tokenizer.json").is_file():
        raise ConfigError(f"--tokenizer {tokenizer} must be a folder that holds tokenizer.json")
    options = replace(http.serving, tokenizer_folder=tokenizer, num_front_ends=front_ends)
    attach(bind_for(front_ends, http.host, http.port), endpoints, options)

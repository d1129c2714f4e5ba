"""rose bench serve: load on a server that speaks OpenAI's API, and how it bore it."""

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from rose.bench.results import MOST_REQUESTS
from rose.cli_files import check_output
from rose.cli_numbers import USD, Finite
from rose.requirements import require_load_generator

if TYPE_CHECKING:
    from rose.bench.results import Result
    from rose.bench.serving.settings import Settings

_SECONDS = Finite(1e-6, 1e6)
_MS = Finite(1e-3, 1e9)
_MOST_TOKENS = 2**24
_MOST_WORKERS = 256
_FILE = click.Path(path_type=Path)


# One option a field of Settings, under the field's name.
@click.command()
@click.argument("url")
@click.option("--model", default="", help="To ask for.  [default: the server's first]")
@click.option(
    "--api",
    type=click.Choice(["completions", "chat"]),
    default="completions",
    show_default=True,
    help="completions: prompts of token ids, of exact length; chat: of words.",
)
@click.option(
    "--api-key",
    envvar=["ROSE_API_KEY", "OPENAI_API_KEY"],
    metavar="KEY",
    help="Opens it; also ROSE_API_KEY.",
)
@click.option("--rate", metavar="R,R,...", help="Requests a second, one load each (open loop).")
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "fixed"]),
    default="poisson",
    show_default=True,
    help="How they are spaced.",
)
@click.option(
    "--concurrency",
    metavar="N,N,...",
    help="Users who each wait for an answer before they ask again, one load each (closed loop).",
)
@click.option(
    "--requests", type=click.IntRange(1, MOST_REQUESTS), help="Of each load.  [default: 100]"
)
@click.option("--duration", type=_SECONDS, metavar="SECONDS", help="In which requests start.")
@click.option(
    "--warmup",
    type=click.IntRange(0, MOST_REQUESTS),
    default=4,
    show_default=True,
    help="Requests before them.",
)
@click.option(
    "--input",
    metavar="LENGTHS",
    help="Tokens of a prompt: N, uniform:LOW:HIGH, normal:MEAN:DEVIATION or "
    "lognormal:MEDIAN:SIGMA.  [default: 512]",
)
@click.option("--output", metavar="LENGTHS", help="Tokens of an answer, alike.  [default: 128]")
@click.option("--trace", type=_FILE, metavar="FILE", help="ShareGPT-like JSON, or lengths.")
@click.option("--tokenizer", type=_FILE, metavar="PATH", help="tokenizer.json, for a trace.")
@click.option(
    "--prefix-tokens",
    type=click.IntRange(0, _MOST_TOKENS),
    default=0,
    help="Shared by requests of a group, before each one's own --input.",
)
@click.option("--prefix-groups", type=click.IntRange(1, _MOST_TOKENS), default=1, show_default=True)
@click.option(
    "--vocab-size",
    type=click.IntRange(11, 2**31 - 1),
    help="Ids of prompts are below it.  [default: tried]",
)
@click.option(
    "--seed", type=click.IntRange(0), help="Of prompts, lengths and times.  [default: a new one]"
)
@click.option("--body", default="{}", metavar="JSON", help="More fields of each request.")
@click.option(
    "--token-ids",
    is_flag=True,
    help="Ask for each chunk's ids, to count exactly; Rose: not of chats.",
)
@click.option("--timeout", type=_SECONDS, default=600.0, show_default=True, metavar="SECONDS")
@click.option("--slo-ttft-ms", type=_MS, help="For goodput.")
@click.option("--slo-tpot-ms", type=_MS, help="For goodput.")
@click.option(
    "--gpus", type=click.IntRange(0, 10**6), default=0, help="Behind the URL, for the price."
)
@click.option("--usd-per-gpu-hour", type=USD, default=3.0, show_default=True)
@click.option(
    "--workers",
    type=click.IntRange(1, _MOST_WORKERS),
    default=1,
    show_default=True,
    help="Processes that make the load.",
)
@click.option("--out", type=_FILE, metavar="FILE", help="[default: serve-DATE-TIME.json]")
def serve(**options: object) -> None:
    """Put load on the server at URL and measure what its users see.

    Any server with OpenAI's API will do. Latencies count from when a request was due, so that a
    stalled server cannot hide. ^C ends the load and keeps what was measured.
    """
    require_load_generator()
    from rose.bench.serving.settings import Settings

    _serve(Settings(**options))  # type: ignore[arg-type]  # click checked the types


def _serve(settings: "Settings") -> None:
    from rose.bench.recorder import Recorder
    from rose.bench.results import BenchError, ServeCell
    from rose.bench.serving.run import Run, explore_server, measure
    from rose.bench.serving.stats import summarize
    from rose.bench.serving.table import TOKEN_IDS_ADVICE, render

    path = settings.out or Path(f"serve-{datetime.now():%Y%m%d-%H%M%S}.json")
    check_output(path)
    loads, extent, slo = settings.loads(), settings.extent(), settings.slo()
    entries, vocab_size = settings.read_files()
    settings.plan(entries, vocab_size or 1000)  # what it refuses needs no server
    found = explore_server(settings.target(), vocab_size)
    click.echo(f"{found.target.model} at {found.target.url} ({found.engine}); to {path}", err=True)
    for note in found.notes:
        click.echo(f"NOTE: {note}", err=True)
    run = Run(
        target=found.target,
        plan=settings.plan(entries, found.vocab_size),
        loads=loads,
        extent=extent,
        workers=settings.workers,
        gpus=settings.gpus,
    )

    served = 0
    advice = None if settings.token_ids else TOKEN_IDS_ADVICE[settings.api]

    def show(cell: ServeCell) -> None:
        nonlocal served
        summary = summarize(cell, slo, settings.usd_per_gpu_hour)
        served += summary.requests
        click.echo(render(cell, summary, slo, bunched_advice=advice))

    with Recorder(_new_result(settings, found.engine, found.notes), path) as recorder:
        measure(run, recorder, show)
    if not served:
        raise BenchError(f"no request was served; {path} has the error of each")


def _new_result(settings: "Settings", engine: str, notes: list[str]) -> "Result":
    from rose.bench.recorder import encodable, new_result

    result = new_result(
        flags=settings.flags(),
        usd_per_gpu_hour=settings.usd_per_gpu_hour,
        engine=engine,
        notes=notes,
    )
    key = settings.api_key
    words = ["rose", *sys.argv[1:]]
    hidden = [word.replace(key, "***") for word in words] if key else words
    return msgspec.structs.replace(result, command=encodable(shlex.join(hidden)))

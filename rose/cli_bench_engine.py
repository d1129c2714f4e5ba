"""rose bench prefill, decode, roofline, compare: an engine or this machine, measured in process."""

import functools
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from rose.bench.results import MOST_BATCH
from rose.cli_files import check_output
from rose.cli_numbers import USD
from rose.cli_options import Command, choice, engine_options
from rose.options import Device, EngineOptions, resolve_device
from rose.requirements import require_engine

if TYPE_CHECKING:
    from rose.bench.console import Columns
    from rose.bench.engines import EngineName
    from rose.bench.session import Measure

_MOST = 2**31 - 1
_FILE = click.Path(path_type=Path)


def _numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Positive integers separated by commas; refuses repetitions, which would be measured twice."""
    words = value.split(",")
    if not all(w.isascii() and w.isdigit() and 0 < int(w[:11]) <= _MOST for w in words):
        raise click.BadParameter(f"{value!r}: write positive integers like 8192,32768")
    numbers = tuple(map(int, words))
    if param.name == "batches" and max(numbers) > MOST_BATCH:
        raise click.BadParameter(f"{value!r}: a batch is up to {MOST_BATCH}")
    if len(set(numbers)) < len(numbers):
        raise click.BadParameter(f"{value!r}: a number stands there twice")
    return numbers


_SHARED = (
    click.option("--prompt-seed", type=click.IntRange(0), default=0, help="Of random prompts."),
    click.option(
        "--sharding",
        default="tp1",
        show_default=True,
        metavar="NAME,NAME,...",
        help="How the model is spread: tp1, tp2, ep2tp2, ...",
    ),
    click.option(
        "--engine",
        type=click.Choice(["rose", "vllm", "sglang"]),
        default="rose",
        show_default=True,
        help="A peer is measured by the same code, where it is installed.",
    ),
    click.option(
        "--roofline",
        type=_FILE,
        metavar="FILE",
        help="Result of rose bench roofline, for the ceilings.  [default: measured quickly]",
    ),
    click.option(
        "--usd-per-gpu-hour",
        type=USD,
        default=3.0,
        show_default=True,
    ),
    click.option("--out", type=_FILE, metavar="FILE", help="Result file to write."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """What the user chose of the options that prefill and decode share."""

    options: EngineOptions
    prompt_seed: int
    sharding: str
    engine: "EngineName"
    roofline: Path | None
    usd_per_gpu_hour: float
    out: Path | None

    def run(self, columns: "Columns", measure: "Measure", **flags: int) -> None:
        """Measure every sharding and print; `flags` are the measurement's own."""
        from rose.bench.results import Sharding
        from rose.bench.session import Settings, run

        if self.out is not None:
            check_output(self.out)
        flags["prompt_seed"] = self.prompt_seed
        settings = Settings(
            engine=self.engine,
            shardings=tuple(dict.fromkeys(map(Sharding.parse, self.sharding.split(",")))),
            roofline=self.roofline,
            usd_per_gpu_hour=self.usd_per_gpu_hour,
            out=self.out,
            flags={name: str(value) for name, value in flags.items()},
        )
        run(self.options, settings, columns, measure, say=click.echo, log=_log)


def _shared(command: Command) -> Command:
    """The options of prefill and decode alike, the engine's among them, as one `chosen`."""

    @functools.wraps(command)
    def run(**values: object) -> object:
        given = {item.name: values.pop(item.name) for item in fields(_Chosen)}
        chosen = _Chosen(**given)  # type: ignore[arg-type]  # click checked the types
        return command(chosen=chosen, **values)

    decorated: Command = run
    for option in reversed(_SHARED):
        decorated = option(decorated)
    return engine_options(decorated)


@click.command()
@click.option(
    "--input",
    "inputs",
    callback=_numbers,
    metavar="N,N,...",
    default="8192,32768,65536,128000",
    show_default=True,
    help="Tokens of a prompt.",
)
@click.option(
    "--batch",
    "batches",
    callback=_numbers,
    metavar="N,N,...",
    default="1",
    show_default=True,
    help="Prompts at once.",
)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="A cell.")
@click.option(
    "--warmup", type=click.IntRange(0), default=1, show_default=True, help="Runs before them."
)
@_shared
def prefill(
    chosen: _Chosen,
    inputs: tuple[int, ...],
    batches: tuple[int, ...],
    runs: int,
    warmup: int,
) -> None:
    """Measure the time to the first token of MODEL, on prompts that no cache knows.

    Beside the published table, the fastest peer and what this machine allows.
    """
    from rose.bench.console import PREFILL_COLUMNS
    from rose.bench.measure import measure_prefill

    measure = functools.partial(
        measure_prefill,
        inputs=inputs,
        batches=batches,
        runs=runs,
        warmup=warmup,
        seed=chosen.prompt_seed,
    )
    chosen.run(PREFILL_COLUMNS, measure, runs=runs, warmup=warmup)


@click.command()
@click.option(
    "--context",
    "contexts",
    callback=_numbers,
    metavar="N,N,...",
    default="8192,32768",
    show_default=True,
    help="Tokens of each sequence when decoding begins.",
)
@click.option(
    "--batch",
    "batches",
    callback=_numbers,
    metavar="N,N,...",
    default="1,2,4,8,16,32,64,128",
    show_default=True,
    help="Sequences at once.",
)
@click.option("--steps", type=click.IntRange(1), default=128, show_default=True, help="A cell.")
@click.option(
    "--warmup", type=click.IntRange(0), default=16, show_default=True, help="Steps before them."
)
@_shared
def decode(
    chosen: _Chosen,
    contexts: tuple[int, ...],
    batches: tuple[int, ...],
    steps: int,
    warmup: int,
) -> None:
    """Measure the steady time between tokens of MODEL, all sequences decoding together.

    Batches that the KV cache does not hold are told, not left out.
    """
    from rose.bench.console import DECODE_COLUMNS
    from rose.bench.measure import measure_decode

    measure = functools.partial(
        measure_decode,
        contexts=contexts,
        batches=batches,
        steps=steps,
        warmup=warmup,
        seed=chosen.prompt_seed,
    )
    chosen.run(DECODE_COLUMNS, measure, steps=steps, warmup=warmup)


@click.command()
@click.option("--device", type=choice(Device), default=get_args(Device)[0], show_default=True)
@click.option("--repeat", type=click.IntRange(1), default=20, show_default=True, help="Samples.")
@click.option("--out", type=_FILE, metavar="FILE", help="Result file to write.")
def roofline(device: str, repeat: int, out: Path | None) -> None:
    """Measure what this machine sustains: memory, products, launches, all-reduce."""
    require_engine()
    if out is not None:
        check_output(out)
    from rose.bench.collective import measure_links
    from rose.bench.console import ROOFLINE_COLUMNS, header, roofline_row
    from rose.bench.recorder import Recorder, new_result
    from rose.bench.roofline import measure

    where = resolve_device(device)
    result = new_result(flags={"device": where, "repeat": str(repeat)})
    with Recorder(result, out) as recorder:
        click.echo(header(ROOFLINE_COLUMNS))
        for found in chain(measure(where, repeat), measure_links(where, repeat)):
            if isinstance(found, str):
                recorder.note(found)
                _log(found)
            else:
                recorder.add(found)
                click.echo(roofline_row(found))


@click.command()
@click.argument("first", type=_FILE)
@click.argument("second", type=_FILE)
def compare(first: Path, second: Path) -> None:
    """Put two result files side by side: how many times faster or slower SECOND is, cell by cell.

    Of rates, "2x faster" is twice the rate; of times, half the time.
    """
    from rose.bench.compare import compare as compare_results
    from rose.bench.compare import table
    from rose.bench.results import load

    a, b = load(first), load(second)
    found = compare_results(a, b)
    for name, result in ((first, a), (second, b)):
        where = result.machine.name
        click.echo(f"{name}: {result.software.engine} on {where}, {result.created}")
    if found.machines_differ:
        _log("WARNING: DIFFERENT MACHINES, so that ratios do not compare the software alone:")
        for text in found.machines_differ:
            _log(f"  {text}")
    for text in found.warnings:
        _log(f"warning: {text}")
    for text in table(found):
        click.echo(text)
    for which, names in ((first, found.only_first), (second, found.only_second)):
        if names:
            click.echo(f"only in {which}: {'; '.join(names)}")


def _log(text: str) -> None:
    click.echo(text, err=True)

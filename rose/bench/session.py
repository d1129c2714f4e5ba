"""One run of `rose bench prefill` or `decode`: start, measure, print, keep."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path

from rose.bench.ceiling import Rates, rates_from_result, rates_known
from rose.bench.console import Columns, Context, header, row, skipped_row
from rose.bench.engines import EngineName, check_engine, start_subject
from rose.bench.machine import detect_machine
from rose.bench.measure import Identity
from rose.bench.peers import peer_name, warn_of_release
from rose.bench.published import peer_rows, peer_source, plain_model, prefill_source
from rose.bench.quick_rates import measure_rates
from rose.bench.recorder import Recorder, new_result
from rose.bench.results import (
    MOST_LETTERS,
    PLAIN_NAME,
    BenchError,
    EngineCell,
    Result,
    Sharding,
    SkippedCell,
    load,
)
from rose.bench.subject import Subject
from rose.config import EngineConfig, SchedulerConfig
from rose.options import EngineOptions

Measured = EngineCell | SkippedCell | str
"""A cell, or a line on what a reader must know of the cell before it."""

Measure = Callable[[Subject, Identity], Iterator[Measured]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What both measurements have in common.

    Attributes:
        engine: what is measured.
        shardings: one engine each, one after the other.
        roofline: a result file with this machine's rates; None: measured quickly, for ceilings.
        usd_per_gpu_hour: the price.
        out: result file to write; None: only print.
        flags: of the measurement itself, for the result file.
    """

    engine: EngineName
    shardings: tuple[Sharding, ...]
    roofline: Path | None
    usd_per_gpu_hour: float
    out: Path | None
    flags: dict[str, str]


def run(
    options: EngineOptions,
    settings: Settings,
    columns: Columns,
    measure: Measure,
    *,
    say: Callable[[str], None],
    log: Callable[[str], None],
) -> Result:
    """Measure, and print each cell as it comes.

    Args:
        options: of the engine.
        settings: of the run.
        columns: of the table.
        measure: yields the cells of one engine.
        say: takes a line of the table.
        log: takes a line for people beside it.

    Raises:
        UserError: a sharding cannot run, or the engine cannot start; then nothing was measured. Or
            no cell fits: the file holds why.
        KeyboardInterrupt: what was measured is in the file, marked partial.
    """
    if settings.engine != "rose" and options.quantization != "auto":
        raise BenchError("--quantization is Rose's own; a peer runs what the checkpoint holds")
    check_engine(settings.engine, settings.shardings, detect_machine().gpus)
    config = options.resolve()
    name = plain_model(config.served_name)
    if len(name) > MOST_LETTERS or not re.match(PLAIN_NAME, name):
        raise BenchError(
            f"{name[:80]!r} cannot name a model in a result: give another by --served-name"
        )
    rates = _rates(settings, config, log)
    context = Context(config.model, rates, settings.usd_per_gpu_hour)
    with Recorder(_result(options, settings, config), settings.out) as recorder:
        try:
            for number, sharding in enumerate(settings.shardings):
                # Not through the recorder: an older file stays until there is a cell.
                note = recorder.result.notes.append
                subject = start_subject(settings.engine, options, config, sharding, note)
                with closing(subject):
                    if number == 0:  # an engine that does not start leaves no table
                        say(header(columns))
                    identity = _identity(config, settings.engine, sharding)
                    _run_one(subject, identity, context, measure, recorder, say)
        except KeyboardInterrupt:
            cells = len(recorder.result.cells)
            kept = f" in {settings.out}, marked partial" if settings.out and cells else ""
            log(f"interrupted; {cells} cells are kept{kept}")
            raise
    for text in _footnotes(config, rates, recorder.result):
        log(text)
    if not recorder.result.cells:
        raise BenchError("nothing was measured: no cell fits, the table says why")
    return recorder.result


def _identity(config: EngineConfig, engine: EngineName, sharding: Sharding) -> Identity:
    held = config.model.checkpoint_quantization or "bf16"
    return Identity(
        model=plain_model(config.served_name),
        quantization=config.quantization_name if engine == "rose" else held,
        sharding=sharding,
        vocab_size=config.model.vocab_size,
    )


def _run_one(
    subject: Subject,
    identity: Identity,
    context: Context,
    measure: Measure,
    recorder: Recorder,
    say: Callable[[str], None],
) -> None:
    """All cells of one sharding."""
    for found in measure(subject, identity):
        if isinstance(found, str):
            recorder.note(found)
        elif isinstance(found, SkippedCell):
            recorder.skip(found)
            say(skipped_row(found))
        else:
            recorder.add(found)
            say(row(found, context))


def _rates(settings: Settings, config: EngineConfig, log: Callable[[str], None]) -> Rates | None:
    """This machine's rates: from a file, measured, or else those of the same GPU; None: unknown."""
    if settings.roofline is not None:
        return rates_from_result(load(settings.roofline), str(settings.roofline))
    # A peer wants to be first to set up the GPU.
    if settings.engine == "rose":
        try:
            return measure_rates(config.device, log)
        except BenchError as error:
            log(str(error))
    return rates_known(detect_machine())


def _result(options: EngineOptions, settings: Settings, config: EngineConfig) -> Result:
    flags = {
        **(_resolved(config) if settings.engine == "rose" else _given(options)),
        "engine": settings.engine,
        "sharding": ",".join(sharding.name for sharding in settings.shardings),
        **settings.flags,
    }
    name, notes = None, ["dummy weights"] if config.load_format == "dummy" else []
    if settings.engine != "rose":
        name = peer_name(settings.engine)
        notes += warn_of_release(settings.engine)
    return new_result(
        flags=flags,
        usd_per_gpu_hour=settings.usd_per_gpu_hour,
        engine=name,
        notes=notes,
    )


def _resolved(config: EngineConfig) -> dict[str, str]:
    """The engine's options as it runs with them; sizes that it measures are left out."""
    apart = ("model", "path", "served_name", "parallel", "scheduler", "decoder")
    names = [item.name for item in fields(EngineConfig) if item.name not in apart]
    flags = {name: str(getattr(config, name)) for name in names}
    for item in fields(SchedulerConfig):
        flags[item.name] = str(getattr(config.scheduler, item.name))
    return flags


def _given(options: EngineOptions) -> dict[str, str]:
    """What a peer is told of the engine's options."""
    names = ("load_format", "max_model_len", "max_num_seqs", "max_batched_tokens", "seed")
    return {name: str(getattr(options, name)) for name in names}


def _footnotes(config: EngineConfig, rates: Rates | None, result: Result) -> Iterator[str]:
    """Where the other columns are from, and what a reader must know."""
    if plain_model(config.served_name) in {cell.model for cell in peer_rows()}:
        for name, source in (("published", prefill_source()), ("peer", peer_source())):
            yield f"{name}: {source.text}, {source.date}"
    if rates is not None:
        yield f"ceiling: from the model's shape and {rates.source}"
    yield from (f"note: {text}" for text in result.notes)
    yield f"{len(result.cells)} cells measured, {len(result.skipped)} did not fit"

"""rose bench profile: a trace of an engine's steps, and where their time goes."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from rose.bench.results import Phase
from rose.cli_options import choice, engine_options
from rose.config import ConfigError, EngineConfig
from rose.options import EngineOptions

if TYPE_CHECKING:
    from rose.bench.ceiling import Rates
    from rose.bench.profile import ProfilePlan, Recording


@click.command()
@engine_options
@click.option("--phase", type=choice(Phase), required=True)
@click.option("--tokens", type=click.IntRange(1), required=True, help="Of each prompt.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Recorded: decode steps, or runs of the prefill.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="To write to."
)
@click.option(
    "--rates",
    type=click.Path(path_type=Path),
    metavar="RESULT.json",
    help="Of rose bench roofline on this machine.  [default: those of an H200]",
)
@click.option("--cpu-ops", is_flag=True, help="Record the host's ops too; they get slower by it.")
def profile(
    options: EngineOptions,
    phase: str,
    tokens: int,
    batch: int,
    steps: int,
    out: Path,
    rates: Path | None,
    cpu_ops: bool,
) -> None:
    """Record some steps of MODEL with torch's profiler.

    Writes trace.json.gz (for ui.perfetto.dev), and tables of ops and kernels as kernels.txt and
    kernels.json. ^C while it records keeps what there is.
    """
    # Else it notes every start and stop on standard error.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from rose.bench.ceiling import H200, rates_from_result
    from rose.bench.profile import ProfilePlan, record
    from rose.bench.results import load

    ceilings = H200 if rates is None else rates_from_result(load(rates), str(rates))
    _make_folder(out)
    plan = ProfilePlan(cast(Phase, phase), tokens, batch, steps, cpu_ops)
    config = options.resolve()
    recording = record(config, plan, out / "trace.json.gz")
    click.echo(_report(config, plan, recording, ceilings, out))
    if recording.done < steps:
        raise KeyboardInterrupt


def _make_folder(path: Path) -> None:
    """Before the work is done, so that a mistake costs none.

    Raises:
        ConfigError: it cannot be made, or not written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {path}: {error.strerror}; name a folder to write to") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {path} is not writable; name another folder")


def _report(
    config: EngineConfig, plan: "ProfilePlan", recording: "Recording", rates: "Rates", folder: Path
) -> str:
    """Write the tables; the text of the same, for the terminal."""
    import msgspec

    from rose.bench.kernel_table import (
        kernel_rows,
        kernel_table,
        op_table,
        read_trace,
        utilisation,
    )
    from rose.bench.machine import detect_machine, detect_software
    from rose.bench.step_work import work_of
    from rose.bench.tables import plain_text

    trace, window = read_trace(folder / "trace.json.gz"), recording.window
    use = utilisation(trace.events)
    rows = kernel_rows(trace, layers=config.model.num_layers, steps=window.steps)
    work = work_of(config.model, config.quantization_name, window, rates)
    tables = [kernel_table(rows, use, gpu=trace.gpu)]
    if trace.gpu:
        tables.insert(0, op_table(rows, work, rates, use, window.steps))
    title = (
        f"{config.served_name}, {config.device}, {config.quantization_name}: {plan.phase} of "
        f"{plan.batch} x {plan.tokens} tokens"
    )
    if recording.done < plan.steps:
        title += f"; interrupted after {recording.done} of {plan.steps}"
    text = "\n\n".join([title, *map(plain_text, tables)])
    (folder / "kernels.txt").write_text(text + "\n")
    content = {
        "model": config.served_name,
        "quantization": config.quantization_name,
        "plan": asdict(plan),
        "partial": recording.done < plan.steps,
        "machine": detect_machine(),
        "software": detect_software(),
        "window": asdict(window),
        "span_seconds": use.span,
        "busy_seconds": use.busy,
        "waiting_seconds": use.waiting,
        "idle_share": use.idle_share,
        "ceilings": rates.source,
        "work": {op: asdict(each) for op, each in work.items()},
        "kernels": [asdict(row) for row in rows],
    }
    encoded = msgspec.json.format(msgspec.json.encode(content), indent=1)
    (folder / "kernels.json").write_bytes(encoded + b"\n")
    return text

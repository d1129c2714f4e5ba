"""rose cost and rose bench report: what measured results mean; neither loads torch."""

from pathlib import Path

import click

from rose.cli_numbers import USD

_RESULTS = click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="RESULT.json...",
    type=click.Path(path_type=Path),
)


@click.command()
@_RESULTS
@click.option("--input-tokens", type=int, required=True, help="Of each prompt.")
@click.option("--output-tokens", type=int, required=True, help="Of each answer.")
@click.option("--rate", type=float, required=True, help="Requests a second.")
@click.option("--slo-ttft-s", type=float, help="The latest first token, in seconds.")
@click.option("--slo-tokens-per-s", type=float, help="Of a stream in a full batch, on average.")
@click.option(
    "--ttft-quantile",
    type=float,
    default=0.95,
    show_default=True,
    help="Share of the requests that --slo-ttft-s holds for.",
)
@click.option(
    "--cached-fraction",
    type=float,
    default=0.0,
    show_default=True,
    help="Of each prompt, held by the prefix cache.",
)
@click.option(
    "--max-utilisation",
    type=float,
    default=0.85,
    show_default=True,
    help="Busy share of replicas that is not exceeded.",
)
@click.option("--usd-per-gpu-hour", type=float, default=3.0, show_default=True)
@click.option("--engine", help="Price this engine, if the results hold several.")
@click.option("--model", help="Likewise.")
@click.option("--quantization", help="Likewise.")
@click.option("--json", "as_json", is_flag=True, help="All candidates, as one JSON object.")
@click.pass_context
def cost(
    ctx: click.Context,
    paths: tuple[Path, ...],
    input_tokens: int,
    output_tokens: int,
    rate: float,
    slo_ttft_s: float | None,
    slo_tokens_per_s: float | None,
    ttft_quantile: float,
    cached_fraction: float,
    max_utilisation: float,
    usd_per_gpu_hour: float,
    engine: str | None,
    model: str | None,
    quantization: str | None,
    as_json: bool,
) -> None:
    """Find the cheapest deployment for a workload, from results of rose bench prefill and decode.

    Exit status 3: nothing that was measured keeps the promises.
    """
    import msgspec

    from rose.bench.cost import plan
    from rose.bench.cost_text import plan_text
    from rose.bench.deployment import Limits
    from rose.bench.results import load
    from rose.bench.workload_model import Workload, gather

    workload = Workload(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        rate=rate,
        cached_fraction=cached_fraction,
        slo_ttft_s=slo_ttft_s,
        slo_tokens_per_s=slo_tokens_per_s,
    )
    limits = Limits(max_utilisation=max_utilisation, ttft_quantile=ttft_quantile)
    results = [load(path) for path in paths]
    cells = gather(results, engine=engine, model=model, quantization=quantization)
    found = plan(cells, workload, usd_per_gpu_hour=usd_per_gpu_hour, limits=limits)
    click.echo(msgspec.json.encode(found).decode() if as_json else plan_text(found))
    for warning in found.warnings if as_json else ():
        click.echo(f"WARNING: {warning}", err=True)
    if found.best is None:
        ctx.exit(3)


@click.command()
@_RESULTS
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write into.")
@click.option("--usd-per-gpu-hour", type=USD, help="[default: the results' own]")
def report(paths: tuple[Path, ...], out: Path, usd_per_gpu_hour: float | None) -> None:
    """Write report.html, which needs no network, and its charts as PNG and SVG."""
    from rose.bench.results import BenchError, load

    try:
        from rose.bench.report import Source, write_report
    except ModuleNotFoundError as error:
        message = f"rose bench report needs {error.name}: pip install 'rose[bench]'"
        raise BenchError(message) from None
    sources = [Source(path.name, load(path)) for path in paths]
    click.echo(write_report(sources, out, usd_per_gpu_hour=usd_per_gpu_hour))

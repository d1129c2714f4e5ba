"""A load's figures as text for a terminal."""

from rose.bench.results import ServeCell
from rose.bench.serving.stats import PERCENTILES, Slo, Spread, Summary

FEW_TOKENS = 0.99
"""Answers with less than this part of the tokens asked for are worth a line."""

BUNCHED = 0.05
"""So are tokens that came in chunks with others, above this part."""


TOKEN_IDS_ADVICE = {
    "completions": "--token-ids tells which chunk has how many",
    "chat": "--token-ids tells which chunk has how many, if the server's chats know it; Rose's do "
    "not",
}
"""What would make the counts of chunks exact, by API."""


def render(
    cell: ServeCell, summary: Summary, slo: Slo | None, *, bunched_advice: str | None = None
) -> str:
    """The figures of one load, several lines; what spoils them comes last and loud.

    Args:
        cell: the load.
        summary: its figures.
        slo: that goodput counts by.
        bunched_advice: of `TOKEN_IDS_ADVICE`; None: the user followed it already.
    """
    latencies = [
        ("TTFT", summary.ttft),
        ("ITL", summary.itl),
        ("TPOT", summary.tpot),
        ("E2E", summary.e2e),
    ]
    head = "".join(f"{name:>10}" for name in ("mean", *(f"p{p}" for p in PERCENTILES)))
    lines = [
        f"{cell.load}: {_outcome(cell, summary)}",
        f"  {'ms':<5}{head}",
        *(f"  {name:<5}{_spread(spread)}" for name, spread in latencies),
        *(f"  {line}" for line in _rates(summary, slo)),
        *(f"  {line}" for line in _generator(cell)),
        *_warnings(cell, summary, bunched_advice),
    ]
    return "\n".join(lines)


def _outcome(cell: ServeCell, summary: Summary) -> str:
    parts = [f"{summary.requests} requests served, rates over {cell.duration:.1f} s"]
    parts += [f"{count} failed ({kind})" for kind, count in sorted(summary.errors.items())]
    if cell.interrupted:
        parts.append(f"interrupted, with {summary.interrupted} in flight")
    return ", ".join(parts)


def _spread(spread: Spread) -> str:
    if not spread.count:
        return f"{'-':>10}" * (1 + len(PERCENTILES))
    return "".join(f"{s * 1e3:>10.2f}" for s in (spread.mean, *spread.percentiles.values()))


def _rates(summary: Summary, slo: Slo | None) -> list[str]:
    lines = [
        f"{summary.request_rate:.2f} requests/s, {summary.input_rate:.0f} tokens/s in, "
        f"{summary.output_rate:.0f} tokens/s out"
    ]
    if summary.goodput is not None and slo is not None:
        bounds = [("TTFT", slo.ttft), ("TPOT", slo.tpot)]
        told = " and ".join(f"{name} <= {s * 1e3:g} ms" for name, s in bounds if s is not None)
        lines.append(f"{summary.goodput:.2f} requests/s with {told}")
    if summary.usd_per_million_output is not None and summary.usd_per_million is not None:
        lines.append(
            f"${summary.usd_per_million_output:.3f} per million tokens out, "
            f"${summary.usd_per_million:.3f} per million in and out"
        )
    return lines


def _generator(cell: ServeCell) -> list[str]:
    found = cell.generator
    if found is None:
        return []
    processes = f"{found.processes} process" + ("es" if found.processes > 1 else "")
    return [
        f"the generator: {processes}, sent {found.send_lag_p99 * 1e3:.2f} ms late and woke "
        f"{found.loop_lag_p99 * 1e3:.2f} ms late (99%), {found.cpu_share:.0%} of a core"
    ]


def _warnings(cell: ServeCell, summary: Summary, bunched_advice: str | None) -> list[str]:
    lines = []
    failed = dict.fromkeys(summary.errors, "")
    for sample in cell.requests:
        kind, _, details = (sample.error or "").partition(":")
        if not sample.warmup and kind in failed:
            failed[kind] = failed[kind] or details.strip()
    lines += [f"  NOTE: {kind}: {details}" for kind, details in failed.items() if details]
    if summary.output_tokens < FEW_TOKENS * summary.asked_tokens:
        lines.append(
            f"  NOTE: {summary.output_tokens} output tokens of {summary.asked_tokens} asked for: "
            "answers ended early"
        )
    if summary.bunched > BUNCHED:
        advice = f" ({bunched_advice})" if bunched_advice else ""
        lines.append(
            f"  NOTE: {summary.bunched:.0%} of the tokens came in a chunk with others; ITL is "
            f"between chunks, TPOT a token{advice}"
        )
    if cell.saturated is not None:
        lines.append(
            f"  WARNING: THE GENERATOR WAS SATURATED: {cell.saturated}. These latencies are not "
            "the server's alone; try --workers, or another machine."
        )
    return lines

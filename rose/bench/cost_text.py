"""A plan of `cost` as text for a terminal."""

from rose.bench.cost import Plan
from rose.bench.deployment import DecodeOption, Deployment, PrefillOption
from rose.bench.results import Sharding
from rose.bench.tables import Row, Table, plain_text, seconds, significant

_SHOWN = 12
"""Deployments listed; the rest are only counted."""


def plan_text(plan: Plan) -> str:
    """Warnings, the answer, and the tables that led to it."""
    parts = [f"WARNING: {warning}" for warning in plan.warnings]
    parts.append(_question(plan))
    parts.append(_answer(plan))
    parts += [plain_text(_prefill(plan.prefill)), plain_text(_decode(plan.decode))]
    if plan.deployments:
        parts.append(plain_text(_deployments(plan.deployments)))
    return "\n\n".join(parts)


def _question(plan: Plan) -> str:
    load = plan.workload
    promises = []
    if load.slo_ttft_s is not None:
        share = f"{100 * plan.limits.ttft_quantile:g}%"
        promises.append(f"first token within {load.slo_ttft_s:g} s for {share}")
    if load.slo_tokens_per_s is not None:
        promises.append(f"{load.slo_tokens_per_s:g} tokens/s/user on average in a full batch")
    cached = f", {load.cached_tokens} of them cached" if load.cached_tokens else ""
    return (
        f"{plan.model} ({plan.quantization}, {plan.engine}) on {'; '.join(plan.machines)}, "
        f"${plan.usd_per_gpu_hour:g} a GPU-hour\n"
        f"{load.rate:g} requests/s of {load.input_tokens} input tokens{cached} and "
        f"{load.output_tokens} output tokens\n"
        f"Promised: {'; '.join(promises) or 'nothing'}. "
        f"Replicas at most {100 * plan.limits.max_utilisation:g}% busy."
    )


def _answer(plan: Plan) -> str:
    best = plan.best
    if best is None:
        return (
            "NO DEPLOYMENT of what was measured keeps these promises; the tables say what fails. "
            "Promise less, or measure more shardings or smaller batches."
        )
    if best.kind == "disaggregated":
        how = (
            f"{_replicas(best.prefill_replicas, best.prefill_sharding)} for prefill, "
            f"{_replicas(best.decode_replicas, best.decode_sharding)} for decode "
            f"(prefill:decode {best.prefill_replicas}:{best.decode_replicas})"
        )
    else:
        how = f"{_replicas(best.decode_replicas, best.decode_sharding)}, each does both"
    ttft = f"{seconds(best.prefill_s)} prefill + {seconds(best.prefill_wait_s)} queue"
    return "\n".join(
        [
            f"CHEAPEST: {best.kind}, {_gpus(best.gpus)}, ${best.usd_per_hour:,.2f} an hour",
            f"  {how}, batches up to {best.batch}",
            f"  ${significant(best.usd_per_million_input)} per million input tokens, "
            f"${significant(best.usd_per_million_output)} per million output tokens, "
            f"${significant(best.usd_per_request)} a request (idle time included)",
            f"  first token {seconds(best.ttft_s)} ({ttft} "
            f"+ {seconds(best.slot_wait_s)} for a place in a batch)",
            f"  {significant(best.tokens_per_s_per_user)} tokens/s/user in a full batch, "
            f"{significant(best.tokens_per_s_per_gpu)} output tokens/s/GPU over all GPUs",
            *_other_kind(plan, best),
        ]
    )


def _other_kind(plan: Plan, best: Deployment) -> list[str]:
    others = [one for one in plan.deployments if one.kind != best.kind]
    if not others:
        missing = "colocated" if best.kind == "disaggregated" else "disaggregated"
        return [f"  no {missing} deployment keeps the promises"]
    other = others[0]
    return [
        f"  the cheapest {other.kind} one needs {_gpus(other.gpus)} "
        f"({other.gpus / best.gpus:.2f} times the price)"
    ]


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"


def _replicas(count: int, sharding: Sharding) -> str:
    return f"{count} x {sharding.name}"


def _prefill(options: list[PrefillOption]) -> Table:
    rows = []
    for option in options:
        numbers = ["-", "-"]
        if option.seconds is not None and option.usd_per_million is not None:
            numbers = [significant(option.seconds), significant(option.usd_per_million)]
        name, verdict = option.sharding.name, option.rejected or "ok"
        rows.append(Row([name, str(option.sharding.gpus), *numbers, verdict]))
    header = ["sharding", "GPUs", "seconds", "$/M input, busy", "verdict"]
    return Table("Prefill of one prompt", header, rows, text_columns=frozenset({0, 4}))


def _decode(options: list[DecodeOption]) -> Table:
    rows = []
    for option in options:
        if option.step_s is None or option.usd_per_million is None:
            numbers = [str(option.batch or "-"), *["-"] * 4]
        elif option.measured:
            speed = 1 / option.step_s
            numbers = [
                str(option.batch),
                significant(option.step_s * 1e3),
                significant(speed),
                significant(speed * option.batch / option.sharding.gpus),
                significant(option.usd_per_million),
            ]
        else:
            continue  # between the measured batches: searched, too many to print
        verdict = option.rejected or "ok"
        rows.append(Row([option.sharding.name, str(option.sharding.gpus), *numbers, verdict]))
    header = ["sharding", "GPUs", "batch", "ms a step", "tokens/s/user", "tokens/s/GPU"]
    header += ["$/M output, busy", "verdict"]
    return Table(
        "Decode at the mean context (measured batches; those between are searched too)",
        header,
        rows,
        text_columns=frozenset({0, 7}),
    )


def _deployments(deployments: list[Deployment]) -> Table:
    rows = []
    for one in deployments[:_SHOWN]:
        prefill = _replicas(one.prefill_replicas, one.prefill_sharding)
        cells = [
            one.kind,
            prefill if one.kind == "disaggregated" else "-",
            _replicas(one.decode_replicas, one.decode_sharding),
            str(one.batch),
            str(one.gpus),
            significant(one.usd_per_request * 1e3),
            significant(one.ttft_s),
            significant(one.tokens_per_s_per_user),
            f"{one.prefill_utilisation:.0%} / {one.decode_utilisation:.0%}",
        ]
        rows.append(Row(cells))
    more = len(deployments) - _SHOWN
    header = ["kind", "prefill", "decode", "batch", "GPUs", "$/1000 requests", "first token, s"]
    header += ["tokens/s/user", "prefill / places busy"]
    return Table(
        "Deployments that keep the promises, the cheapest of each kind and pair of shardings",
        header,
        rows,
        notes=[f"... and {more} dearer ones (--json lists all)"] if more > 0 else [],
        text_columns=frozenset({0, 1, 2}),
    )

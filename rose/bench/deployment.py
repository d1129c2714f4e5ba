"""Deployments of replicas that serve a workload, and the search for the cheapest.

The formulas are derived in docs/cost-model.md. Shares of time are of a replica; waits are those of
`queueing`, at the quantile that the promise is for.
"""

import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from rose.bench.queueing import wait_quantile
from rose.bench.results import BenchError, Sharding
from rose.bench.workload_model import Workload

Kind = Literal["disaggregated", "colocated"]

LEAST_UTILISATION = 0.01


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment may do.

    Attributes:
        max_utilisation: busy share of replicas that is not exceeded, in [LEAST_UTILISATION, 1).
        ttft_quantile: share of the requests that the promised TTFT holds for, in (0, 1).
    """

    max_utilisation: float = 0.85
    ttft_quantile: float = 0.95

    def __post_init__(self) -> None:
        if not LEAST_UTILISATION <= self.max_utilisation < 1:
            raise BenchError(
                f"max_utilisation must be from {LEAST_UTILISATION:g} to below 1; "
                f"got {self.max_utilisation:g}"
            )
        if not 0 < self.ttft_quantile < 1:
            raise BenchError(f"ttft_quantile must be between 0 and 1; got {self.ttft_quantile:g}")


class PrefillOption(msgspec.Struct, frozen=True, kw_only=True):
    """One sharding's prefill of the workload's prompt.

    Attributes:
        seconds: of one prompt without waiting; None: not measured.
        usd_per_million: $ per million input tokens (cached ones count) if it were always busy.
        rejected: why it cannot serve; None: it can.
    """

    sharding: Sharding
    seconds: float | None = None
    usd_per_million: float | None = None
    note: str | None = None
    rejected: str | None = None


class DecodeOption(msgspec.Struct, frozen=True, kw_only=True):
    """One sharding's decode at one batch.

    Attributes:
        batch: sequences at once over the sharding's GPUs; 0: no batch was measured.
        step_s: seconds a step; None: not measured.
        measured: the batch itself was measured, not interpolated.
        usd_per_million: $ per million output tokens if it were always full.
        rejected: why it cannot serve; None: it can.
    """

    sharding: Sharding
    batch: int = 0
    step_s: float | None = None
    measured: bool = False
    usd_per_million: float | None = None
    rejected: str | None = None


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A number of replicas and what they do to the workload.

    Attributes:
        prefill_replicas: colocated: the same replicas as `decode_replicas`.
        batch: sequences at once in a decode replica, at most.
        prefill_s: seconds of prefill itself.
        prefill_wait_s, slot_wait_s: waits for a prefill replica and for a place in a batch, at the
            quantile asked for.
        ttft_s: seconds to the first token at that quantile, the sum of the three.
        tokens_per_s_per_user: of a stream in a full batch, on average.
        prefill_utilisation, decode_utilisation: busy shares of replicas, of places in batches.
        usd_per_million_input, usd_per_million_output: what is paid, idle time included.
        tokens_per_s_per_gpu: output tokens.
    """

    kind: Kind
    prefill_sharding: Sharding
    prefill_replicas: int
    decode_sharding: Sharding
    decode_replicas: int
    batch: int
    gpus: int
    prefill_s: float
    prefill_wait_s: float
    slot_wait_s: float
    ttft_s: float
    tokens_per_s_per_user: float
    prefill_utilisation: float
    decode_utilisation: float
    usd_per_hour: float
    usd_per_request: float
    usd_per_million_input: float
    usd_per_million_output: float
    tokens_per_s_per_gpu: float


def cheapest(
    prefill: Iterable[PrefillOption],
    decode: Iterable[DecodeOption],
    workload: Workload,
    limits: Limits,
    usd_per_gpu_hour: float,
) -> list[Deployment]:
    """The cheapest deployment of each kind and pair of shardings that keeps the promises.

    Options that are rejected take no part.

    Returns:
        Cheapest first; of equal price the one with the earlier first token.
    """
    best: dict[tuple[Kind, Sharding, Sharding], Deployment] = {}
    decoders = [option for option in decode if option.rejected is None]
    for first in prefill:
        if first.rejected is not None:
            continue
        for then in decoders:
            search = _Search(first, then, workload, limits, usd_per_gpu_hour)
            found = [search.disaggregated()]
            if first.sharding == then.sharding:
                found.append(search.colocated())
            for one in found:
                if one is not None:
                    key = one.kind, one.prefill_sharding, one.decode_sharding
                    best[key] = min(best.get(key, one), one, key=_preference)
    return sorted(best.values(), key=_preference)


def _preference(one: Deployment) -> tuple[int, float]:
    return one.gpus, one.ttft_s


def _whole(replicas: float) -> int:
    """Replicas that carry this much work; what rounding added to a whole number does not count."""
    return max(1, math.ceil(replicas - 1e-9))


class _Search:
    """Replicas for one option of each phase."""

    def __init__(
        self,
        prefill: PrefillOption,
        decode: DecodeOption,
        workload: Workload,
        limits: Limits,
        usd_per_gpu_hour: float,
    ) -> None:
        assert prefill.seconds is not None  # else it is rejected
        assert decode.step_s is not None
        self.prefill, self.decode, self.workload, self.limits = prefill, decode, workload, limits
        self.usd_per_gpu_hour = usd_per_gpu_hour
        self.prefill_s, self.step_s = prefill.seconds, decode.step_s
        self.servers = prefill.sharding.dp  # each data-parallel replica prefills a prompt
        self.stream_s = workload.decode_steps * self.step_s
        # Replicas that would be busy, or full, all the time.
        self.prefill_load = workload.rate * self.prefill_s / self.servers
        self.stream_load = workload.rate * self.stream_s / decode.batch

    def disaggregated(self) -> Deployment | None:
        """The fewest GPUs; None: the first token is late with however many.

        More decode replicas than needed can pay: less wait for a place leaves more for prefill.
        """
        found: Deployment | None = None
        held_s = self.prefill_s + self.stream_s  # a prompt has its place before it is computed
        load = self.workload.rate * held_s / self.decode.batch
        decoders = _whole(load / self.limits.max_utilisation)
        while True:
            slot_wait = self._wait(decoders * self.decode.batch, held_s, load / decoders)
            one = self._with_prefillers(decoders, slot_wait, load / decoders)
            if one is not None:
                found = min(found or one, one, key=_preference)
            if slot_wait == 0:
                return found
            decoders += 1

    def _with_prefillers(self, decoders: int, slot_wait: float, places: float) -> Deployment | None:
        if not self._in_time(0.0, slot_wait):
            return None
        prefillers = _whole(self.prefill_load / self.limits.max_utilisation)
        while True:
            utilisation = self.prefill_load / prefillers
            wait = self._wait(prefillers * self.servers, self.prefill_s, utilisation)
            if self._in_time(wait, slot_wait):
                break
            prefillers += 1
        prefill_gpus = prefillers * self.prefill.sharding.gpus
        decode_gpus = decoders * self.decode.sharding.gpus
        return self._deployment(
            "disaggregated",
            replicas=(prefillers, decoders),
            waits=(wait, slot_wait),
            step_s=self.step_s,
            utilisation=(utilisation, places),
            gpus=prefill_gpus + decode_gpus,
            input_share=prefill_gpus / (prefill_gpus + decode_gpus),
        )

    def colocated(self) -> Deployment | None:
        """The fewest replicas that do both; None: a promise breaks with however many.

        Prefills go first, so the streams of a replica stand still while it prefills: a share phi
        of the time. A step then takes 1 / (1 - phi) as long on average.
        """
        slowest = self.workload.slo_tokens_per_s or 0.0
        most_prefill = 1 - slowest * self.step_s
        if most_prefill <= 0 or not self._in_time(self.step_s, 0.0):
            return None
        load = self.prefill_load + self.stream_load
        replicas = max(
            _whole(load / self.limits.max_utilisation), _whole(self.prefill_load / most_prefill)
        )
        while True:
            phi = self.prefill_load / replicas
            step_s = self.step_s / (1 - phi)
            held_s = self.prefill_s + self.workload.decode_steps * step_s
            slots = replicas * self.decode.batch
            places = self.workload.rate * held_s / slots
            # A burst of prefills also delays who would leave: the variance of those in the batch
            # is 1 / (1 - phi)^2 times that of independent streams (a delay busy period), so as many
            # fewer places count (Hayward's equivalence of peaked traffic).
            equivalent = max(1.0, slots * (1 - phi) ** 2)
            # A prompt also waits for the step that runs.
            wait = self.step_s + self._wait(replicas * self.servers, self.prefill_s, phi)
            slot_wait = self._wait(equivalent, held_s, places)
            if places <= self.limits.max_utilisation and self._in_time(wait, slot_wait):
                break
            replicas += 1
        return self._deployment(
            "colocated",
            replicas=(replicas, replicas),
            waits=(wait, slot_wait),
            step_s=step_s,
            utilisation=(phi, places),
            gpus=replicas * self.decode.sharding.gpus,
            input_share=self.prefill_load / load,
        )

    def _wait(self, servers: float, service_s: float, utilisation: float) -> float:
        return wait_quantile(servers, service_s, utilisation, self.limits.ttft_quantile)

    def _in_time(self, prefill_wait: float, slot_wait: float) -> bool:
        promised = self.workload.slo_ttft_s
        return promised is None or self.prefill_s + prefill_wait + slot_wait <= promised

    def _deployment(
        self,
        kind: Kind,
        *,
        replicas: tuple[int, int],
        waits: tuple[float, float],
        step_s: float,
        utilisation: tuple[float, float],
        gpus: int,
        input_share: float,
    ) -> Deployment:
        """Price it; the pairs are (prefill, decode), `input_share` of the price is the prompts'."""
        usd_per_hour = gpus * self.usd_per_gpu_hour
        usd_per_request = usd_per_hour / (self.workload.rate * 3600)
        inputs, outputs = self.workload.input_tokens, self.workload.output_tokens
        return Deployment(
            kind=kind,
            prefill_sharding=self.prefill.sharding,
            prefill_replicas=replicas[0],
            decode_sharding=self.decode.sharding,
            decode_replicas=replicas[1],
            batch=self.decode.batch,
            gpus=gpus,
            prefill_s=self.prefill_s,
            prefill_wait_s=waits[0],
            slot_wait_s=waits[1],
            ttft_s=self.prefill_s + sum(waits),
            tokens_per_s_per_user=1 / step_s,
            prefill_utilisation=utilisation[0],
            decode_utilisation=utilisation[1],
            usd_per_hour=usd_per_hour,
            usd_per_request=usd_per_request,
            usd_per_million_input=usd_per_request * input_share / inputs * 1e6,
            usd_per_million_output=usd_per_request * (1 - input_share) / outputs * 1e6,
            tokens_per_s_per_gpu=self.workload.rate * outputs / gpus,
        )

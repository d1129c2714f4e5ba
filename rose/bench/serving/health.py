"""Whether the load generator itself kept up: late wake-ups, late sends, and its use of its core."""

import asyncio
import time
from collections.abc import Sequence

import numpy as np

from rose.bench.results import Generator, RequestSample
from rose.bench.serving.stats import tpots, ttfts

PERIOD_S = 0.01
MAX_LAG_S = 2e-3
"""Of the 99th percentile. The event loop's timers alone are up to 1 ms late."""

MAX_SEND_LAG_OF_TTFT = 0.1
MAX_LOOP_LAG_OF_TPOT = 0.5
"""Short lags, too, spoil short latencies: parts of the medians that lags may be."""

MAX_CPU_SHARE = 0.9


class LoopWatch:
    """Sleeps again and again in an event loop and keeps how late it woke.

    Attributes:
        lags: seconds, each of them.
    """

    def __init__(self) -> None:
        self.lags: list[float] = []
        self._began = self._cpu = 0.0

    async def run(self) -> None:
        """Watch until cancelled."""
        self._began, self._cpu = time.monotonic(), time.process_time()
        while True:
            slept = time.monotonic()
            await asyncio.sleep(PERIOD_S)
            self.lags.append(max(0.0, time.monotonic() - slept - PERIOD_S))

    def report(self, samples: Sequence[RequestSample]) -> Generator:
        """How this process fared, which sent these requests."""
        elapsed = time.monotonic() - self._began
        return Generator(
            processes=1,
            loop_lag_p99=_p99(self.lags),
            send_lag_p99=_p99([s.sent - s.scheduled for s in samples if not s.warmup]),
            cpu_share=(time.process_time() - self._cpu) / elapsed if self._began else 0.0,
        )


def worst(reports: Sequence[Generator]) -> Generator:
    """Of several processes."""
    return Generator(
        processes=len(reports),
        loop_lag_p99=max(r.loop_lag_p99 for r in reports),
        send_lag_p99=max(r.send_lag_p99 for r in reports),
        cpu_share=max(r.cpu_share for r in reports),
    )


def saturation(generator: Generator, samples: Sequence[RequestSample]) -> str | None:
    """Why latencies measured so are not to be trusted; None: they are."""
    reasons = []
    send_limit = min(MAX_LAG_S, MAX_SEND_LAG_OF_TTFT * _median(ttfts(samples)))
    loop_limit = min(MAX_LAG_S, MAX_LOOP_LAG_OF_TPOT * _median(tpots(samples)))
    for what, lag, limit in (
        ("requests were sent", generator.send_lag_p99, send_limit),
        ("its event loop woke", generator.loop_lag_p99, loop_limit),
    ):
        if lag > limit:
            reasons.append(f"{what} {lag * 1e3:.2f} ms late (99%), over {limit * 1e3:.2f} ms")
    if generator.cpu_share > MAX_CPU_SHARE:
        reasons.append(f"it used {generator.cpu_share:.0%} of its core")
    return "; ".join(reasons) or None


def _p99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99)) if len(values) else 0.0


def _median(values: Sequence[float]) -> float:
    """Infinite where there is none, so that nothing is too large a part of it."""
    return float(np.median(values)) if len(values) else float("inf")

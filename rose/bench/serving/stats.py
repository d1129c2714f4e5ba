"""What a load's samples say: latencies, throughput, goodput and their price."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from rose.bench.results import RequestSample, ServeCell, usd_per_million_tokens
from rose.bench.serving.counted import INTERRUPTED, served, tokens, window

PERCENTILES = (50, 90, 95, 99)


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must meet to count as good; None: whatever it takes.

    Attributes:
        ttft: seconds to the first token.
        tpot: seconds a token after it.
    """

    ttft: float | None = None
    tpot: float | None = None

    def meets(self, sample: RequestSample) -> bool:
        """Whether a request was served, and as fast as asked."""
        if sample.error is not None:
            return False
        tpot = sample.tpot
        return (self.ttft is None or sample.ttft <= self.ttft) and (
            self.tpot is None or tpot is None or tpot <= self.tpot
        )


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of some samples, in seconds.

    Attributes:
        count: how many; with none, all else is 0.
        percentiles: by PERCENTILES; linear between samples.
    """

    count: int
    mean: float
    percentiles: dict[int, float]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of these."""
        if not len(values):
            return cls(count=0, mean=0.0, percentiles=dict.fromkeys(PERCENTILES, 0.0))
        found = np.percentile(values, PERCENTILES)
        percentiles = dict(zip(PERCENTILES, map(float, found), strict=True))
        return cls(count=len(values), mean=float(np.mean(values)), percentiles=percentiles)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One load in figures. Warm-up is in none of the latencies, and not among the requests.

    Attributes:
        requests: that were served.
        errors: requests that were not, by kind.
        interrupted: requests that were given up on ^C.
        ttft: from when a request was due to its first token.
        itl: between two chunks of a stream, as a reader sees it.
        tpot: of each request, the mean time a token after the first chunk.
        e2e: from when a request was due to the end of its stream.
        request_rate: requests a second whose answer ended while the load lasted. This and the other
            rates count what began in the warm-up, too, and nothing of failed requests: what a
            server owes when the load ends, it did not serve at that rate.
        input_rate: prompt tokens a second whose first token came while the load lasted.
        output_rate: output tokens a second that came while the load lasted.
        goodput: of `request_rate`, those that met the SLO; None: there is none.
        asked_tokens, output_tokens: of the requests served.
        bunched: part of the output tokens that came in a chunk with others.
        usd_per_million_output: all GPUs' price over the output tokens; None: unknown.
        usd_per_million: over the tokens in and out together.
    """

    requests: int
    errors: dict[str, int]
    interrupted: int
    ttft: Spread
    itl: Spread
    tpot: Spread
    e2e: Spread
    request_rate: float
    input_rate: float
    output_rate: float
    goodput: float | None
    asked_tokens: int
    output_tokens: int
    bunched: float
    usd_per_million_output: float | None
    usd_per_million: float | None


def ttfts(samples: Sequence[RequestSample]) -> list[float]:
    """Of those that count."""
    return [s.ttft for s in served(samples)]


def tpots(samples: Sequence[RequestSample]) -> list[float]:
    """Of those that count and have more than one chunk."""
    return [value for s in served(samples) if (value := s.tpot) is not None]


def itls(samples: Sequence[RequestSample]) -> list[float]:
    """All gaps between chunks, of those that count."""
    gaps = [np.diff(s.token_times) for s in served(samples)]
    found: list[float] = np.concatenate(gaps).tolist() if gaps else []
    return found


def error_kind(error: str) -> str:
    """The kind of a sample's error: what is before its details."""
    return error.partition(":")[0]


def summarize(cell: ServeCell, slo: Slo | None = None, usd_per_gpu_hour: float = 3.0) -> Summary:
    """The figures of one load.

    Args:
        cell: the load.
        slo: of goodput; None: there is none.
        usd_per_gpu_hour: the price; used if the cell tells how many GPUs.
    """
    good = served(cell.requests)
    failed = [s.error for s in cell.requests if s.error is not None and not s.warmup]
    kinds = Counter(map(error_kind, failed))
    interrupted = kinds.pop(INTERRUPTED, 0)
    begin, end = window(cell)
    ended = [s for s in cell.requests if s.error is None and begin <= s.finished <= end]
    tokens_in, tokens_out = tokens(cell)
    counts = [n for s in good for n in s.token_counts]
    output = sum(counts)
    return Summary(
        requests=len(good),
        errors=dict(kinds),
        interrupted=interrupted,
        ttft=Spread.of([s.ttft for s in good]),
        itl=Spread.of(itls(good)),
        tpot=Spread.of(tpots(good)),
        e2e=Spread.of([s.finished - s.scheduled for s in good]),
        request_rate=_rate(len(ended), cell.duration),
        input_rate=_rate(tokens_in, cell.duration),
        output_rate=_rate(tokens_out, cell.duration),
        goodput=None if slo is None else _rate(sum(map(slo.meets, ended)), cell.duration),
        asked_tokens=sum(s.asked_tokens for s in good),
        output_tokens=output,
        bunched=sum(n for n in counts if n > 1) / output if output else 0.0,
        usd_per_million_output=_price(cell, tokens_out, usd_per_gpu_hour),
        usd_per_million=_price(cell, tokens_in + tokens_out, usd_per_gpu_hour),
    )


def _rate(amount: int, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _price(cell: ServeCell, tokens: int, usd_per_gpu_hour: float) -> float | None:
    if not cell.gpus or not tokens:
        return None
    return usd_per_million_tokens(
        cell.duration, tokens, gpus=cell.gpus, usd_per_gpu_hour=usd_per_gpu_hour
    )

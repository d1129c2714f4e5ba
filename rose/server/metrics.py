"""Prometheus metrics of one front end, and of the engines behind it."""

import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rose.protocol import RequestOutput
from rose.server.engine_client import EngineClient, EngineState
from rose.server.engines import Engines

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KV_GROUPS = ("full", "sliding")

_FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5)
_REQUEST_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """All series, in a registry of their own."""

    def __init__(self, client: Engines) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(client))
        self._requests = Counter(
            "rose_requests",
            "HTTP calls that reached the engine, by how they ended",
            ["outcome"],
            registry=self._registry,
        )
        self._prompt_tokens = Counter(
            "rose_prompt_tokens", "Prompt tokens of answered requests", registry=self._registry
        )
        self._cached_tokens = Counter(
            "rose_prompt_tokens_cached",
            "Of those, tokens that came from the prefix cache",
            registry=self._registry,
        )
        self._generated_tokens = Counter(
            "rose_generation_tokens", "Tokens received from the engine", registry=self._registry
        )
        self._first_token = self._histogram(
            "rose_time_to_first_token_seconds", "From call to first token", _FIRST_TOKEN_BUCKETS
        )
        self._token = self._histogram(
            "rose_inter_token_seconds", "Time a token after a sequence's first", _TOKEN_BUCKETS
        )
        self._request = self._histogram(
            "rose_request_seconds", "From call to the end of the answer", _REQUEST_BUCKETS
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self._registry)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self._registry)

    def start(self) -> "CallTimer":
        """Begin to measure one HTTP call."""
        return CallTimer(self)

    def count_end(self, outcome: str, seconds: float) -> None:
        """One call ended (for CallTimer)."""
        self._requests.labels(outcome).inc()
        self._request.observe(seconds)

    def count_prompt(self, output: RequestOutput) -> None:
        """A request gave its first output (for CallTimer)."""
        self._prompt_tokens.inc(output.num_prompt_tokens)
        self._cached_tokens.inc(output.num_cached_tokens)

    def count_first(self, num_tokens: int, seconds: float) -> None:
        """A sequence gave its first tokens (for CallTimer)."""
        self._generated_tokens.inc(num_tokens)
        self._first_token.observe(seconds)

    def count_next(self, num_tokens: int, seconds: float) -> None:
        """A sequence gave more tokens, `seconds` after the last (for CallTimer)."""
        self._generated_tokens.inc(num_tokens)
        self._token.observe(seconds / num_tokens)


class CallTimer:
    """Measures one HTTP call.

    Attributes:
        outcome: how it ended, a label of `rose_requests_total`.
        prompt_tokens: of all its prompts that gave an output.
        generated_tokens: of all its sequences.
        first_token_s: seconds until its first token; None: it had none yet.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.outcome = "aborted"
        self.prompt_tokens = self.generated_tokens = 0
        self.first_token_s: float | None = None
        self._metrics = metrics
        self._started = time.monotonic()
        self._last: dict[tuple[str, int], float] = {}
        self._prompts: set[str] = set()
        self._ended = False

    def observe(self, outputs: list[RequestOutput]) -> None:
        """Count outputs that came just now."""
        now = time.monotonic()
        for output in outputs:
            if output.request_id not in self._prompts:
                self._prompts.add(output.request_id)
                self._metrics.count_prompt(output)
                self.prompt_tokens += output.num_prompt_tokens
            if not output.token_ids:
                continue
            self.generated_tokens += len(output.token_ids)
            if self.first_token_s is None:
                self.first_token_s = now - self._started
            key = (output.request_id, output.index)
            last = self._last.get(key)
            if last is None:
                self._metrics.count_first(len(output.token_ids), now - self._started)
            else:
                self._metrics.count_next(len(output.token_ids), now - last)
            self._last[key] = now

    def end(self) -> None:
        """The call is over. Ending it again does nothing."""
        if not self._ended:
            self._ended = True
            self._metrics.count_end(self.outcome, time.monotonic() - self._started)


class _EngineCollector(Collector):
    """The engines' own numbers, as of their last heartbeats."""

    def __init__(self, client: Engines) -> None:
        self._client = client

    def collect(self) -> Iterator[Metric]:
        engines = [(str(number), engine) for number, engine in enumerate(self._client.engines)]
        yield _gauge("up", "1 if the engine takes requests", engines, _is_up)
        yield _gauge("running", "Sequences running", engines, lambda e: e.stats.running)
        yield _gauge("waiting", "Sequences waiting", engines, lambda e: e.stats.waiting)
        for name, text, field in (
            ("used", "KV cache blocks in use by sequences", "kv_blocks_used"),
            ("total", "KV cache blocks", "kv_blocks_total"),
        ):
            family = GaugeMetricFamily(
                f"rose_engine_kv_blocks_{name}", text, labels=["engine", "group"]
            )
            for number, engine in engines:
                for group, value in zip(KV_GROUPS, getattr(engine.stats, field), strict=False):
                    family.add_metric([number, group], value)
            yield family
        for name, text, field in (
            ("steps", "Steps run", "steps"),
            ("prompt_tokens", "Prompt tokens admitted", "prompt_tokens"),
            ("prefix_hit_tokens", "Of those, from the prefix cache", "cached_prompt_tokens"),
            ("generated_tokens", "Tokens generated", "generated_tokens"),
            ("preemptions", "Sequences preempted", "preemptions"),
        ):
            counter = CounterMetricFamily(f"rose_engine_{name}", text, labels=["engine"])
            for number, engine in engines:
                counter.add_metric([number], getattr(engine.stats, field))
            yield counter


def _gauge(
    name: str,
    text: str,
    engines: Sequence[tuple[str, EngineClient]],
    value: Callable[[EngineClient], float],
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"rose_engine_{name}", text, labels=["engine"])
    for number, engine in engines:
        family.add_metric([number], value(engine))
    return family


def _is_up(engine: EngineClient) -> float:
    return float(engine.state is EngineState.READY)

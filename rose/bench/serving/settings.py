"""What the user asked of a load test, checked, and what it comes to."""

import math
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rose.bench.results import MOST_REQUESTS, BenchError
from rose.bench.serving.arrivals import ClosedLoop, Extent, Load, OpenLoop
from rose.bench.serving.client import Api, Target
from rose.bench.serving.lengths import Lengths
from rose.bench.serving.plan import Plan
from rose.bench.serving.preflight import api_url
from rose.bench.serving.stats import Slo
from rose.bench.serving.trace import TraceEntry, load_tokenizer, read_trace

DEFAULT_REQUESTS = 100
DEFAULT_INPUT = "512"
DEFAULT_OUTPUT = "128"

_MOST_RATE = 1e6
_MOST_USERS = 100_000
_MOST_PREFIX_TOKENS = 2**26
_SECRET = frozenset({"api_key"})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of `rose bench serve`, as its help describes them.

    Raises:
        BenchError: an option cannot be, or two do not go together.
    """

    url: str
    model: str = ""
    api: Api = "completions"
    api_key: str | None = None
    rate: str | None = None
    arrivals: str = "poisson"
    concurrency: str | None = None
    requests: int | None = None
    duration: float | None = None
    warmup: int = 0
    input: str | None = None
    output: str | None = None
    trace: Path | None = None
    tokenizer: Path | None = None
    prefix_tokens: int = 0
    prefix_groups: int = 1
    vocab_size: int | None = None
    seed: int | None = None
    body: str = "{}"
    token_ids: bool = False
    timeout: float = 600.0
    slo_ttft_ms: float | None = None
    slo_tpot_ms: float | None = None
    gpus: int = 0
    usd_per_gpu_hour: float = 3.0
    workers: int = 1
    out: Path | None = None
    resolved_seed: int = field(init=False)

    def __post_init__(self) -> None:
        seed = secrets.randbelow(2**32) if self.seed is None else self.seed
        object.__setattr__(self, "resolved_seed", seed)
        if (self.rate is None) == (self.concurrency is None):
            raise BenchError("give either --rate (open loop) or --concurrency (closed loop)")
        if self.trace is not None and (self.input is not None or self.output is not None):
            raise BenchError("a --trace has its own lengths: give no --input and no --output")

    def loads(self) -> list[Load]:
        """One a rate, or one a number of users.

        Raises:
            BenchError: a number is none, or out of range; or the requests are too many.
        """
        if self.rate is not None:
            rates = _numbers("--rate", self.rate, _MOST_RATE)
            self._check_number(max(rates))
            return [OpenLoop(rate, poisson=self.arrivals == "poisson") for rate in rates]
        assert self.concurrency is not None
        users = _numbers("--concurrency", self.concurrency, _MOST_USERS)
        if not all(number.is_integer() for number in users):
            raise BenchError(f"--concurrency must be whole numbers; got {self.concurrency}")
        return [ClosedLoop(int(number)) for number in users]

    def _check_number(self, rate: float) -> None:
        if self.duration is None:
            return
        if min(rate * self.duration, self.requests or math.inf) > MOST_REQUESTS:
            raise BenchError(
                f"--rate {rate:g} for {self.duration:g} s is over {MOST_REQUESTS} requests: "
                "lower either, or bound them by --requests"
            )

    def extent(self) -> Extent:
        """How much each load sends."""
        bounded = self.requests is not None or self.duration is not None
        requests = self.requests if bounded else DEFAULT_REQUESTS
        return Extent(requests=requests, duration=self.duration, warmup=self.warmup)

    def target(self) -> Target:
        """The server, not yet explored.

        Raises:
            BenchError: the URL or --body is none.
        """
        fields: dict[str, object] = {"stream_options": {"include_usage": True}, "ignore_eos": True}
        if self.token_ids:
            fields["return_token_ids"] = True
        try:
            more = msgspec.json.decode(self.body, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise BenchError(f"--body must be a JSON object: {error}") from None
        return Target(
            url=api_url(self.url),
            api=self.api,
            model=self.model,
            api_key=self.api_key,
            fields=fields | more,
            timeout=self.timeout,
        )

    def read_files(self) -> tuple[tuple[TraceEntry, ...], int | None]:
        """The trace, if there is one, and the size of the vocabulary, if it is known.

        Raises:
            BenchError: a file cannot be read, or holds something else.
        """
        tokenizer, vocab_size = None, None
        if self.tokenizer is not None:
            tokenizer, vocab_size = load_tokenizer(self.tokenizer)
        entries: tuple[TraceEntry, ...] = ()
        if self.trace is not None:
            entries = read_trace(self.trace, tokenizer, as_text=self.api == "chat")
        return entries, self.vocab_size or vocab_size

    def plan(self, entries: tuple[TraceEntry, ...], vocab_size: int) -> Plan:
        """What is asked.

        Args:
            entries: of the trace, if there is one.
            vocab_size: whose ids the server takes.

        Raises:
            BenchError: --input or --output is none, or the prefixes are too much to hold.
        """
        if self.prefix_tokens * self.prefix_groups > _MOST_PREFIX_TOKENS:
            raise BenchError(
                f"--prefix-tokens times --prefix-groups must be up to {_MOST_PREFIX_TOKENS}"
            )
        return Plan(
            seed=self.resolved_seed,
            cell=0,
            input=Lengths.parse(self.input or DEFAULT_INPUT),
            output=Lengths.parse(self.output or DEFAULT_OUTPUT),
            vocab_size=vocab_size,
            prefix_tokens=self.prefix_tokens,
            prefix_groups=self.prefix_groups,
            trace=entries,
            as_text=self.api == "chat",
        )

    def slo(self) -> Slo | None:
        """Of goodput; None: none was given."""
        if self.slo_ttft_ms is None and self.slo_tpot_ms is None:
            return None
        return Slo(ttft=_seconds(self.slo_ttft_ms), tpot=_seconds(self.slo_tpot_ms))

    def flags(self) -> dict[str, str]:
        """As results keep them: with the seed, and without what is secret."""
        names = [name for name in self.__dataclass_fields__ if name not in _SECRET]
        found = {name: getattr(self, name) for name in names}
        found["seed"] = found.pop("resolved_seed")
        return {name: str(value) for name, value in found.items() if value is not None}


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1e3


def _numbers(option: str, text: str, most: float) -> list[float]:
    """Positive numbers separated by commas."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", word) for word in words):
        raise BenchError(f"{option} must be numbers separated by commas; got {text!r}")
    numbers = [float(word) for word in words]
    if not all(0 < number <= most for number in numbers):
        raise BenchError(f"{option} must be over 0 and up to {most:g}; got {text!r}")
    return numbers

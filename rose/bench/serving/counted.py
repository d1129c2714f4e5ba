"""What of a load counts: which requests, and which tokens; plain Python, so any reader can ask."""

from collections.abc import Sequence

from rose.bench.results import RequestSample, ServeCell

INTERRUPTED = "interrupted"
"""The error of a request that was in flight when the user ended the load."""


def served(samples: Sequence[RequestSample]) -> list[RequestSample]:
    """Those that count: past the warm-up and without an error."""
    return [s for s in samples if s.error is None and not s.warmup]


def window(cell: ServeCell) -> tuple[float, float]:
    """From when to when the load lasted."""
    begin = min((s.scheduled for s in cell.requests if not s.warmup), default=0.0)
    # A little more, so that rounding loses nothing of what ended last.
    return begin, begin + cell.duration * (1 + 1e-9)


def tokens(cell: ServeCell) -> tuple[int, int]:
    """Prompt tokens that were worked through, and output tokens that came, while it lasted."""
    begin, end = window(cell)
    tokens_in = tokens_out = 0
    for sample in cell.requests:
        if sample.error not in (None, INTERRUPTED):  # nobody has use of a part of an answer
            continue
        if sample.token_times and begin <= sample.token_times[0] <= end:
            tokens_in += sample.prompt_tokens
        pairs = zip(sample.token_times, sample.token_counts, strict=True)
        tokens_out += sum(count for at, count in pairs if begin <= at <= end)
    return tokens_in, tokens_out

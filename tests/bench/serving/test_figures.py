"""What samples come to: latencies, rates, goodput, price, trust in the generator."""

import pytest

from rose.bench.results import Generator, RequestSample, ServeCell
from rose.bench.serving.health import saturation, worst
from rose.bench.serving.stats import Slo, error_kind, summarize
from rose.bench.serving.table import render


def sample(scheduled: float, ttft: float, *gaps: float, **changes: object) -> RequestSample:
    """One with a token a chunk, and 10 of the prompt."""
    times = [scheduled + ttft]
    for gap in gaps:
        times.append(times[-1] + gap)
    fields = {
        "scheduled": scheduled,
        "sent": scheduled,
        "token_times": times,
        "token_counts": [1] * len(times),
        "finished": times[-1] + 0.001,
        "prompt_tokens": 10,
        "output_tokens": len(times),
        "asked_tokens": len(times),
    }
    return RequestSample(**fields | changes)


def cell(*samples: RequestSample, duration: float = 10.0, **changes: object) -> ServeCell:
    fields = {"model": "m", "load": "poisson 1/s", "duration": duration, "requests": list(samples)}
    return ServeCell(**fields | changes)


def test_latencies_count_from_when_a_request_was_due():
    late = sample(1.0, 0.5, 0.1, 0.3, sent=1.4)
    found = summarize(cell(late))
    assert found.ttft.mean == pytest.approx(0.5)
    assert found.itl.percentiles[50] == pytest.approx(0.2)
    assert found.tpot.mean == pytest.approx(0.2)
    assert found.e2e.mean == pytest.approx(0.901)


def test_percentiles_are_linear_between_samples():
    found = summarize(cell(*(sample(float(i), (i + 1) / 100) for i in range(101))))
    assert found.ttft.percentiles == pytest.approx({50: 0.51, 90: 0.91, 95: 0.96, 99: 1.0})
    assert found.tpot.count == found.itl.count == 0


def test_tpot_is_a_token_and_itl_a_chunk():
    found = summarize(cell(sample(0.0, 0.1, 0.3, token_counts=[1, 3], asked_tokens=8)))
    assert found.itl.mean == pytest.approx(0.3)
    assert found.tpot.mean == pytest.approx(0.1)
    assert found.bunched == 0.75
    assert (found.output_tokens, found.asked_tokens) == (4, 8)


def test_rates_are_of_what_came_while_the_load_lasted():
    warm = sample(0.0, 0.9, 0.2, 0.2, warmup=True)  # two of three tokens after the load's begin
    whole = sample(1.0, 0.5, 0.5)
    after = sample(2.0, 0.5, 0.8)  # the second token comes after its end
    failed = sample(1.0, 0.5, 0.5, error="timeout: late")
    ended = sample(1.0, 0.5, error="interrupted", prompt_tokens=0)
    found = summarize(cell(warm, whole, after, failed, ended, duration=2.0))
    assert found.requests == 2
    assert found.output_rate == (2 + 2 + 1 + 1) / 2
    assert found.input_rate == 20 / 2
    assert found.request_rate == 2 / 2  # the warm one and the whole one ended meanwhile


def test_an_overloaded_server_is_not_credited_with_what_it_serves_later():
    due = [sample(i / 4, 1.0 + i / 2, warmup=i == 0) for i in range(9)]  # one ends each 0.75 s
    found = summarize(cell(*due, duration=2.0), Slo(ttft=1.6))
    assert found.requests == 8
    assert found.request_rate == 2 / 2.0  # at 1.0, 1.75; the third after 2.25
    assert found.goodput == 2 / 2.0


def test_goodput_and_errors():
    samples = [
        sample(0.0, 0.1, 0.01),
        sample(1.0, 0.1, 0.05),  # slow after the first
        sample(2.0, 0.3, 0.01),  # slow to the first
        sample(3.0, 0.1),  # one token: no time between
        sample(4.0, 0.1, 0.01, error="http 503: busy"),
        sample(5.0, 0.1, 0.01, error="http 503: very busy"),
        sample(6.0, 0.1, 0.01, error="interrupted"),
    ]
    found = summarize(cell(*samples), Slo(ttft=0.2, tpot=0.02))
    assert found.goodput == pytest.approx(2 / 10)
    assert found.errors == {"http 503": 2}
    assert found.interrupted == 1
    assert found.requests == 4
    assert error_kind("timeout: no end within 5 s") == "timeout"
    assert summarize(cell(*samples)).goodput is None


def test_the_price():
    samples = [sample(0.0, 0.5, *[0.001] * 99)]  # 10 tokens in, 100 out, in 10 s
    found = summarize(cell(*samples, gpus=2), usd_per_gpu_hour=3.6)
    assert found.usd_per_million_output == pytest.approx(10 * 2 * 0.001 / 100 * 1e6)
    assert found.usd_per_million == pytest.approx(10 * 2 * 0.001 / 110 * 1e6)
    assert summarize(cell(*samples)).usd_per_million is None


def test_nothing_served():
    found = summarize(cell(sample(0.0, 0.1, token_times=[], token_counts=[], error="busy: no")))
    assert found.requests == found.ttft.count == 0
    assert "1 failed (busy)" in render(cell(), found, None)


def generator(loop: float = 0.0, send: float = 0.0, cpu: float = 0.0) -> Generator:
    return Generator(processes=1, loop_lag_p99=loop, send_lag_p99=send, cpu_share=cpu)


SLOW = [sample(0.0, 1.0, 0.05)]
FAST = [sample(0.0, 0.010, 0.002)]


@pytest.mark.parametrize(
    ("found", "samples", "told"),
    [
        (generator(loop=1.9e-3, send=1.9e-3, cpu=0.8), SLOW, None),
        (generator(loop=2.1e-3), SLOW, "woke 2.10 ms late"),
        (generator(send=2.1e-3), SLOW, "sent 2.10 ms late"),
        (generator(cpu=0.95), SLOW, "95% of its core"),
        (generator(loop=0.9e-3, send=0.9e-3), FAST, None),
        (generator(loop=1.1e-3), FAST, "over 1.00 ms"),  # half of the time a token
        (generator(send=1.1e-3), FAST, "over 1.00 ms"),  # a tenth of the time to the first
        (generator(send=1.9e-3), [], None),
    ],
)
def test_saturation(found, samples, told):
    reason = saturation(found, samples)
    assert reason is None if told is None else told in reason


def test_of_several_processes_the_worst_counts():
    found = worst([generator(loop=1.0, cpu=0.2), generator(send=2.0, cpu=0.1)])
    expected = Generator(processes=2, loop_lag_p99=1.0, send_lag_p99=2.0, cpu_share=0.2)
    assert found == expected


def test_the_text_tells_what_spoils_the_figures():
    made = cell(
        sample(0.0, 0.1, 0.3, token_counts=[1, 3], asked_tokens=8),
        sample(1.0, 0.1, error="http 500: x"),
        gpus=8,
        saturated="its event loop woke late",
        interrupted=True,
        generator=generator(),
    )
    slo = Slo(ttft=0.2)
    text = render(made, summarize(made, slo), slo)
    for told in (
        "1 requests served, rates over 10.0 s, 1 failed (http 500), interrupted",
        "TTFT     100.00    100.00",
        "0.10 requests/s with TTFT <= 200 ms",
        "$16666.667 per million tokens out",
        "4 output tokens of 8 asked for",
        "75% of the tokens came in a chunk",
        "WARNING: THE GENERATOR WAS SATURATED: its event loop woke late.",
    ):
        assert told in text

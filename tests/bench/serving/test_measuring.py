"""What is measured is what happened: compared with when the server itself says that it wrote.

Both take their times from the machine's one monotonic clock, so that a busy machine delays both.
What is compared is the order of events or the best of many, so that a busy moment fails nothing.
"""

import asyncio
import time

import msgspec
import numpy as np
import pytest

from rose.bench.results import BenchError
from rose.bench.serving.arrivals import ClosedLoop, OpenLoop
from rose.bench.serving.health import saturation
from rose.bench.serving.share import run_share
from tests.bench.serving.loads import assignment, by_prompt, run, run_one

CLOSE_S = 2e-3


def test_latencies_are_those_of_the_server(scripted):
    assigned = assignment(scripted.url, OpenLoop(40.0), requests=40)
    origin, samples = run_one(assigned)
    seen = by_prompt(scripted.take_log())
    assert len(seen) == len(samples) == 40
    first_off, gap_off = [], []
    for number, sample in enumerate(samples):
        entry = seen[tuple(assigned.plan.request(number).prompt)]
        assert sample.error is None
        assert sample.token_counts == [1] * 6
        ttft = sample.token_times[0] - sample.scheduled
        first_off.append(ttft - (entry["sent"][0] - (origin + sample.scheduled)))
        gap_off += (np.diff(sample.token_times) - np.diff(entry["sent"])).tolist()
        # Nothing is measured before it can have happened.
        assert ttft >= 0.05
        assert origin + sample.sent <= entry["received"]
        assert origin + sample.finished >= entry["sent"][-1]
    # What is always added shows in the least, whatever else delays single ones.
    assert 0 <= min(first_off) < CLOSE_S
    assert sorted(map(abs, gap_off))[len(gap_off) // 10] < CLOSE_S


def test_several_tokens_a_chunk(scripted):
    assigned = assignment(scripted.url, ClosedLoop(4), model="bunches", requests=8, output="8")
    _, samples = run_one(assigned)
    assert {tuple(sample.token_counts) for sample in samples} == {(3, 3, 2)}
    assert {len(sample.token_times) for sample in samples} == {3}


def test_results_larger_than_a_pipe_takes_at_once(scripted):
    assigned = assignment(scripted.url, ClosedLoop(4), model="burst", requests=20, output="1500")
    [result] = run(assigned)
    assert len(msgspec.msgpack.encode(result)) > 250_000
    assert {sample.output_tokens for _, sample in result.samples} == {1500}


@pytest.mark.parametrize("load", [OpenLoop(40.0), ClosedLoop(1)], ids=["open", "closed"])
def test_a_process_that_fails_is_told(load, capfd):
    # No group to take a prefix from: the request cannot be made.
    assigned = assignment("http://127.0.0.1:9", load, requests=2, prefix_tokens=1, prefix_groups=0)
    with pytest.raises(BenchError, match=r"worker process .* exit status 1"):
        run(assigned)
    assert "ZeroDivisionError" in capfd.readouterr().err


async def test_a_generator_that_is_held_up_says_so(scripted):
    async def hold_up() -> None:
        while True:
            time.sleep(0.02)  # what must be noticed
            await asyncio.sleep(0.01)

    held = asyncio.create_task(hold_up())
    result = await run_share(
        assignment(scripted.url, OpenLoop(40.0), requests=20),
        origin=time.monotonic(),
        stop=asyncio.Event(),
        count=lambda: None,
    )
    held.cancel()
    reason = saturation(result.generator, [sample for _, sample in result.samples])
    assert "requests were sent" in reason
    assert "its event loop woke" in reason


def test_what_is_due_while_the_server_stalls_waits_in_the_latencies(scripted):
    """Coordinated omission: nobody asks a stalled server, nobody is late. Not in an open loop."""
    stall_s = 0.6
    scripted.stall(after=15, seconds=stall_s)
    # For 4 s: also if it stalls late, because this process or the server paused, some are due.
    assigned = assignment(scripted.url, OpenLoop(50.0, poisson=False), requests=200)
    origin, samples = run_one(assigned)
    log = scripted.take_log()
    [(began, ended)] = [entry["stall"] for entry in log if "stall" in entry]
    due_meanwhile = [s for s in samples if began < origin + s.scheduled < ended - 0.05]
    assert len(due_meanwhile) > 5  # of the 27 or so due in 0.55 s
    seen = by_prompt(log)
    for sample in due_meanwhile:
        ttft = sample.token_times[0] - sample.scheduled
        assert ttft >= ended - (origin + sample.scheduled)
        number = samples.index(sample)
        entry = seen[tuple(assigned.plan.request(number).prompt)]
        # The server did not see it wait: by its own clock it was faster, by what was left to wait.
        seen_by_server = entry["sent"][0] - entry["received"]
        assert ttft - seen_by_server >= ended - (origin + sample.scheduled)


def test_a_closed_loop_hides_a_stall(scripted):
    """The control of the test above: the same stall, seen by one user, spoils one request."""
    stall_s = 0.6
    scripted.stall(after=5, seconds=stall_s)
    assigned = assignment(scripted.url, ClosedLoop(1), requests=12, output="1")
    origin, samples = run_one(assigned)
    [(began, ended)] = [entry["stall"] for entry in scripted.take_log() if "stall" in entry]
    waited = [s for s in samples if origin + s.scheduled < ended < origin + s.token_times[0]]
    assert len(waited) == 1
    assert origin + waited[0].scheduled < began


def test_a_closed_loop_keeps_so_many_in_flight(scripted):
    _, samples = run_one(assignment(scripted.url, ClosedLoop(3), requests=12))
    events = sorted(
        [(s.sent, 1) for s in samples] + [(s.finished, -1) for s in samples],
        key=lambda event: (event[0], event[1]),
    )
    assert max(np.cumsum([step for _, step in events])) == 3
    assert len(samples) == 12


@pytest.mark.parametrize("load", [OpenLoop(60.0), ClosedLoop(5)], ids=["open", "closed"])
def test_processes_share_a_load_exactly(scripted, load):
    assigned = assignment(
        scripted.url,
        load,
        requests=20,
        warmup=3,
        input="uniform:5:40",
        output="uniform:1:5",
        prefix_tokens=4,
        prefix_groups=2,
    )
    results = run(assigned, workers=2)
    pairs = sorted(
        pair for result in results for pair in ((n, s.warmup) for n, s in result.samples)
    )
    assert pairs == [(number, number < 3) for number in range(23)]
    assert len({result.origin for result in results}) == 1
    log = scripted.take_log()
    seen = by_prompt(log)
    assert len(log) == len(seen) == 23  # each once
    samples = dict(pair for result in results for pair in result.samples)
    for number, sample in samples.items():
        asked = assigned.plan.request(number)
        assert seen[tuple(asked.prompt)]["body"]["max_tokens"] == asked.output_tokens
        assert sample.prompt_tokens == len(asked.prompt)
        assert sample.output_tokens == sample.asked_tokens == asked.output_tokens
    if isinstance(load, OpenLoop):
        due = load.due(assigned.extent, assigned.plan.load_seed)
        scheduled = [samples[number].scheduled for number in range(23)]
        np.testing.assert_allclose(scheduled, due, atol=1e-6)


@pytest.mark.parametrize("load", [OpenLoop(40.0), ClosedLoop(3)], ids=["open", "closed"])
def test_a_duration_bounds_when_requests_start(scripted, load):
    _, samples = run_one(assignment(scripted.url, load, duration=0.4, warmup=2))
    begin = samples[2].scheduled
    assert [s.warmup for s in samples[:3]] == [True, True, False]
    assert all(s.error is None for s in samples)
    assert 0 <= max(s.scheduled for s in samples) - begin < 0.4
    assert max(s.finished for s in samples) > begin + 0.4  # what had started was waited for


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("busy", "http 503: come back later"),
        ("fails", 'server error: {"message": "out of luck"}'),
        ("breaks", "connection: "),
        ("hangs", "timeout: no end within 4 s"),
    ],
)
def test_errors(scripted, model, told):
    timeout = 4.0 if model == "hangs" else 60.0
    _, samples = run_one(
        assignment(scripted.url, ClosedLoop(2), model=model, requests=2, timeout=timeout)
    )
    assert len(samples) == 2
    for sample in samples:
        assert sample.error.startswith(told)
        assert len(sample.token_times) == {"busy": 0, "hangs": 6}.get(model, 3)


def test_a_server_that_is_gone():
    _, [sample] = run_one(assignment("http://127.0.0.1:9", ClosedLoop(1), requests=1))
    assert sample.error.startswith("connection: ")
    assert sample.token_times == []

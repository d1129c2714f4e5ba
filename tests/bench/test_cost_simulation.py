"""Deployments that rose cost finds, run: simulated replicas keep what the formulas promise."""

import heapq
import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from rose.bench.cost import plan
from rose.bench.deployment import Limits
from rose.bench.results import Sharding
from rose.bench.workload_model import Workload, gather
from tests.bench.synthetic import decode, prefill

INPUT, OUTPUT = 12_000, 200
CELLS = gather([prefill(), decode()], model="gpt-oss-120b")


def deployment(kind, **fields):
    workload = Workload(input_tokens=INPUT, output_tokens=OUTPUT, **fields)
    found = plan(CELLS, workload, usd_per_gpu_hour=3, limits=Limits()).deployments
    return workload, next(one for one in found if one.kind == kind)


def arrivals(rate, count, seed=3):
    chance, now = random.Random(seed), 0.0
    for _ in range(count):
        now += chance.expovariate(rate)
        yield now


def quantile(values, share):
    return sorted(values)[int(share * len(values))]


def first_tokens(one, workload, count=30_000):
    """TTFT of each request: a prompt starts when a prefiller and a place in a batch are free."""
    prefillers = [0.0] * (one.prefill_replicas * one.prefill_sharding.dp)
    places = [0.0] * (one.decode_replicas * one.batch)
    stream = workload.decode_steps / one.tokens_per_s_per_user
    found = []
    for due in arrivals(workload.rate, count):
        start = max(due, heapq.heappop(prefillers), heapq.heappop(places))
        heapq.heappush(prefillers, start + one.prefill_s)
        heapq.heappush(places, start + one.prefill_s + stream)
        found.append(start + one.prefill_s - due)
    return found


@pytest.mark.parametrize("rate", [0.5, 5.0, 40.0])
@pytest.mark.parametrize("promise", [{}, {"slo_ttft_s": 0.5, "slo_tokens_per_s": 100.0}])
def test_disaggregated_replicas_give_the_first_token_in_time(rate, promise):
    workload, one = deployment("disaggregated", rate=rate, **promise)
    simulated = quantile(first_tokens(one, workload), 0.95)
    assert simulated <= one.ttft_s * 1.05
    assert one.ttft_s <= 2 * simulated  # on the slow side, but of use


@dataclass
class Replica:
    """One that prefills first; its streams stand still meanwhile."""

    streams: list = field(default_factory=list)  # [steps left, when the first token came]
    idle: bool = True


def run_colocated(one, workload, count):
    """TTFT and tokens/s of each request, with steps as long as what is in the batch takes."""
    steps = CELLS.decode[one.decode_sharding].by_batch(workload.mean_context)
    replicas = [Replica() for _ in range(one.decode_replicas)]
    events = [(due, order, None) for order, due in enumerate(arrivals(workload.rate, count))]
    heapq.heapify(events)
    queue, order, ttfts, speeds = deque(), count, [], []
    while events:
        now, _, replica = heapq.heappop(events)
        if replica is None:
            queue.append(now)
            replica = next((r for r in replicas if r.idle), None)
            if replica is None:
                continue
        for stream in [s for s in replica.streams if s[0] == 0]:
            speeds.append(workload.decode_steps / (now - stream[1]))
            replica.streams.remove(stream)
        if queue and len(replica.streams) < one.batch:
            due, done = queue.popleft(), now + one.prefill_s
            replica.streams.append([workload.decode_steps, done])
            ttfts.append(done - due)
        elif replica.streams:
            done = now + steps[len(replica.streams)]
            for stream in replica.streams:
                stream[0] -= 1
        else:
            replica.idle = True
            continue
        replica.idle = False
        order += 1
        heapq.heappush(events, (done, order, replica))
    return ttfts, speeds


@pytest.mark.parametrize("rate", [0.5, 5.0, 8.0])
@pytest.mark.parametrize("promise", [{}, {"slo_ttft_s": 0.6, "slo_tokens_per_s": 60.0}])
def test_colocated_replicas_keep_both_promises(rate, promise):
    workload, one = deployment("colocated", rate=rate, **promise)
    assert one.decode_sharding.dp == Sharding().dp == 1
    ttfts, speeds = run_colocated(one, workload, 3_000)
    simulated = quantile(ttfts, 0.95)
    assert simulated <= one.ttft_s * 1.05
    assert one.ttft_s <= 2 * simulated
    assert sum(speeds) / len(speeds) >= one.tokens_per_s_per_user
    assert len(speeds) == 3_000

"""Which of several engines takes a call, and what becomes of the calls of one that dies."""

import asyncio
import contextlib

import pytest

from rose.protocol import EngineDeadError
from rose.server.engine_client import SEQUENCE_LOAD, EngineClient, EngineState
from rose.server.router import CACHED_TOKEN_WORTH, MOST_EXCESS, SHORTEST_PREFIX, Router
from tests.engine_processes import PATIENCE_S, fake_output, make_request, start_engine, stop


@pytest.fixture
def engines(tmp_path):
    """Two slow engines, and their endpoints."""
    endpoints = [f"ipc://{tmp_path}/e{number}" for number in range(2)]
    processes = [start_engine(endpoint, step_s=0.02) for endpoint in endpoints]
    yield list(zip(endpoints, processes, strict=True))
    for process in processes:
        stop(process)


@contextlib.asynccontextmanager
async def connected(*endpoints):
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                EngineClient(endpoint, hello_interval_s=0.1, dead_after_s=600.0)
            )
            for endpoint in endpoints
        ]
        yield Router(clients)


@pytest.fixture
async def router(engines):
    async with connected(*(endpoint for endpoint, _ in engines)) as router:
        for client in router.engines:
            await client.wait_ready()
        yield router


def loads(router):
    return [client.load for client in router.engines]


def counts(router):
    return [client.num_in_flight for client in router.engines]


def long_request(request_id, *ids):
    return make_request(request_id, *ids, max_tokens=2000, ignore_eos=True)


async def ids_of(generation):
    return [i async for outputs in generation for output in outputs for i in output.token_ids]


async def test_calls_spread_and_each_gets_its_own_answer(router):
    requests = [make_request(f"r{i}", i, i + 1, max_tokens=20) for i in range(10)]
    generations = [router.generate([request]) for request in requests]
    assert counts(router) == [5, 5]
    assert router.num_in_flight == 10
    found = await asyncio.gather(*map(ids_of, generations))
    assert found == [fake_output(request) for request in requests]
    await reached(lambda: loads(router) == [0, 0])  # heartbeats may count what has just ended


async def test_many_sequences_or_a_long_prompt_weigh_more(router):
    router.generate([long_request("a", *[3] * 1000)])
    router.generate([long_request("b", 1)])
    router.generate([long_request("c", 2)])
    assert counts(router) == [1, 2]
    assert loads(router) == [1000 + SEQUENCE_LOAD, 2 + 2 * SEQUENCE_LOAD]


async def test_the_work_of_other_front_ends_counts(router, engines):
    async with connected(engines[0][0]) as other:
        await other.wait_ready()
        for number in range(3):
            other.generate([long_request(f"o{number}", number + 1)])
        await reached(lambda: loads(router) == [3 * SEQUENCE_LOAD, 0])
        for number in range(3):
            router.generate([long_request(f"r{number}", number + 1)])
        assert counts(router) == [0, 3]


async def test_a_conversation_returns_to_its_engine(router):
    first = [i % 90 for i in range(300)]
    router.generate([long_request("other", 1)])  # at engine 0
    with router.generate([make_request("a", *first)]):
        assert counts(router) == [1, 1]
    router.generate([long_request("b", 2)])  # at engine 1: both are equally loaded
    router.generate([make_request("c", *first, 7, 8, 9)])
    router.generate([make_request("d", *first, 8, 8, 9)])
    assert counts(router) == [1, 3]


async def test_a_conversation_leaves_an_engine_that_has_much_more_to_do(router):
    prompt = [5] * SHORTEST_PREFIX
    with router.generate([make_request("a", *prompt)]):
        assert counts(router) == [1, 0]
    excess = SHORTEST_PREFIX * CACHED_TOKEN_WORTH
    assert excess < MOST_EXCESS
    busy = 1 + excess // SEQUENCE_LOAD
    for number in range(busy):
        router.engines[0].generate([long_request(f"b{number}", 1)])
    router.generate([make_request("c", *prompt)])
    assert counts(router) == [busy, 1]


async def test_prompts_that_share_little_do_not_attract_each_other(router):
    prompt = [5] * (SHORTEST_PREFIX - 1)
    for number in range(4):
        router.generate([long_request(f"r{number}", *prompt)])
    assert counts(router) == [2, 2]


async def test_calls_at_a_dead_engine_fail_and_others_go_on(router, engines):
    requests = [make_request(f"r{i}", i + 1, max_tokens=100, ignore_eos=True) for i in range(2)]
    lost, kept = (router.generate([request]) for request in requests)
    engines[0][1].kill()
    router.engines[0].engine_exited("killed")
    with pytest.raises(EngineDeadError, match="killed"):
        await ids_of(lost)
    assert await ids_of(kept) == fake_output(requests[1])
    assert (router.state, router.reason) == (EngineState.READY, "")
    for number in range(4):
        router.generate([long_request(f"later{number}", 1)])
    assert counts(router) == [0, 4]
    router.engines[1].engine_exited("killed too")
    assert router.state is EngineState.DEAD
    assert router.reason == "engine 0: killed; engine 1: killed too"
    with pytest.raises(EngineDeadError, match="killed too"):
        router.generate([make_request("z")])


async def test_the_first_engine_that_is_ready_suffices(engines, tmp_path):
    async with connected(f"ipc://{tmp_path}/nobody", engines[0][0]) as router:
        assert (await router.wait_ready()).model == "fake"
        assert router.info is router.engines[1].info
        request = make_request("a", 4)
        assert await ids_of(router.generate([request])) == fake_output(request)


async def test_all_engines_that_fail_to_start(tmp_path):
    endpoints = [f"ipc://{tmp_path}/e{number}" for number in range(2)]
    processes = [start_engine(endpoint, fail_load="no model") for endpoint in endpoints]
    try:
        async with connected(*endpoints) as router:
            with pytest.raises(EngineDeadError, match="no model"):
                await asyncio.wait_for(router.wait_ready(), PATIENCE_S)
    finally:
        for process in processes:
            stop(process)


async def reached(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)

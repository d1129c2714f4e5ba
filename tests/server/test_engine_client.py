"""The front end's connection to an engine process, which may refuse, hang, die and return."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable

import pytest

from rose.protocol import EngineDeadError, InvalidRequestError, Request
from rose.server.engine_client import EngineClient, EngineState
from tests.engine_processes import PATIENCE_S, fake_output, make_request


@pytest.fixture
async def client(endpoint) -> AsyncIterator[EngineClient]:
    async with EngineClient(endpoint, hello_interval_s=0.1, dead_after_s=600.0) as client:
        yield client


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


async def ids_of(client: EngineClient, request: Request) -> list[int]:
    with client.generate([request]) as generation:
        return [i async for outputs in generation for output in outputs for i in output.token_ids]


async def test_many_requests_at_once(start, client):
    start()
    info = await client.wait_ready()
    assert info.model == "fake"
    requests = [make_request(f"r{i}", i, i + 1, max_tokens=i + 1) for i in range(20)]
    got = await asyncio.gather(*(ids_of(client, request) for request in requests))
    assert got == [fake_output(request) for request in requests]


async def test_a_group_of_requests_comes_as_lists_of_outputs(start, client):
    start()
    await client.wait_ready()
    requests = [make_request("a", 1, n=2), make_request("b", 2)]
    ids = {("a", 0): [], ("a", 1): [], ("b", 0): []}
    with client.generate(requests) as generation:
        async for outputs in generation:
            for output in outputs:
                ids[output.request_id, output.index] += output.token_ids
    assert ids["b", 0] == fake_output(requests[1])
    assert ids["a", 1] == fake_output(requests[0], 1)


async def test_a_refused_request(start, client):
    start()
    await client.wait_ready()
    with pytest.raises(InvalidRequestError, match="999") as caught:
        await ids_of(client, make_request("a", 999))
    assert caught.value.param == "prompt_token_ids"


async def test_leaving_early_aborts(start, client):
    start(step_s=0.05)
    await client.wait_ready()
    task = asyncio.create_task(ids_of(client, make_request("a", max_tokens=2000)))
    await until(lambda: client.stats.running == 1)
    task.cancel()
    await until(lambda: client.stats.running == 0)
    with client.generate([make_request("b", max_tokens=2000)]) as generation:
        await anext(generation)
        generation.finish("b", 0)
        rest = [output async for outputs in generation for output in outputs]
    assert len(rest) < 100
    await until(lambda: client.stats.running == 0)


async def test_one_sequence_that_suffices_is_freed_at_once(start, client):
    start(step_s=0.05)
    await client.wait_ready()
    # Long enough that the others cannot end by themselves before it was seen that one did.
    request = make_request("a", n=3, max_tokens=2000, temperature=1.0, seed=1, ignore_eos=True)
    ids = {0: [], 1: [], 2: []}
    sufficed = -1
    with client.generate([request]) as generation:
        async for outputs in generation:
            for output in outputs:
                ids[output.index] += output.token_ids
            if sufficed < 0 and len(ids[1]) >= 5:
                sufficed = len(ids[1])
                generation.finish("a", 1)
                generation.finish("a", 1)
                await until(lambda: client.stats.running == 2)
                longer = len(ids[0]) + 20
            if sufficed > 0 and min(len(ids[0]), len(ids[2])) >= longer:
                break
    assert len(ids[1]) == sufficed, "nothing follows what sufficed"
    for index in (0, 2):
        assert ids[index] == fake_output(request, index)[: len(ids[index])]
    await until(lambda: client.stats.running == 0)


async def test_before_there_is_an_engine(client):
    assert client.state is EngineState.STARTING
    with pytest.raises(EngineDeadError, match="loading"):
        client.generate([make_request("a")])


async def test_an_engine_that_fails_to_start(start, client):
    start(fail_load="no such checkpoint")
    with pytest.raises(EngineDeadError, match="no such checkpoint"):
        await client.wait_ready()


async def test_an_engine_that_fails(start, client):
    start(fail_at_step=5)
    await client.wait_ready()
    with pytest.raises(EngineDeadError, match="step 5 was told to fail"):
        await ids_of(client, make_request("a"))
    assert client.state is EngineState.DEAD


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_silence_is_death(start, client, number):
    process = start(step_s=0.05)
    await client.wait_ready()
    task = asyncio.create_task(ids_of(client, make_request("a", max_tokens=2000)))
    await until(lambda: client.stats.running == 1)
    process.send_signal(number)
    client._dead_after_s = 1.0  # only now, lest an engine that merely paused is given up
    with pytest.raises(EngineDeadError, match="no heartbeat from the engine for"):
        await asyncio.wait_for(task, PATIENCE_S)
    with pytest.raises(EngineDeadError):
        client.generate([make_request("b")])
    assert client.stats.running == 0


async def test_an_engine_that_was_suspended_is_taken_back(start, client):
    process = start(step_s=0.01)
    await client.wait_ready()
    process.send_signal(signal.SIGSTOP)
    client._dead_after_s = 1.0
    await until(lambda: client.state is EngineState.DEAD)
    client._dead_after_s = 600.0
    process.send_signal(signal.SIGCONT)
    await client_ready(client)
    request = make_request("a")
    assert await ids_of(client, request) == fake_output(request)


async def test_a_restarted_engine_serves_and_old_requests_fail_at_once(start, client):
    first = start(step_s=0.05)
    await client.wait_ready()
    task = asyncio.create_task(ids_of(client, make_request("a", max_tokens=2000)))
    await until(lambda: client.stats.running == 1)
    first.kill()
    first.wait(PATIENCE_S)
    start()
    with pytest.raises(EngineDeadError, match="restarted"):
        await asyncio.wait_for(task, PATIENCE_S)
    request = make_request("b")
    assert await ids_of(client, request) == fake_output(request)


async def test_the_supervisors_word(start, client):
    process = start(step_s=0.05)
    await client.wait_ready()
    task = asyncio.create_task(ids_of(client, make_request("a", max_tokens=2000)))
    await until(lambda: client.stats.running == 1)
    process.kill()
    client.engine_exited("killed")
    with pytest.raises(EngineDeadError, match="killed"):
        await task
    assert (client.state, client.reason) == (EngineState.DEAD, "killed")


async def client_ready(client: EngineClient) -> None:
    await until(lambda: client.state is EngineState.READY)

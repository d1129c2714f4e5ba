"""What is found out before a load, and what the options come to."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rose.bench.results import BenchError
from rose.bench.serving.arrivals import ClosedLoop, Extent, OpenLoop
from rose.bench.serving.client import error_message
from rose.bench.serving.preflight import api_url, explore
from rose.bench.serving.settings import Settings


def settings(**changes: object) -> Settings:
    return Settings(**{"url": "http://127.0.0.1:9", "rate": "1"} | changes)


def explored(vocab_size=None, **changes):
    return asyncio.run(explore(settings(**changes).target(), vocab_size))


def test_the_first_model_and_who_serves_it(scripted):
    found = explored(url=scripted.url, api_key="sesame")
    assert (found.target.model, found.engine) == ("plain", "scripted 1.2")
    assert found.notes == []
    [entry] = scripted.take_log()
    assert entry["authorization"] == "Bearer sesame"
    assert entry["body"]["ignore_eos"] is True
    assert entry["body"]["stream_options"] == {"include_usage": True}


def test_refused_fields_are_dropped_and_smaller_vocabularies_tried(scripted):
    found = explored(url=scripted.url, model="strict", body='{"temperature": 0}')
    assert found.target.fields == {"temperature": 0}
    assert found.vocab_size == 2000
    assert found.notes == [
        f"the server refuses the field {name}; asked without"
        for name in ("ignore_eos", "stream_options")
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "none"}, "has no model 'none'; it has plain, bunches"),
        ({"model": "busy"}, "answers 503: come back later"),
    ],
)
def test_servers_that_will_not_do(scripted, changes, told):
    with pytest.raises(BenchError, match=told):
        explored(url=scripted.url, **changes)


def test_a_vocabulary_that_was_given_stays(scripted):
    with pytest.raises(BenchError, match="400 to token ids below 9000: token id 8999 is out"):
        explored(9000, url=scripted.url, model="strict")


def test_no_server():
    with pytest.raises(BenchError, match=r"cannot reach http://127\.0\.0\.1:9/v1/models"):
        explored()


def test_urls():
    for url in ("http://a:1", "http://a:1/", "http://a:1/v1", "http://a:1/v1/"):
        assert api_url(url) == "http://a:1/v1"
    with pytest.raises(BenchError, match="http"):
        api_url("a:1")


async def test_a_server_that_sends_on_is_named():
    async def send_on(request: web.Request) -> web.Response:
        raise web.HTTPPermanentRedirect("http://elsewhere/v1/models")

    app = web.Application()
    app.add_routes([web.get("/v1/models", send_on)])
    async with TestServer(app) as server:
        target = settings(url=str(server.make_url("/"))).target()
        with pytest.raises(
            BenchError, match=r"^http://\S+ sends on to 'http://elsewhere/v1/models'"
        ):
            await explore(target, None)


async def test_names_that_would_move_the_cursor_are_refused():
    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "a\x1b[31mb"}]})

    app = web.Application()
    app.add_routes([web.get("/v1/models", models)])
    async with TestServer(app) as server:
        with pytest.raises(BenchError, match="no list of models"):
            await explore(settings(url=str(server.make_url("/"))).target(), None)


def test_an_error_is_one_plain_line():
    assert error_message(b'{"error": {"message": "slow\\n\\u001b[31m down"}}') == "slow [31m down"


@pytest.mark.parametrize(
    "changes",
    [
        {"rate": "1000000", "duration": 60.0},
        {"rate": "1,900000", "duration": 2.0, "requests": None},
    ],
)
def test_more_requests_than_memory_holds_are_refused(changes):
    with pytest.raises(BenchError, match="requests: lower either"):
        settings(**changes).loads()
    assert settings(**{**changes, "requests": 10}).loads()


def test_prefixes_that_memory_does_not_hold_are_refused():
    with pytest.raises(BenchError, match="--prefix-groups"):
        settings(prefix_tokens=2**20, prefix_groups=65).plan((), 1000)


def test_loads():
    assert settings(rate="1,2.5").loads() == [OpenLoop(1.0), OpenLoop(2.5)]
    assert settings(arrivals="fixed").loads() == [OpenLoop(1.0, poisson=False)]
    assert settings(rate=None, concurrency="1, 64").loads() == [ClosedLoop(1), ClosedLoop(64)]
    names = [load.name for load in (OpenLoop(4.0), OpenLoop(0.5, False), ClosedLoop(16))]
    assert names == ["poisson 4/s", "fixed 0.5/s", "concurrency 16"]


def test_extents():
    assert settings().extent() == Extent(requests=100, duration=None)
    assert settings(duration=5.0, warmup=2).extent() == Extent(
        requests=None, duration=5.0, warmup=2
    )


@pytest.mark.parametrize(
    "changes",
    [{"concurrency": "1"}, {"rate": None}, {"trace": "t.json", "input": "5"}],
)
def test_options_that_do_not_go_together(changes):
    with pytest.raises(BenchError, match="give"):
        settings(**changes)


@pytest.mark.parametrize("text", ["", "0", "1,,2", "-1", "x", "1e9", "2000000"])
def test_rates_that_are_none(text):
    with pytest.raises(BenchError, match="--rate must be"):
        settings(rate=text).loads()


def test_users_and_bodies_that_are_none():
    with pytest.raises(BenchError, match="whole numbers"):
        settings(rate=None, concurrency="1.5").loads()
    with pytest.raises(BenchError, match="--body must be a JSON object"):
        settings(body="[1]").target()


def test_flags_keep_the_seed_that_was_drawn_and_no_secret():
    drawn = settings(api_key="sesame")
    flags = drawn.flags()
    assert flags["seed"] == str(drawn.plan((), 100).seed)
    assert "sesame" not in str(flags)
    assert settings(seed=5).flags()["seed"] == "5"
    assert len({settings().resolved_seed for _ in range(3)}) == 3

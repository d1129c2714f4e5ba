"""Many different requests at once before rose-nano: each is answered as if it were alone."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from tests import patient_http
from tests.engine_processes import eventually
from tests.server.conftest import serving_nano

MODEL = "rose-nano"
COPIES = 2
NUM_ABORTS = 8
PASSING = {  # of one run, or of what else runs
    *("id", "created", "created_at", "completed_at", "call_id", "item_id"),
    *("prompt_tokens_details", "input_tokens_details"),
}
WEATHER = {
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The city."}},
        "required": ["city"],
    },
}
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CHATS, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
FILL = "Ann is 34 years old and happy. Fill the form."


def chat(question: str, **body: object) -> tuple[str, dict]:
    messages = [{"role": "user", "content": question}]
    return CHATS, {"messages": messages, "temperature": 0} | body


def response(question: str, **body: object) -> tuple[str, dict]:
    return RESPONSES, {"input": question, "temperature": 0} | body


CALL = {"tools": [{"type": "function", "function": WEATHER}]}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "form", "schema": FORM, "strict": True}}
REQUESTS = [
    chat("What is 12 + 30?"),
    chat("What is 12 + 30?", stream=True),
    chat("What is 7 times 8?", reasoning_effort="low", logprobs=True, top_logprobs=2),
    chat("Sort 5, 3, 9.", n=2, temperature=1.0, seed=7),
    chat("What is the weather in Rome?", **CALL),
    chat("What is the weather in Oslo?", stream=True, **CALL),
    chat("What is the weather in Paris?", tool_choice="required", **CALL),
    chat(FILL, response_format=SCHEMA),
    chat("What is 90 - 41?", max_completion_tokens=12),
    chat("What is 9 + 9?", stop=["1"]),
    response("What is 21 + 21?"),
    response("What is the weather in Bern?", tools=[{"type": "function", **WEATHER}]),
    response(FILL, text={"format": {"type": "json_schema", "name": "form", "schema": FORM}}),
    (COMPLETIONS, {"prompt": "The capital of", "temperature": 0, "max_tokens": 24, "logprobs": 1}),
    (COMPLETIONS, {"prompt": ["We think.", "It is"], "n": 2, "seed": 3, "max_tokens": 16}),
    (COMPLETIONS, {"prompt": [2555, 303, 2558], "temperature": 0, "max_tokens": 40}),
]


@pytest.fixture(scope="module")
def nano_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """rose-nano in float32, so that nothing but arithmetic's order could differ."""
    with serving_nano(tmp_path_factory.mktemp("nano"), "--dtype", "float32") as url:
        yield url.removesuffix("/v1")


def essence(value: object) -> object:
    """An answer without what belongs to one run."""
    if isinstance(value, dict):
        return {k: essence(v) for k, v in value.items() if k not in PASSING}
    return [essence(v) for v in value] if isinstance(value, list) else value


def joined(stream: str) -> object:
    """What a stream of a chat says, however it was cut into chunks."""
    said = {"reasoning": "", "content": "", "arguments": "", "name": "", "finish": None}
    events = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    assert events.pop() == "[DONE]"
    for event in events:
        [choice] = json.loads(event)["choices"]
        delta = choice["delta"]
        for call in delta.get("tool_calls", ()):
            said["arguments"] += call["function"]["arguments"]
            said["name"] += call["function"].get("name", "")
        for kind in ("reasoning", "content"):
            said[kind] += delta.get(kind) or ""
        said["finish"] = choice["finish_reason"] or said["finish"]
    return said


def same_answers(found: object, wanted: object, where: str) -> None:
    """Equal; log-probabilities, which depend on the order of sums, nearly."""
    if isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=1e-4), where
        return
    assert type(found) is type(wanted), where
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for key, value in wanted.items():
            same_answers(found[key], value, f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for number, value in enumerate(wanted):
            same_answers(found[number], value, f"{where}[{number}]")
    else:
        assert found == wanted, where


async def ask(client: httpx.AsyncClient, path: str, body: dict) -> object:
    answer = await client.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text
    return joined(answer.text) if body.get("stream") else essence(answer.json())


async def leave_early(client: httpx.AsyncClient, number: int) -> None:
    """Hang up after a few chunks, or before any."""
    path, body = chat(f"What is {number} + 100?", stream=True)
    async with client.stream("POST", path, json={"model": MODEL, **body}) as stream:
        chunks = 0
        async for _ in stream.aiter_raw():
            chunks += 1
            if chunks > number:
                return


@pytest.mark.slow
async def test_what_else_runs_changes_no_answer(nano_url):
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=nano_url, timeout=250, limits=limits) as client:
        alone = [await ask(client, path, body) for path, body in REQUESTS]
        aborts = [asyncio.create_task(leave_early(client, n)) for n in range(NUM_ABORTS)]
        together = await asyncio.gather(*(ask(client, *r) for r in REQUESTS * COPIES))
        await asyncio.gather(*aborts)
        for number, answer in enumerate(together):
            asked = REQUESTS[number % len(REQUESTS)]
            same_answers(answer, alone[number % len(REQUESTS)], f"{asked}")
    eventually(lambda: patient_http.get(nano_url + "/health").json()["running"] == 0)

"""Bodies and parameters that nobody thought of, made from the OpenAPI document by schemathesis.

Run longer by hand: `pytest tests/server/test_fuzz.py --hypothesis-profile=long`.
"""

from collections import Counter
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests import patient_http
from tests.engine_processes import PATIENCE_S, eventually
from tests.playback_engine import NANO
from tests.server.conftest import Server

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
NANO_VOCAB = 2560
MODEL = "fake"
MOST_TOKENS = 16
GOOD = {
    "/v1/completions": {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": MOST_TOKENS},
    "/v1/chat/completions": {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_completion_tokens": MOST_TOKENS,
    },
    "/v1/responses": {"model": MODEL, "input": "Hi", "max_output_tokens": MOST_TOKENS},
    "/tokenize": {"messages": [{"role": "user", "content": "Hi"}]},
    "/detokenize": {"tokens": [5, 6, 7]},
}
LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@pytest.fixture(scope="module")
def fuzzed_server() -> Iterator[Server]:
    """Chats with nano's tokenizer; the model writes any token, control tokens included."""
    server = Server("--tokenizer-folder", str(NANO), vocab_size=NANO_VOCAB, sample_below=NANO_VOCAB)
    yield server.ready()
    server.stop()


@pytest.fixture(scope="module")
def api(fuzzed_server: Server) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(fuzzed_server.url + "/openapi.json")


@pytest.fixture(scope="module")
def kept_id(fuzzed_server: Server) -> str:
    """Id of a response that the server keeps."""
    body = GOOD["/v1/responses"]
    return patient_http.post(fuzzed_server.url + "/v1/responses", json=body).json()["id"]


def test_no_request_breaks_the_server(api: schemathesis.BaseSchema, kept_id: str) -> None:
    operations = [found.ok() for found in api.get_all_operations()]
    assert {operation.path for operation in operations} > set(GOOD)
    statuses = Counter[tuple[str, int]]()
    for operation in operations:
        posts = operation.path in GOOD
        _fuzz(operation.as_strategy(), 0.3 if posts else 0.08, kept_id, statuses)
        if posts:
            _fuzz(operation.as_strategy(GenerationMode.NEGATIVE), 0.3, kept_id, statuses)
    for path in GOOD:
        assert statuses[path, 200] > 5, "most bodies must pass the first checks"
        assert statuses[path, 400] > 5


def _fuzz(cases: SearchStrategy[Case], share: float, kept_id: str, statuses: Counter) -> None:
    """Try some cases: a share of the profile's number of examples."""

    @given(cases, st.data())
    @settings(
        max_examples=int(share * settings().max_examples),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def nothing_breaks(case: Case, data: st.DataObject) -> None:
        if "response_id" in case.path_parameters and data.draw(st.booleans()):
            case.path_parameters["response_id"] = kept_id
        _check(case, statuses)
        if isinstance(case.body, dict) and case.body:
            # A whole body seldom passes the first checks; a good one with odd fields does.
            names = st.lists(st.sampled_from(sorted(case.body)), max_size=2, unique=True)
            odd = {name: case.body[name] for name in data.draw(names)}
            streamed = {"stream": data.draw(st.booleans())} if "/v1/" in case.path else {}
            case.body = GOOD[case.path] | streamed | odd
            _check(case, statuses)

    nothing_breaks()


def _check(case: Case, statuses: Counter) -> None:
    if isinstance(case.body, dict):
        _bound(case.body)
    response = case.call(timeout=PATIENCE_S)
    statuses[case.path, response.status_code] += 1
    case.validate_response(response, checks=CHECKS)
    if response.status_code >= 400:
        error = response.json()["error"]
        assert error["message"]
        assert set(error) == {"message", "type", "param", "code"}
    elif response.headers["content-type"][0].startswith("text/event-stream"):
        assert "engine" not in response.text, "no stream ends with the engine's failure"


def _bound(body: dict) -> None:
    """Name the model that is served, and ask for no answer without end."""
    if isinstance(body.get("model"), str):
        body["model"] = MODEL
    for name in (*LENGTHS, "n"):
        if isinstance(body.get(name), int):
            body[name] = min(body[name], MOST_TOKENS)


def test_it_still_serves_after_all_that(fuzzed_server: Server) -> None:
    assert fuzzed_server.post().status_code == 200
    eventually(lambda: fuzzed_server.running() == 0)
    assert not [line for line in fuzzed_server.lines if "Traceback" in line]

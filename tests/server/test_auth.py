"""API keys: who gets in, and that nobody sees another's responses."""

import openai
import pytest

from rose.server.auth import OPEN_PATHS, ApiKeyError, ApiKeys
from rose.server.policy import Policy
from tests import patient_http
from tests.playback_engine import MODEL, NANO, playing


@pytest.fixture(scope="module")
def played():
    with playing(NANO, policy=Policy(keys=ApiKeys.of(["alice", "bob"])), api_key="alice") as served:
        yield served


@pytest.fixture(scope="module")
def bob(played):
    with openai.OpenAI(base_url=played.url + "/v1", api_key="bob", max_retries=0) as client:
        yield client


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Bearer",
        "Bearer alic",
        "Bearer alicee",
        "Bearer alice bob",
        "Basic alice",
        "alice",
        "Bearer " + "a" * 5000,
        b"Bearer \xff\xfe",
    ],
)
def test_without_a_key_of_this_server_nothing_is_served(played, header):
    headers = {} if header is None else {"Authorization": header}
    for method, path in (
        ("GET", "/v1/models"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/tokenize"),
        ("GET", "/nowhere"),
    ):
        answer = patient_http.request(method, played.url + path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        error = answer.json()["error"]
        assert error["code"] == "invalid_api_key"
        assert "alice" not in error["message"]


def test_openais_client_tells_a_wrong_key(played):
    wrong = played.client.with_options(api_key="wrong")
    with pytest.raises(openai.AuthenticationError, match="does not open"):
        wrong.models.list()


def test_each_of_the_keys_opens(played, bob):
    assert played.chat("Hi.").choices[0].message.content == "Hi."
    assert bob.models.list().data[0].id == MODEL
    answer = patient_http.get(played.url + "/v1/models", headers={"Authorization": "bearer  bob"})
    assert answer.status_code == 200


def test_who_watches_the_server_needs_no_key(played):
    assert {"/health", "/ready", "/metrics", "/version"} == OPEN_PATHS
    for path in OPEN_PATHS:
        assert patient_http.get(played.url + path).status_code == 200


def test_responses_belong_to_their_key(played, bob):
    played.engine.play("Mine.")
    mine = played.client.responses.create(model=MODEL, input="Hi")
    for refused in (
        lambda: bob.responses.retrieve(mine.id),
        lambda: bob.responses.delete(mine.id),
        lambda: bob.responses.cancel(mine.id),
        lambda: bob.responses.input_items.list(mine.id),
    ):
        with pytest.raises(openai.NotFoundError):
            refused()
    with pytest.raises(openai.BadRequestError) as error:
        bob.responses.create(model=MODEL, input="More", previous_response_id=mine.id)
    assert error.value.code == "previous_response_not_found"
    reference = [{"type": "item_reference", "id": mine.output[0].id}]
    with pytest.raises(openai.BadRequestError):
        bob.responses.create(model=MODEL, input=reference)
    assert played.client.responses.retrieve(mine.id).output_text == "Mine."
    played.client.responses.delete(mine.id)


def test_nor_does_anyone_see_one_in_the_background(played, bob):
    played.engine.play("So far", finish=None)
    running = played.client.responses.create(model=MODEL, input="Hi", background=True)
    with pytest.raises(openai.NotFoundError):
        bob.responses.retrieve(running.id)
    with pytest.raises(openai.NotFoundError):
        bob.responses.cancel(running.id)
    assert played.client.responses.retrieve(running.id).status == "in_progress"
    assert played.client.responses.cancel(running.id).status == "cancelled"


def test_a_file_of_keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# of the team\nalice\n\n  bob \r\n")
    keys = ApiKeys.read(path)
    assert keys == ApiKeys.of(["alice", "bob"])
    assert keys | ApiKeys.of(["bob", "carol"]) == ApiKeys.of(["alice", "bob", "carol"])
    assert keys.owner(b"alice") != keys.owner(b"bob")
    assert keys.owner(b"# of the team") is None
    assert keys.owner(b"") is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no API key"),
        (b"# nothing\n", "holds no API key"),
        (b"good\nnot good\n", "line 2 must hold no spaces"),
        (b"k\xc3\xa9y", "printable ASCII"),
        (b"x" * 513, "it has 513"),
        (b"\xff", "no UTF-8"),
    ],
)
def test_a_file_that_is_none(tmp_path, content, says):
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(ApiKeyError, match=says):
        ApiKeys.read(path)


def test_an_empty_key_is_refused():
    with pytest.raises(ApiKeyError):
        ApiKeys.of([""])

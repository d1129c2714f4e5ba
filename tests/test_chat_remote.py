"""rose chat before a server: over real HTTP, with a scripted model."""

import pytest
from click.testing import CliRunner

from rose.chat import Chat, ToolResult
from rose.chat_remote import ChatServerError, ServerSpeaker, posted_messages
from rose.chat_tools import LOCAL_TOOLS
from rose.cli import main
from rose.protocol import FinishReason
from rose.server.auth import ApiKeys
from rose.server.chat.format import ContentDelta, Message, ReasoningDelta
from rose.server.policy import Policy
from tests.engine_processes import eventually
from tests.playback_engine import MODEL, NANO, playing

CALL = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
    'to=functions.calculate <|constrain|>json<|message|>{"expression": "6*7"}<|call|>'
)
ANSWER = "<|channel|>final<|message|>It is 42.<|return|>"


@pytest.fixture(scope="module")
def played():
    with playing(NANO, policy=Policy(keys=ApiKeys.of(["key"])), api_key="key") as served:
        yield served


def speaker(played, key="key", url=None):
    found = ServerSpeaker(url or played.url, key, 0.0)
    found.model = MODEL
    return found


def test_a_call_runs_here_and_its_result_goes_back(played):
    chat = Chat(speaker(played, url=played.url + "/v1/"), tools=LOCAL_TOOLS)
    events = []
    played.engine.play(CALL)
    for event in chat.answer("6*7?"):
        events.append(event)
        if isinstance(event, ToolResult):
            played.engine.play(ANSWER)
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert thought == "Hm."
    assert ToolResult("calculate", '{"result": 42}') in events
    said = "".join(event.text for event in events if isinstance(event, ContentDelta))
    assert said == "It is 42."
    prompt = played.engine.prompt()
    assert '{"expression": "6*7"}<|call|>' in prompt
    assert (
        'functions.calculate to=assistant<|channel|>commentary<|message|>{"result": 42}' in prompt
    )
    assert "Hm." in prompt
    assert [message.role for message in chat.messages] == [
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]


def test_parallel_calls_keep_their_results():
    def call(name):
        return Message(role="assistant", channel="commentary", recipient=name, content="{}")

    posted = posted_messages(
        [
            Message(role="user", content="Hi"),
            Message(role="assistant", channel="analysis", content="Hm."),
            call("a"),
            call("b"),
            Message(role="tool", name="a", content="1"),
            Message(role="tool", name="b", content="2"),
            Message(role="assistant", channel="final", content="Done."),
        ]
    )
    assert [message["role"] for message in posted] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert posted[1]["reasoning"] == "Hm."
    assert [c["id"] for c in posted[1]["tool_calls"]] == ["call_1", "call_2"]
    assert [m["tool_call_id"] for m in posted[2:4]] == ["call_1", "call_2"]


def test_what_the_server_refuses_is_told(played):
    with pytest.raises(ChatServerError, match="answers 401: this API key does not open"):
        list(Chat(speaker(played, "wrong"), tools={}).answer("Hi"))
    played.engine.refuse("too long", "prompt_token_ids")
    with pytest.raises(ChatServerError, match="answers 400: too long"):
        list(Chat(speaker(played), tools={}).answer("Hi"))


def test_an_error_within_the_answer_is_told(played):
    played.engine.play("So far", finish=FinishReason.ERROR)
    chat = Chat(speaker(played), tools={})
    with pytest.raises(ChatServerError, match="the engine failed"):
        list(chat.answer("Hi"))
    assert chat.messages == []


def test_who_stops_listening_stops_the_model(played):
    played.engine.play("<|channel|>final<|message|>So far", finish=None)
    answer = Chat(speaker(played), tools={}).answer("Hi")
    next(answer)
    answer.close()
    eventually(lambda: played.engine.aborted(played.engine.requests[-1]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--url", "localhost:8000"], "must begin with http://"),
        (["--url", "http://127.0.0.1:9"], "cannot reach http://127.0.0.1:9/v1"),
        (["--url", "http://[::bad"], "cannot reach"),
    ],
)
def test_no_server(words, says):
    done = CliRunner().invoke(main, ["chat", *words])
    assert done.exit_code == 1
    [line] = done.stderr.splitlines()
    assert says in line


def test_the_command(played):
    words = ["chat", "--url", played.url, "--api-key", "key"]
    played.engine.play(ANSWER)
    done = CliRunner().invoke(main, words, input="6*7?\n/quit\n")
    assert done.exit_code == 0, done.output
    assert f"{MODEL} at {played.url}" in done.stderr
    assert "It is 42." in done.stdout
    done = CliRunner().invoke(main, ["chat", "other", *words[1:]])
    assert f"has {MODEL}; not other" in done.stderr
    played.engine.refuse("too long", "prompt_token_ids")
    done = CliRunner().invoke(main, words, input="Hi\n/quit\n")
    assert "answers 400: too long" in done.stdout

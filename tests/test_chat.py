"""The terminal chat: conversations of several turns, calls, commands, and what is printed."""

import json

import pytest
from click.testing import CliRunner

from rose.chat import BLUE, DIM, MOST_CALLS, PLAIN, Chat, FormatSpeaker, ToolResult, run_terminal
from rose.chat_tools import LOCAL_TOOLS, run_tool
from rose.cli import main
from rose.protocol import InvalidRequestError
from rose.server.chat.format import ContentDelta, Message, ReasoningDelta, ToolCallDelta
from rose.server.chat.harmony import HarmonyFormat, encode_pieces, render_turn_pieces
from rose.server.detokenize import TextCodec
from tools.make_tiny_checkpoint import Sizes, make_tokenizer, write_checkpoint

CODEC = TextCodec(make_tokenizer())


def said(content, channel="final", recipient=None):
    return Message(role="assistant", content=content, channel=channel, recipient=recipient)


THOUGHT = said("Hm.", "analysis")
CALL = said('{"expression": "6*7"}', "commentary", "calculate")


class Script:
    """Writes the given turns one after the other, and keeps the prompts."""

    def __init__(self, *turns):
        self.turns = list(turns)
        self.prompts = []

    def __call__(self, prompt):
        self.prompts.append(CODEC.decode(prompt, skip_special_tokens=False))
        turn = self.turns.pop(0)
        if isinstance(turn, BaseException):
            raise turn
        return encode_pieces(render_turn_pieces(turn), CODEC)


def chat_of(*turns, tools=LOCAL_TOOLS):
    script = Script(*turns)
    return Chat(FormatSpeaker(HarmonyFormat(CODEC), script), tools=tools), script


def talk(chat, *lines, colour=False):
    """All that is printed while the user types these lines."""
    left, printed = iter(lines), []

    def read():
        line = next(left, None)
        if line is None:
            raise EOFError
        return line

    run_terminal(chat, read, printed.append, colour=colour)
    return "".join(printed)


def test_an_answer_and_a_question_about_it():
    chat, script = chat_of([THOUGHT, said("Hello.")], [THOUGHT, said("I said hello.")])
    assert talk(chat, "Hi", "What did you say?") == "Hm.\nHello.\nHm.\nI said hello.\n\n"
    assert "Reasoning: medium" in script.prompts[0]
    assert "Hi<|end|>" in script.prompts[1]
    assert "Hello.<|end|>" in script.prompts[1]
    assert "Hm." not in script.prompts[1]


def test_a_call_runs_and_its_result_is_read():
    chat, script = chat_of([THOUGHT, CALL], [THOUGHT, said("It is 42.")])
    events = list(chat.answer("6*7?"))
    assert ToolResult("calculate", '{"result": 42}') in events
    assert isinstance(events[0], ReasoningDelta)
    assert {type(e) for e in events} == {ReasoningDelta, ContentDelta, ToolCallDelta, ToolResult}
    assert '{"result": 42}' in script.prompts[1]
    assert '<|message|>{"expression": "6*7"}<|call|>' in script.prompts[1]
    assert "Hm." in script.prompts[1]  # the reasoning of an open tool loop stays


def test_colours():
    chat, _ = chat_of([THOUGHT, CALL], [said("It is 42.")])
    printed = talk(chat, "6*7?", colour=True)
    assert f"{DIM}H{PLAIN}" in printed
    assert f"{BLUE}calculate" in printed
    assert f'{BLUE}-> {{"result": 42}}{PLAIN}\n' in printed


def test_a_model_cannot_steer_the_terminal():
    chat, _ = chat_of([said("a\x1b[2Jb\tc\nd\x07")])
    assert talk(chat, "Hi") == "a[2Jb\tc\nd\n\n"


def test_a_model_that_calls_for_ever_is_stopped():
    chat, script = chat_of(*[[THOUGHT, CALL]] * (MOST_CALLS + 5))
    list(chat.answer("Go"))
    assert len(script.prompts) == MOST_CALLS + 1


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (KeyboardInterrupt(), "stopped"),
        (InvalidRequestError("the prompt is too long"), "too long (/reset begins anew)"),
    ],
)
def test_an_exchange_that_fails_is_forgotten(error, printed):
    chat, script = chat_of([said("One.")], error, [said("Two.")])
    assert printed in talk(chat, "first", "second", "third")
    assert "first" in script.prompts[2]
    assert "second" not in script.prompts[2]


def test_commands():
    chat, script = chat_of([said("One.")], [said("Two.")])
    printed = talk(
        chat,
        "secret",
        "/reset",
        "/effort high",
        "/effort most",
        "/tools",
        "/what",
        "",
        "x",
        "/quit",
    )
    for wanted in ("Choose one of low", "get_time: Get the time", "There is no /what", "Two."):
        assert wanted in printed
    assert "secret" not in script.prompts[1]
    assert "Reasoning: high" in script.prompts[1]
    assert chat.effort == "high"


@pytest.mark.parametrize(
    ("expression", "result"),
    [("2 + 3", 5), ("7/2", 3.5), ("(1+2)*-3", -9), ("6 × 7", 42), ("10 % 4", 2), ("0.1+0.2", 0.3)],  # noqa: RUF001
)
def test_calculate(expression, result):
    found = run_tool(LOCAL_TOOLS, "calculate", json.dumps({"expression": expression}))
    assert json.loads(found) == {"result": result}


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("nothing", "{}", "there is no function nothing"),
        ("calculate", "{", "not JSON"),
        ("calculate", "[]", "must be a JSON object"),
        ("calculate", '{"expression": 3}', "must be a string"),
        ("calculate", '{"expression": "1/0"}', "no finite value"),
        ("calculate", '{"expression": "1+"}', "not an arithmetic expression"),
        ("calculate", '{"expression": "open(1)"}', "only numbers"),
        ("calculate", '{"expression": "True+1"}', "only numbers"),
        ("calculate", '{"expression": "9**9**9"}', "only numbers"),
        ("calculate", json.dumps({"expression": "*".join(["99999999"] * 9)}), "too large"),
        ("calculate", json.dumps({"expression": "(" * 300 + "1"}), "not an arithmetic"),
        ("calculate", json.dumps({"expression": "1+" * 999 + "1"}), "longer than"),
        ("get_time", '{"city": "Nowhere"}', "not known"),
        ("get_time", "{}", "must be a string; got null"),
    ],
)
def test_a_call_that_cannot_be_carried_out(name, arguments, why):
    assert why in json.loads(run_tool(LOCAL_TOOLS, name, arguments))["error"]


def test_get_time():
    found = json.loads(run_tool(LOCAL_TOOLS, "get_time", '{"city": "New York"}'))
    assert found["timezone"] == "America/New_York"
    assert len(found["time"]) == 5


def test_the_command(tmp_path):
    write_checkpoint(tmp_path, Sizes(layers=2))
    words = ["chat", str(tmp_path), "--max-model-len", "600", "--device", "cpu", "--effort", "low"]
    done = CliRunner().invoke(main, words, input="Hi\n/effort\n/quit\n")
    assert done.exit_code == 0, done.output
    assert "Reasoning: low." in done.output


def test_the_command_needs_a_tokenizer(tmp_path):
    write_checkpoint(tmp_path, Sizes(layers=2))
    (tmp_path / "tokenizer.json").unlink()
    done = CliRunner().invoke(main, ["chat", str(tmp_path), "--device", "cpu"], input="")
    assert done.exit_code == 1
    assert "has no tokenizer.json, without which there is no text" in done.output

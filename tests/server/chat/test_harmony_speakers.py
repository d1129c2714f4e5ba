"""A model that goes on with someone else's message: what a user sees of it."""

import pytest

from rose.models.builtin import builtin_checkpoint
from rose.server.chat.format import Conversation, Message
from rose.server.chat.harmony import HarmonyFormat
from rose.server.chat.turn import parse_turn
from rose.server.detokenize import TextCodec


@pytest.fixture(scope="module")
def harmony():
    return HarmonyFormat(TextCodec.load(builtin_checkpoint("nano")))


def parse(harmony, text):
    conversation = Conversation(messages=[Message(role="user", content="Hi")])
    ids = harmony.codec.encode(text)
    parser = harmony.parser(conversation)
    return parse_turn(parser, ids), parser.over


ANSWER = "<|channel|>final<|message|>Hello, Ada!<|end|>"


@pytest.mark.parametrize("speaker", ["user", "system", "developer", "functions.f to=assistant"])
def test_the_users_next_question_is_not_part_of_the_answer(harmony, speaker):
    turn, over = parse(harmony, f"{ANSWER}<|start|>{speaker}<|message|>What now?<|end|>")
    assert turn.content == "Hello, Ada!"
    assert over


def test_nothing_after_it_counts(harmony):
    more = "<|start|>assistant<|channel|>final<|message|>Nine.<|return|>"
    turn, _ = parse(harmony, f"{ANSWER}<|start|>user<|message|>And 4+5?<|end|>{more}")
    assert turn.content == "Hello, Ada!"


def test_a_result_that_the_model_makes_up_is_not_part_of_the_answer(harmony):
    call = '<|channel|>commentary to=functions.f<|message|>{"a": 1}<|end|>'
    turn, over = parse(harmony, f"{call}<|start|>functions.f to=assistant<|message|>2<|end|>")
    assert [call.name for call in turn.calls] == ["f"]
    assert turn.content == ""
    assert over


def test_an_answer_under_a_wrong_role_is_still_seen(harmony):
    turn, over = parse(harmony, "<|start|>user<|message|>Hello, Ada!<|end|>")
    assert turn.content == "Hello, Ada!"
    assert not over


def test_a_second_message_of_the_assistant_is_part_of_the_turn(harmony):
    turn, over = parse(harmony, f"{ANSWER}<|start|>assistant<|channel|>final<|message|> Bye.")
    assert turn.content == "Hello, Ada! Bye."
    assert over  # flushed

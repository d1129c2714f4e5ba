"""A model that goes on with someone else's message: what a user sees of it."""

import pytest

from rose.server.chat.format import Conversation, Message
from rose.server.chat.harmony import HarmonyFormat
from rose.server.chat.turn import parse_turn


@pytest.fixture(name="parse")
def parse_with(tiny_codec):
    conversation = Conversation(messages=[Message(role="user", content="Hi")])

    def parse(text):
        harmony, ids = HarmonyFormat(tiny_codec), tiny_codec.encode(text)
        unfinished = harmony.parser(conversation)
        for token_id in ids:
            unfinished.push(token_id)
        return parse_turn(harmony.parser(conversation), ids), unfinished.over

    return parse


ANSWER = "<|channel|>final<|message|>Hello, Ada!<|end|>"


@pytest.mark.parametrize("speaker", ["user", "system", "developer", "functions.f to=assistant"])
def test_the_users_next_question_is_not_part_of_the_answer(parse, speaker):
    turn, over = parse(f"{ANSWER}<|start|>{speaker}<|message|>What now?<|end|>")
    assert turn.content == "Hello, Ada!"
    assert over


def test_nothing_after_it_counts(parse):
    more = "<|start|>assistant<|channel|>final<|message|>Nine.<|return|>"
    turn, _ = parse(f"{ANSWER}<|start|>user<|message|>And 4+5?<|end|>{more}")
    assert turn.content == "Hello, Ada!"


def test_a_result_that_the_model_makes_up_is_not_part_of_the_answer(parse):
    call = '<|channel|>commentary to=functions.f<|message|>{"a": 1}<|end|>'
    turn, over = parse(f"{call}<|start|>functions.f to=assistant<|message|>2<|end|>")
    assert [call.name for call in turn.calls] == ["f"]
    assert turn.content == ""
    assert over


def test_an_answer_under_a_wrong_role_is_still_seen(parse):
    turn, over = parse("<|start|>user<|message|>Hello, Ada!<|end|>")
    assert turn.content == "Hello, Ada!"
    assert not over


def test_a_second_message_of_the_assistant_is_part_of_the_turn(parse):
    turn, over = parse(f"{ANSWER}<|start|>assistant<|channel|>final<|message|> Bye.")
    assert turn.content == "Hello, Ada! Bye."
    assert not over

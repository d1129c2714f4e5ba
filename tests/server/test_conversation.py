"""Chats as clients post them, as conversations."""

import datetime

import pytest

from rose.protocol import InvalidRequestError
from rose.server.chat.format import Message
from rose.server.chat_types import ChatMessage, ResponseFormat, Tool, ToolChoiceField
from rose.server.conversation import (
    JSON_OBJECT,
    conversation_from_chat,
    effort_of,
    tool_choice_of,
)
from rose.server.grammar import ToolChoice

CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "no json"}},
]


def converted(*messages: dict) -> list[Message]:
    posted = [ChatMessage.model_validate(message) for message in messages]
    return list(conversation_from_chat(posted).messages)


def test_system_and_developer_messages_are_instructions():
    for role in ("system", "developer"):
        assert converted({"role": role, "content": "x"}) == [Message(role="developer", content="x")]


def test_a_turn_with_everything_is_thought_preamble_and_calls_in_order():
    posted = {"role": "assistant", "content": "Wait.", "reasoning": "Hm.", "tool_calls": CALLS}
    assert converted(posted) == [
        Message(role="assistant", channel="analysis", content="Hm."),
        Message(role="assistant", channel="commentary", content="Wait."),
        Message(role="assistant", channel="commentary", recipient="f", content='{"x": 1}'),
        Message(role="assistant", channel="commentary", recipient="g", content="no json"),
    ]


@pytest.mark.parametrize(
    "said",
    [
        {"content": "x"},
        {"content": [{"type": "text", "text": "x"}]},
        {"content": [{"type": "refusal", "refusal": "x"}]},
        {"content": None, "refusal": "x"},
        {"content": "x", "tool_calls": []},
    ],
)
def test_an_answer_is_final(said):
    final = Message(role="assistant", channel="final", content="x")
    assert converted({"role": "assistant"} | said) == [final]


def test_an_answer_that_was_cut_off_may_come_back_with_nothing_in_it():
    assert [m.channel for m in converted({"role": "assistant", "reasoning": "Hm."})] == ["analysis"]
    assert converted({"role": "assistant"}) == [
        Message(role="assistant", channel="final", content="")
    ]


def test_results_are_named_after_the_calls_that_they_answer_in_any_order():
    messages = converted(
        {"role": "assistant", "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "name": "h", "content": "3"},
    )
    assert [(m.name, m.content) for m in messages[2:]] == [("g", "2"), ("f", "1"), ("h", "3")]


def test_a_result_without_a_call_is_refused_with_the_calls_that_there_are():
    with pytest.raises(InvalidRequestError, match=r"'c'.*a, b") as caught:
        converted(
            {"role": "assistant", "tool_calls": CALLS},
            {"role": "tool", "tool_call_id": "c", "content": "2"},
        )
    assert caught.value.param == "messages[1].tool_call_id"


def test_no_tools_are_declared_when_none_may_be_called():
    tools = [Tool.model_validate({"type": "function", "function": {"name": "f"}})]
    for kind, count in (("auto", 1), ("required", 1), ("none", 0)):
        choice = ToolChoiceField(type=kind)
        assert len(conversation_from_chat([], tools=tools, tool_choice=choice).tools) == count


def test_the_choice_of_tools():
    function = {"type": "function", "function": {"name": "f"}}
    allowed = {"mode": "auto", "tools": [function]}
    for posted, wanted in (
        (None, ToolChoice()),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "required"}, ToolChoice("required")),
        (function, ToolChoice("required", ("f",))),
        ({"type": "allowed_tools", "allowed_tools": allowed}, ToolChoice("auto", ("f",))),
    ):
        field = None if posted is None else ToolChoiceField.model_validate(posted)
        assert tool_choice_of(field) == wanted


def test_what_the_answer_is_to_be():
    schema = {"type": "object"}
    named = {"name": "n", "description": "d", "schema": schema}
    for posted, wanted in (
        ({"type": "text"}, None),
        ({"type": "json_object"}, ("json_object", schema, "")),
        ({"type": "json_schema", "json_schema": named}, ("n", schema, "d")),
    ):
        wanted_format = ResponseFormat.model_validate(posted)
        found = conversation_from_chat([], response_format=wanted_format).response_schema
        assert (found and (found.name, found.schema, found.description)) == wanted
    assert JSON_OBJECT.schema == schema


def test_effort_and_date():
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    conversation = conversation_from_chat([])
    assert conversation.reasoning_effort == "medium"
    assert conversation.current_date in (
        today,
        datetime.datetime.now(datetime.UTC).date().isoformat(),
    )
    assert conversation_from_chat([], current_date="2025-01-02").current_date == "2025-01-02"
    assert effort_of("xhigh") == "high"
    with pytest.raises(InvalidRequestError, match="always reasons"):
        effort_of("none")

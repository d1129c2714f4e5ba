"""Input items: what is read, what is refused, and what the model sees of them."""

from collections.abc import Sequence

import pytest

from rose.protocol import InvalidRequestError
from rose.server.chat.format import Message
from rose.server.responses.items import (
    CallItem,
    InputText,
    Item,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    messages_of,
    read_input,
)

CALL = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":1}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "2"}


def thought(text: str) -> dict[str, object]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}


def said(text: str, **more: object) -> dict[str, object]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "content": [part]} | more


def input_text(text: str) -> dict[str, object]:
    return {"type": "input_text", "text": text}


def read(posted: object, before: Sequence[Item] = (), kept: Sequence[Item] = ()) -> list[Item]:
    return read_input(posted, before, {item.id: item for item in kept}.get)


def seen(*posted: object) -> list[Message]:
    return messages_of(read(list(posted)))


def test_a_string_is_a_users_message():
    [item] = read("hi")
    assert isinstance(item, MessageItem)
    assert (item.role, item.content, item.status) == ("user", [InputText("hi")], "completed")
    assert item.id.startswith("msg_")


def test_items_that_come_back_with_more_fields_are_read():
    call = CALL | {"id": "fc_1", "status": "completed", "namespace": None, "caller": None}
    reasoning = thought("hm") | {"encrypted_content": None, "status": None}
    items = read([reasoning, call, said("x", phase="final_answer", id="msg_7")])
    assert [item.id for item in items] == ["rs_1", "fc_1", "msg_7"]
    assert items[2].content == [OutputText("x")]


def test_a_whole_tool_loop_as_the_model_sees_it():
    messages = seen(
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [input_text("1+"), input_text("1")]},
        thought("call it"), said("one moment"), CALL, RESULT, said("2"),
    )  # fmt: skip
    assert messages == [
        Message(role="developer", content="be brief"),
        Message(role="user", content="1+1"),
        Message(role="assistant", channel="analysis", content="call it"),
        # A final message would end the turn, and its reasoning would be dropped.
        Message(role="assistant", channel="commentary", content="one moment"),
        Message(role="assistant", channel="commentary", recipient="add", content='{"a":1}'),
        Message(role="tool", name="add", content="2"),
        Message(role="assistant", channel="final", content="2"),
    ]


def test_a_preamble_is_known_by_its_phase_or_by_the_call_after_it():
    channels = [
        m.channel for m in seen(said("a", phase="commentary"), {"role": "user", "content": "b"})
    ]
    assert channels == ["commentary", None]
    assert seen(said("a"), thought("b"), CALL)[0].channel == "commentary"
    assert seen(said("a"), thought("b"), said("c"))[0].channel == "final"


def test_reasoning_of_other_models_is_their_summary():
    summary = [{"type": "summary_text", "text": "in short"}]
    [message] = seen({"type": "reasoning", "summary": summary})
    assert message == Message(role="assistant", channel="analysis", content="in short")
    assert seen({"type": "reasoning", "summary": [], "encrypted_content": "x"}) == []


def test_a_result_may_answer_a_call_of_an_earlier_response():
    before = [
        ReasoningItem(content=[ReasoningText("x")]),
        CallItem(call_id="call_1", name="add", arguments="{}"),
    ]
    items = read([RESULT], before)
    assert messages_of([*before, *items])[-1] == Message(role="tool", name="add", content="2")


def test_a_reference_stands_for_a_kept_item():
    call = CallItem(id="fc_1", call_id="call_1", name="add", arguments="{}")
    items = read([{"type": "item_reference", "id": "fc_1"}, RESULT], kept=[call])
    assert items[0] == call
    assert [m.role for m in messages_of(items)] == ["assistant", "tool"]


@pytest.mark.parametrize(
    ("posted", "param", "words"),
    [
        (None, "input", "required"),
        ([], "input", "required"),
        (5, "input", "string or a list"),
        (["hi"], "input[0]", "object"),
        ([{"type": "computer_call"}], "input[0].type", "'computer_call' is not supported"),
        ([{"type": ["x"]}], "input[0].type", "not supported"),
        ([{"type": "item_reference", "id": "msg_1"}], "input[0].id", "send the item itself"),
        ([{"type": "item_reference", "id": []}], "input[0].id", "no item []"),
        ([{"content": "x"}], "input[0]", "`role`"),
        ([{"role": "tool", "content": "x"}], "input[0].role", "tool"),
        ([{"role": "user", "content": 1}], "input[0].content", "int"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
         "input[0].content[0].type", "only text"),
        ([{"role": "user", "content": "x"}, RESULT], "input[1].call_id", "'call_1'"),
        ([RESULT, CALL], "input[0].call_id", "before it"),
        ([CALL | {"arguments": {"a": 1}}], "input[0].arguments", "str"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_field(posted, param, words):
    with pytest.raises(InvalidRequestError) as caught:
        read(posted)
    assert caught.value.param == param
    assert words in caught.value.message

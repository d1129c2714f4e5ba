"""Output items and their events, checked against OpenAI's own types."""

import json

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from rose.server.chat.format import ContentDelta, ReasoningDelta, ToolCallDelta
from rose.server.responses.items import CallItem, MessageItem, OutputText, ReasoningItem
from rose.server.responses.output import EventNumbers, OutputWriter

EVENT = TypeAdapter(ResponseStreamEvent)

TURN = [
    ReasoningDelta("I "),
    ReasoningDelta("add."),
    ContentDelta("A "),
    ContentDelta('"moment"\n'),
    ToolCallDelta(0, "add", ""),
    ToolCallDelta(0, None, '{"a":'),
    ToolCallDelta(0, None, "1}"),
    ToolCallDelta(1, "clock", ""),
    ContentDelta("Bye"),
]


def read(events: bytes) -> list[dict]:
    found = []
    for block in events.decode().split("\n\n")[:-1]:
        kind, data = block.split("\n")
        body = json.loads(data.removeprefix("data: "))
        assert kind == f"event: {body['type']}"
        EVENT.validate_python(body, strict=True)
        found.append(body)
    return found


def write(*deltas, status="completed"):
    writer = OutputWriter(EventNumbers())
    events = b"".join(map(writer.feed, deltas)) + writer.end(status)
    return writer, read(events)


def test_every_event_comes_in_the_official_order():
    _, events = write(*TURN)
    part = "response.content_part"
    text, thought = "response.output_text", "response.reasoning_text"
    arguments = "response.function_call_arguments"
    added, done = "response.output_item.added", "response.output_item.done"
    assert [e["type"] for e in events] == [
        added, f"{part}.added", *[f"{thought}.delta"] * 2, f"{thought}.done", f"{part}.done", done,
        added, f"{part}.added", *[f"{text}.delta"] * 2, f"{text}.done", f"{part}.done", done,
        added, *[f"{arguments}.delta"] * 2, f"{arguments}.done", done,
        added, f"{arguments}.done", done,
        added, f"{part}.added", f"{text}.delta", f"{text}.done", f"{part}.done", done,
    ]  # fmt: skip
    assert [e["sequence_number"] for e in events] == list(range(len(events)))


def test_indexes_count_from_zero_and_ids_are_the_items():
    writer, events = write(*TURN)
    ids = [item.id for item in writer.items]
    assert [i.split("_")[0] for i in ids] == ["rs", "msg", "fc", "fc", "msg"]
    for event in events:
        item_id = event.get("item_id") or event["item"]["id"]
        assert ids[event["output_index"]] == item_id
        assert event.get("content_index", 0) == 0
    calls = [item for item in writer.items if isinstance(item, CallItem)]
    assert all(call.call_id.startswith("call_") for call in calls)
    assert len({call.call_id for call in calls}) == 2


def test_deltas_dones_and_items_agree():
    writer, events = write(*TURN)
    reasoning, message, call, empty_call, _ = writer.items
    assert isinstance(reasoning, ReasoningItem)
    assert reasoning.content[0].text == "I add."
    assert message.content == [OutputText('A "moment"\n')]
    assert (call.name, call.arguments) == ("add", '{"a":1}')
    assert (empty_call.name, empty_call.arguments) == ("clock", "")
    for index, text in enumerate(["I add.", 'A "moment"\n', '{"a":1}', "", "Bye"]):
        mine = [e for e in events if e["output_index"] == index]
        assert "".join(e["delta"] for e in mine if e["type"].endswith(".delta")) == text
        [done] = [e for e in mine if e["type"].endswith(("text.done", "arguments.done"))]
        assert done.get("text", done.get("arguments")) == text


def test_a_message_before_more_of_the_turn_is_a_preamble():
    writer, events = write(*TURN)
    phases = [item.phase for item in writer.items if isinstance(item, MessageItem)]
    assert phases == ["commentary", "final_answer"]
    dones = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert [item["phase"] for item in dones if item["type"] == "message"] == phases


@pytest.mark.parametrize("number", [1, 3, 6])
def test_only_the_item_that_is_cut_off_is_incomplete(number):
    writer, _ = write(*TURN[:number], status="incomplete")
    statuses = [item.status for item in writer.items]
    assert statuses == ["completed"] * (len(statuses) - 1) + ["incomplete"]


def test_a_turn_without_a_word_has_no_items():
    writer, events = write()
    assert (writer.items, events) == ([], [])

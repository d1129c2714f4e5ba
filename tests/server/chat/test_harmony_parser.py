"""What a user sees of what a model wrote, right or wrong."""

import pytest
from harmony_text import conversation_with, deltas_of, ids_of, seen, turn_of

from rose.server.chat.format import ContentDelta, ReasoningDelta, ToolCallDelta
from rose.server.chat.harmony import HarmonyFormat
from rose.server.detokenize import TextCodec

CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
FINAL = "<|channel|>final<|message|>"
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|>"
START = "<|start|>assistant"


def check(codec: TextCodec, transcript: str, want, *functions: str) -> None:
    assert seen(turn_of(codec, transcript, *(functions or ("f",)))) == want


def test_reasoning_then_an_answer(tiny_codec):
    check(tiny_codec, f"{THOUGHT}{START}{FINAL}Hi.<|return|>", ("Hm.", "Hi.", []))


def test_reasoning_then_a_call(tiny_codec):
    check(tiny_codec, f'{THOUGHT}{START}{CALL}{{"a":1}}<|call|>', ("Hm.", "", [("f", '{"a":1}')]))


def test_the_library_s_order_of_recipient_and_channel_is_read_too(tiny_codec):
    header = " to=functions.f<|channel|>commentary <|constrain|>json<|message|>"
    check(tiny_codec, f"{header}{{}}<|call|>", ("", "", [("f", "{}")]))


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>final some more words<|message|>",
        "<|channel|>final <|constrain|>json<|message|>",
        "<|channel|>final json<|message|>",
        "<|channel|>finall<|message|>",
        "<|channel|>FINAL<|message|>",
        "<|channel|> final <|message|>",
        "<|channel|><|message|>",
        "<|channel|>analysis<|channel|>final<|message|>",
        "<|message|>",
        "final<|message|>",
        "assistant<|channel|>final<|message|>",
        " to=user<|channel|>final<|message|>",
        "<|channel|>commentary to=<|message|>",
        "<|channel|>final<|message|><|message|>",
        "<|start|>assistant<|channel|>final<|message|>",
        "<|start|>robot<|channel|>final<|message|>",
        "<|start|><|channel|>final<|message|>",
        "<|channel|>final<|reserved_1|><|message|>",
        "<|startoftext|><|channel|>final<|message|>",
    ],
)
def test_1_an_odd_header_never_costs_the_answer(tiny_codec, header):
    check(tiny_codec, f"{header}Hi.<|return|>", ("", "Hi.", []))


@pytest.mark.parametrize("stray", ["", "\n", " \n\n", "assistant", "assistant\n"])
@pytest.mark.parametrize("start", ["", "<|start|>", START, "<|end|>", "<|start|>assistant\n"])
def test_2_stray_tokens_between_messages_do_no_harm(tiny_codec, stray, start):
    check(tiny_codec, f"{THOUGHT}{stray}{start}{FINAL}Hi.<|return|>", ("Hm.", "Hi.", []))


def test_2_stranded_text_between_messages_is_content(tiny_codec):
    check(tiny_codec, f"{THOUGHT}So: {START}{FINAL}Hi.<|return|>", ("Hm.", "So: Hi.", []))
    check(tiny_codec, f"{THOUGHT}So: {FINAL}Hi.<|return|>", ("Hm.", "So: Hi.", []))
    check(tiny_codec, f"{THOUGHT}The answer is 4.<|return|>", ("Hm.", "The answer is 4.", []))


@pytest.mark.parametrize(
    ("transcript", "want"),
    [
        ("<|channel|>finalThe answer.<|return|>", ("", "The answer.", [])),
        ("<|channel|>final The answer.", ("", "The answer.", [])),
        ("<|channel|>fnal The answer.", ("", "fnal The answer.", [])),
        ("<|channel|>analysis I think.<|end|>", ("I think.", "", [])),
        ("The answer.", ("", "The answer.", [])),
        ("user friendly, I hope.", ("", "user friendly, I hope.", [])),
        ("<|channel|>final<|constrain|>The answer.", ("", "The answer.", [])),
        (f"<|channel|>analysis I think.{FINAL}Hi.", ("I think.", "Hi.", [])),
        (f"<|channel|>analysis I think.{START}{FINAL}Hi.", ("I think.", "Hi.", [])),
        (f"<|channel|>analysis<|message|>I think.{START}{FINAL}Hi.", ("I think.", "Hi.", [])),
        (f"<|channel|>analysis<|message|>I think.{FINAL}Hi.", ("I think.", "Hi.", [])),
        (f"{THOUGHT}{START}analysis More.{START}{FINAL}Hi.", ("Hm.More.", "Hi.", [])),
        (f"{THOUGHT}{START}final", ("Hm.", "", [])),
        ("<|channel|>commentary to=functions.f{}<|call|>", ("", "", [("f", "{}")])),
        (
            '<|channel|>commentary to=functions.f <|constrain|>json{"a":1}<|call|>',
            ("", "", [("f", '{"a":1}')]),
        ),
        (" to=functions.f<|channel|>commentary {}<|call|>", ("", "", [("f", "{}")])),
        ("<|channel|>Finally, it is 4.<|return|>", ("", "Finally, it is 4.", [])),
        ("<|channel|>thoughts<|message|>Hi.", ("", "Hi.", [])),
    ],
)
def test_3_nothing_is_lost_when_message_or_channel_is_missing(tiny_codec, transcript, want):
    check(tiny_codec, transcript, want)


def test_3_an_endless_header_streams_as_a_message(tiny_codec):
    parser = HarmonyFormat(tiny_codec).parser(conversation_with())
    words = "".join(f"word{n} " for n in range(200))
    ids = ids_of(tiny_codec, "<|channel|>analysis " + words)
    streamed = [delta for token_id in ids for delta in parser.push(token_id)]
    assert all(isinstance(delta, ReasoningDelta) for delta in streamed)
    assert "".join(delta.text for delta in streamed) == words
    assert parser.flush() == []


@pytest.mark.parametrize(
    "recipient",
    [
        "functions.f<|channel|>commentary",
        "functions.f<|channel|>commentary <|constrain|>json",
        "functions.f<|constrain|>json",
        "functions.f<|reserved_1|>commentary",
        "functions.f json",
        "f",
        "functions.f,",
        " functions.f",
    ],
)
def test_4_a_tool_s_name_ends_where_markup_begins(tiny_codec, recipient):
    for header in (f" to={recipient}", f"<|channel|>commentary to={recipient}"):
        check(tiny_codec, f"{header}<|message|>{{}}<|call|>", ("", "", [("f", "{}")]))


def test_4_a_recipient_without_to_is_known_by_its_name(tiny_codec):
    for name in ("f", "functions.f"):
        header = f"<|channel|>commentary {name} <|constrain|>json<|message|>"
        check(tiny_codec, f"{header}{{}}<|call|>", ("", "", [("f", "{}")]))


def test_5_a_call_streams_its_name_once_and_keeps_its_index(tiny_codec):
    transcript = f'{CALL}{{"a"}}<|end|>{START}{CALL.replace(".f", ".g")}[1]<|call|>'
    deltas = deltas_of(tiny_codec, transcript, "f", "g")
    assert all(isinstance(delta, ToolCallDelta) for delta in deltas)
    assert [(d.index, d.name) for d in deltas if d.name is not None] == [(0, "f"), (1, "g")]
    assert [d.index for d in deltas] == sorted(d.index for d in deltas)
    assert "".join(d.arguments for d in deltas if d.index == 0) == '{"a"}'
    assert len([d for d in deltas if d.index == 1]) == 1 + len("[1]")


@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", "<|return|>", "<|endoftext|>", "", START])
def test_6_a_call_is_a_call_however_it_ends(tiny_codec, end):
    check(tiny_codec, f"{CALL}{{}}{end}", ("", "", [("f", "{}")]))


@pytest.mark.parametrize("stop", ["<|return|>", "<|call|>", "<|endoftext|>"])
@pytest.mark.parametrize("before", [f"{FINAL}Hi.", "<|channel|>final Hi."])
def test_7_nothing_after_a_stop_counts(tiny_codec, stop, before):
    after = f" more{START}{FINAL}And more.<|return|>{CALL}{{}}<|call|>"
    check(tiny_codec, f"{before}{stop}{after}", ("", "Hi.", []))


def test_7_the_format_s_stops_end_a_turn(tiny_codec):
    names = ("<|return|>", "<|call|>", "<|endoftext|>")
    want = tuple(tiny_codec.special_token_id(name) for name in names)
    assert HarmonyFormat(tiny_codec).stop_token_ids == want


@pytest.mark.parametrize("channel", ["analysis", "commentary", "final", "other", ""])
def test_8_a_function_s_call_counts_on_any_channel(tiny_codec, channel):
    header = f"<|channel|>{channel} to=functions.f<|message|>"
    check(tiny_codec, f"{header}{{}}<|call|>", ("", "", [("f", "{}")]))


def test_9_a_preamble_is_seen_by_the_user(tiny_codec):
    preamble = "<|channel|>commentary<|message|>I look it up.<|end|>"
    check(tiny_codec, f"{preamble}{START}{CALL}{{}}<|call|>", ("", "I look it up.", [("f", "{}")]))


@pytest.mark.parametrize(
    ("recipient", "name"),
    [
        ("functions.unknown", "unknown"),
        ("browser.search", "browser.search"),
        ("python", "python"),
        ("functions.Ünïcode", "Ünïcode"),
    ],
)
def test_10_unknown_tools_and_odd_arguments_pass_as_they_are(tiny_codec, recipient, name):
    header = f"<|channel|>analysis to={recipient} code<|message|>"
    check(tiny_codec, f"{header}not json {{<|call|>", ("", "", [(name, "not json {")]))


def test_11_a_call_that_is_cut_off_keeps_its_arguments(tiny_codec):
    check(tiny_codec, f'{CALL}{{"a": "xy', ("", "", [("f", '{"a": "xy')]))


def test_11_a_call_cut_off_in_its_name_is_none(tiny_codec):
    header = "<|channel|>commentary to=functions.look"
    check(tiny_codec, header, ("", "", []), "lookup")
    check(tiny_codec, f"{header}up", ("", "", [("lookup", "")]), "lookup")


@pytest.mark.parametrize("recipient", ["assistant", "user", "all"])
def test_16_a_message_to_a_speaker_goes_by_its_channel(tiny_codec, recipient):
    check(tiny_codec, f"<|channel|>analysis to={recipient}<|message|>Hm.", ("Hm.", "", []))
    check(tiny_codec, f"<|channel|>commentary to={recipient}<|message|>Hi.", ("", "Hi.", []))


def test_16_reasoning_with_a_mistyped_channel_stays_reasoning(tiny_codec):
    for channel in ("analysi", "anlysis", "Analysis", "analyysis", "anlysis<|channel|>anaysis"):
        check(tiny_codec, f"<|channel|>{channel}<|message|>Hm.", ("Hm.", "", []))
    check(tiny_codec, "<|channel|>anlysis is hard.<|end|>", ("anlysis is hard.", "", []))


def test_a_character_split_over_tokens_arrives_whole(tiny_codec):
    deltas = deltas_of(tiny_codec, f"{FINAL}a🌹é<|return|>")
    assert deltas == [ContentDelta("a"), ContentDelta("🌹"), ContentDelta("é")]


def test_a_character_that_is_cut_off_shows_as_one_replacement(tiny_codec):
    format_ = HarmonyFormat(tiny_codec)
    rose = tiny_codec.encode_plain("🌹")[:2]
    opening = ids_of(tiny_codec, FINAL)
    for end in ([], ids_of(tiny_codec, "<|return|>"), ids_of(tiny_codec, START)):
        parser = format_.parser(conversation_with())
        deltas = [d for i in [*opening, *rose, *end] for d in parser.push(i)] + [*parser.flush()]
        assert deltas == [ContentDelta("�")]


def test_ids_beyond_the_vocabulary_are_no_text(tiny_codec):
    parser = HarmonyFormat(tiny_codec).parser(conversation_with())
    ids = [*ids_of(tiny_codec, FINAL), -1, 10**9, *ids_of(tiny_codec, "Hi")]
    assert [d for i in ids for d in parser.push(i)] == [ContentDelta("H"), ContentDelta("i")]


def test_after_the_flush_nothing_comes(tiny_codec):
    parser = HarmonyFormat(tiny_codec).parser(conversation_with())
    assert parser.flush() == []
    assert [d for i in ids_of(tiny_codec, f"{FINAL}Hi.") for d in parser.push(i)] == []
    assert parser.flush() == []

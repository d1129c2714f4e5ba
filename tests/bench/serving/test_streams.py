"""Bytes to events to tokens."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rose.bench.serving.sse import MOST_BYTES, EventParser, StreamError
from rose.bench.serving.tokens import Chunk, Output, ServerError, share_out

LINE = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20)


@given(
    events=st.lists(st.lists(LINE, min_size=1, max_size=3), max_size=5),
    ending=st.sampled_from(["\n", "\r\n"]),
    comment=st.booleans(),
    cuts=st.lists(st.integers(0, 300), max_size=8),
)
def test_events_however_the_bytes_are_cut(events, ending, comment, cuts):
    text = "".join(
        (f": ping{ending}{ending}" if comment else "")
        + "".join(f"data: {line}{ending}" for line in lines)
        + ending
        for lines in events
    ).encode()
    parser = EventParser()
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = [
        data for begin, end in itertools.pairwise(borders) for data in parser.feed(text[begin:end])
    ]
    assert found == ["\n".join(lines).encode() for lines in events]


@pytest.mark.parametrize("text", [b"<html>\n", b'{"error": 1}\n', b"datum: 1\n"])
def test_what_is_no_stream_of_events(text):
    with pytest.raises(StreamError, match="not a line"):
        EventParser().feed(text)


def test_a_line_without_end():
    parser = EventParser()
    half = b"data: " + b"x" * (MOST_BYTES // 2)
    assert parser.feed(half) == []
    with pytest.raises(StreamError, match="over"):
        parser.feed(half)


@given(
    sizes=st.lists(st.integers(0, 40), max_size=30),
    total=st.integers(0, 100),
)
def test_tokens_are_shared_out_whole(sizes, total):
    chunks = [Chunk(float(i), size) for i, size in enumerate(sizes)]
    counts = share_out(chunks, total)
    assert sum(counts) == (total if chunks else 0)
    if total >= len(chunks):
        assert all(counts)
    else:
        assert set(counts) <= {0, 1}
        without = [c.size for c, n in zip(chunks, counts, strict=True) if not n]
        assert max(without) <= min(
            (c.size for c, n in zip(chunks, counts, strict=True) if n), default=40
        )


def test_tokens_go_where_the_text_is():
    chunks = [Chunk(0.0, 3), Chunk(1.0, 30), Chunk(2.0, 3)]
    assert share_out(chunks, 12) == [2, 8, 2]


def output(*events: str) -> Output:
    found = Output()
    for now, event in enumerate(events):
        found.take(event.encode(), float(now))
    return found


TEXT = '{"choices": [{"index": 0, "text": "%s"}]}'
USAGE = '{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": %d}}'


def test_completions():
    found = output(TEXT % "ab", TEXT % "", TEXT % "cd", USAGE % 3)
    # An empty text is a token, too: that of a part of a character, or one that is not shown.
    assert found.times_and_counts() == ([0.0, 1.0, 2.0], [1, 1, 1])
    assert found.usage.prompt_tokens == 9


@pytest.mark.parametrize(
    ("tokens", "times"), [(2, [0.0, 1.0]), (3, [0.0, 1.0, 2.0])], ids=["no token", "a token"]
)
def test_an_empty_chunk_at_the_end(tokens, times):
    end = '{"choices": [{"text": "", "finish_reason": "length"}]}'
    assert output(TEXT % "a", TEXT % "b", end, USAGE % tokens).times_and_counts()[0] == times


def test_chats():
    head = '{"choices": [{"delta": {"role": "assistant", "content": ""}}]}'
    thought = '{"choices": [{"delta": {"reasoning_content": "hm"}}]}'
    said = '{"choices": [{"delta": {"content": "yes", "tool_calls": null}}], "error": null}'
    call = '{"choices": [{"delta": {"content": null, "tool_calls": [{"index": 0}]}}]}'
    end = '{"choices": [{"delta": {}, "finish_reason": "stop"}]}'
    assert output(head, thought, said, call, end).times_and_counts() == ([1.0, 2.0, 3.0], [1, 1, 1])


def test_token_ids_tell_exactly():
    chunk = '{"choices": [{"text": "%s", "token_ids": %s}]}'
    events = (chunk % ("a long text", "[1]"), chunk % ("", "[2, 3, 4]"), USAGE % 4)
    assert output(*events).times_and_counts() == ([0.0, 1.0], [1, 3])


def test_errors_and_what_is_no_chunk():
    with pytest.raises(ServerError, match="out of luck"):
        output('{"error": {"message": "out of luck"}}')
    for data in ("[]", "{", '{"choices": 3}'):
        with pytest.raises(StreamError, match="not a chunk"):
            output(data)

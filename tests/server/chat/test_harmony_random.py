"""Random token streams and mutated transcripts: nothing raises, is lost, or comes twice."""

import random

import pytest
from harmony_text import conversation_with, ids_of, seen, text_in

from rose.server.chat.format import ToolCallDelta
from rose.server.chat.harmony import HarmonyFormat
from rose.server.chat.turn import ParsedTurn, parse_turn
from rose.server.detokenize import TextCodec

MARKERS = ("start", "end", "message", "channel", "constrain", "reserved_1", "startoftext")
STOPS = ("return", "call", "endoftext")
HEADER_WORDS = (
    "assistant",
    "analysis",
    "commentary",
    "final",
    " to=functions.f",
    " to=",
    "functions.g",
    "json",
    "user",
    " ",
    "\n",
)
THOUGHT = "<|channel|>analysis<|message|>aAbB<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>cC<|return|>"
TRANSCRIPTS = (
    f"{THOUGHT}<|channel|>commentary to=functions.f <|constrain|>json<|message|>cC<|call|>",
    f"{THOUGHT}{FINAL}",
    " to=functions.f<|channel|>analysis code<|message|>dD<|end|><|start|>assistant"
    f"<|channel|>commentary<|message|>eE<|end|><|start|>assistant{FINAL}",
)


class Streams:
    """Makes token streams in which every content token can be told from all others."""

    def __init__(self, codec: TextCodec, seed: int) -> None:
        self.codec = codec
        self.random = random.Random(seed)
        self.transcripts = [ids_of(codec, transcript) for transcript in TRANSCRIPTS]
        self.words = [ids_of(codec, word) for word in HEADER_WORDS]
        self.markers = [_special(codec, name) for name in MARKERS]
        self.stops = [_special(codec, name) for name in STOPS]
        # Characters of their own: content tokens that occur once each in a stream.
        self.letters = [codec.encode_plain(chr(c))[0] for c in range(ord("!"), ord("Z"))]

    def any_tokens(self) -> list[int]:
        letters = self.random.sample(self.letters, 12)
        ids: list[int] = []
        for letter in letters:
            chance = self.random.random()
            if chance < 0.45:
                ids.append(self.random.choice(self.markers))
            elif chance < 0.7:
                ids += self.random.choice(self.words)
            elif chance < 0.73:
                ids.append(self.random.choice(self.stops))
            elif chance < 0.75:
                ids.append(self.random.randrange(-2, 500))
            else:
                ids.append(letter)
        return ids

    def mutated(self) -> list[int]:
        ids = list(self.random.choice(self.transcripts))
        for _ in range(self.random.randrange(1, 4)):
            at = self.random.randrange(len(ids))
            chance = self.random.random()
            if chance < 0.4:
                del ids[at]
            elif chance < 0.7:
                ids.insert(at, self.random.choice(self.markers + self.stops))
            elif chance < 0.85:
                other = self.random.randrange(len(ids))
                ids[at], ids[other] = ids[other], ids[at]
            else:
                del ids[at:]
            if not ids:
                break
        return ids


def _special(codec: TextCodec, name: str) -> int:
    token_id = codec.special_token_id(f"<|{name}|>")
    assert token_id is not None
    return token_id


def content_of(streams: Streams, ids: list[int]) -> str:
    """Text after a `<|message|>`, up to what closes it: found by looking at the whole stream."""
    codec, text, inside = streams.codec, [], False
    closes = {_special(codec, name) for name in ("start", "end", "channel")}
    message = _special(codec, "message")
    for token_id in ids:
        if token_id in streams.stops:
            break
        inside = (inside or token_id == message) and token_id not in closes
        if inside:
            text.append(token_id)
    return codec.decode(text)


@pytest.mark.parametrize("count", [4000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_every_content_token_comes_out_once_and_streams_as_it_stands_whole(tiny_codec, count):
    streams = Streams(tiny_codec, seed=count)
    format_ = HarmonyFormat(tiny_codec)
    conversation = conversation_with("f")
    for n in range(count):
        ids = streams.any_tokens() if n % 2 else streams.mutated()
        parser = format_.parser(conversation)
        streamed, counting = [], ids
        for position, token_id in enumerate(ids):
            streamed += parser.push(token_id)
            if parser.over and token_id not in streams.stops:
                _check_another_speaker(streams, ids[: position + 1])
                counting = ids[:position]
                break
        streamed += parser.flush()
        _check_deltas(streams, counting, streamed)
        turn = ParsedTurn()
        for delta in streamed:
            turn.add(delta)
        assert seen(turn) == seen(parse_turn(format_.parser(conversation), ids)), ids


def _check_another_speaker(streams: Streams, ids: list[int]) -> None:
    """Without a stop token, only a message that is headed as another speaker's ends a turn."""
    if not set(ids).isdisjoint(streams.stops):
        return
    assert ids[-1] == _special(streams.codec, "message")
    start = len(ids) - 1 - ids[::-1].index(_special(streams.codec, "start"))
    header = streams.codec.decode(ids[start + 1 :]).lstrip()
    assert header.startswith(("user", "functions."))


def _check_deltas(streams: Streams, ids: list[int], streamed) -> None:
    given_out = "".join(text_in(delta) for delta in streamed)
    rest = iter(given_out)
    assert all(char in rest for char in content_of(streams, ids)), (ids, given_out)
    written = streams.codec.decode(ids)
    for char in set(given_out) - {"\N{REPLACEMENT CHARACTER}", " "}:
        assert given_out.count(char) <= written.count(char), (ids, given_out)
    calls = [delta for delta in streamed if isinstance(delta, ToolCallDelta)]
    names = [delta.index for delta in calls if delta.name is not None]
    assert names == list(range(len(names)))
    assert [d.index for d in calls] == sorted(d.index for d in calls)


def test_a_long_turn_costs_as_much_a_token_as_a_short_one(tiny_codec):
    """By count, not by clock: a parser keeps no more than a header's text."""
    parser = HarmonyFormat(tiny_codec).parser(conversation_with())
    marker = _special(tiny_codec, "channel")
    letter = tiny_codec.encode_plain("x")[0]
    for token_id in [marker, letter] * 20_000 + [letter] * 20_000:
        parser.push(token_id)
    assert parser.flush() == []

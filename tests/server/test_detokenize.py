"""Incremental detokenisation and stop strings, held against the whole text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from rose.server.detokenize import Detokenizer, TextCodec, TokenizerError
from rose.server.stop_strings import StopStrings

SPECIALS = ("<|start|>", "<|end|>")
CORPUS = [
    "the naïve café 🎉🎊 日本語のテキスト",
    "the the then there",
    "ééé ñ ü 한국어 👩‍👩‍👧 €",
] * 3


def make_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIALS])
    tokenizer.add_tokens([AddedToken("plain added 🎈", special=False)])
    return tokenizer


TOKENIZER = make_tokenizer()
CODEC = TextCodec(TOKENIZER)
SIZE = TOKENIZER.get_vocab_size()

token_ids = st.lists(st.integers(0, SIZE + 5), max_size=40)


@settings(max_examples=300)
@given(ids=token_ids, skip=st.booleans())
def test_pieces_are_the_whole_of_any_ids(ids, skip):
    detokenizer = Detokenizer(CODEC, skip_special_tokens=skip)
    pieces = [detokenizer.add(i) for i in ids] + [detokenizer.flush()]
    assert "".join(pieces) == TOKENIZER.decode(ids, skip_special_tokens=skip)
    assert CODEC.decode(ids, skip_special_tokens=skip) == "".join(pieces)


@settings(max_examples=200)
@given(text=st.text())
def test_valid_text_never_shows_a_replacement_character_early(text):
    text = text.replace("\N{REPLACEMENT CHARACTER}", "")
    detokenizer = Detokenizer(CODEC)
    shown = ""
    for token_id in TOKENIZER.encode(text, add_special_tokens=False).ids:
        shown += detokenizer.add(token_id)
        assert text.startswith(shown)
    assert detokenizer.flush() == ""
    if not any(s in text for s in SPECIALS):
        assert shown == text


def test_text_appears_with_the_token_that_completes_it():
    detokenizer = Detokenizer(CODEC)
    ids = [CODEC.encode(c)[0] for c in "ab"]
    assert [detokenizer.add(i) for i in ids] == ["a", "b"]


def test_incomplete_bytes_are_held_and_flushed_as_one_replacement():
    first = TOKENIZER.token_to_id("ð")  # the byte F0, which begins a character of four
    detokenizer = Detokenizer(CODEC)
    assert detokenizer.add(first) == ""
    assert detokenizer.flush() == "\N{REPLACEMENT CHARACTER}"


def test_names_of_special_tokens_in_raw_prompts_are_those_tokens():
    start = TOKENIZER.token_to_id("<|start|>")
    assert CODEC.encode("<|start|>a")[0] == start
    assert CODEC.decode([start]) == ""
    assert CODEC.decode([start], skip_special_tokens=False) == "<|start|>"


def test_token_names():
    assert CODEC.token_name(TOKENIZER.token_to_id("<|end|>")) == "<|end|>"
    assert CODEC.token_name(TOKENIZER.token_to_id("ð")) == "bytes:\\xf0"
    assert CODEC.token_name(SIZE + 3) == f"token_id:{SIZE + 3}"


def test_loading(tmp_path):
    assert TextCodec.load(tmp_path) is None
    path = tmp_path / "tokenizer.json"
    path.write_text("{")
    with pytest.raises(TokenizerError, match=r"cannot read .*tokenizer\.json"):
        TextCodec.load(tmp_path)
    other = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    other.decoder = decoders.WordPiece()
    other.save(str(path))
    with pytest.raises(TokenizerError, match="decoder is WordPiece; expected ByteLevel"):
        TextCodec.load(tmp_path)
    TOKENIZER.save(str(path))
    codec = TextCodec.load(tmp_path)
    assert codec is not None
    assert codec.decode(codec.encode("naïve 🎉")) == "naïve 🎉"


letters = st.text("abc", max_size=30)
stops = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4)


def cut_by_character(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition: the text grows a character at a time until it ends with a stop string."""
    for end in range(1, len(text) + 1):
        endings = [s for s in stops if text[:end].endswith(s)]
        if endings:
            return text[: end - max(map(len, endings))], True
    return text, False


@settings(max_examples=1000)
@given(text=letters, stops=stops, data=st.data())
def test_stop_strings_cut_alike_however_the_text_is_split(text, stops, data):
    wanted, stopped = cut_by_character(text, stops)
    matcher, shown, rest = StopStrings(stops), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown += matcher.feed(rest[:size])
        rest = rest[size:]
        assert wanted.startswith(shown), "part of a stop string leaked"
    assert matcher.matched == stopped
    assert shown + matcher.flush() == wanted


def test_text_that_begins_no_stop_string_is_not_held():
    matcher = StopStrings(["END"])
    assert [matcher.feed(piece) for piece in ("abc", "E", "N", "x", "END", "y")] == (
        ["abc", "", "", "ENx", "", ""]
    )
    assert StopStrings([]).feed("anything") == "anything"

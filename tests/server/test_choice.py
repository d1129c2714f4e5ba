"""Deltas of a choice: streamed in any portions they make the same whole."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rose.protocol import FinishReason, RequestOutput, TokenLogprobs
from rose.server.choice import Choice, Delta, prompt_entries
from rose.server.detokenize import TextCodec


def make_codec() -> TextCodec:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(alphabet)} | {"ab": 256, "ba": 257}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b"), ("b", "a")]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|return|>", special=True)])
    return TextCodec(tokenizer)


CODEC = make_codec()
A, B, AB, BA, RETURN = (
    CODEC._tokenizer.token_to_id(t) for t in ("a", "b", "ab", "ba", "<|return|>")
)
E1, E2 = (CODEC._tokenizer.token_to_id(c) for c in "Ã©")  # the two bytes of é


def output(ids: list[int], reason: FinishReason | None, logprobs: bool) -> RequestOutput:
    entries = [TokenLogprobs(i, -i / 10, 1, [(A, -0.1)]) for i in ids] if logprobs else None
    return RequestOutput("r", 0, ids, reason, entries)


def run(ids: list[int], reason: FinishReason, sizes: list[int], **options) -> list[Delta]:
    choice, deltas, start = Choice(CODEC, **options), [], 0
    for size in [*sizes, len(ids)]:
        part = ids[start : start + size]
        start += len(part)
        deltas.append(choice.feed(output(part, reason if start == len(ids) else None, True)))
        if start == len(ids):
            return deltas
    raise AssertionError


def total(deltas: list[Delta]) -> Delta:
    whole = Delta()
    for delta in deltas:
        finished = whole.finish_reason
        whole.add(delta)
        whole.finish_reason = delta.finish_reason or finished
    return whole


@settings(max_examples=500)
@given(
    ids=st.lists(st.sampled_from([A, B, AB, BA, E1, E2, RETURN]), min_size=1, max_size=20),
    sizes=st.lists(st.integers(1, 4), max_size=20),
    stop=st.lists(st.text("abé", min_size=1, max_size=3), max_size=2),
    min_tokens=st.integers(0, 3),
    reason=st.sampled_from([FinishReason.LENGTH, FinishReason.STOP]),
)
def test_any_portions_make_the_same_whole(ids, sizes, stop, min_tokens, reason):
    options = {"stop": stop, "min_tokens": min_tokens}
    whole = total(run(ids, reason, [], **options))
    streamed = run(ids, reason, sizes, **options)
    assert total(streamed) == whole
    shown = ""
    for delta in streamed:
        shown += delta.text
        # An entry comes no earlier than its text.
        assert delta.finish_reason or all(e.offset < len(shown) for e in delta.entries)
    text_ids = ids[:-1] if reason is FinishReason.STOP else ids
    assert CODEC.decode(text_ids).startswith(shown) or "\ufffd" in shown
    if not stop:
        assert shown == CODEC.decode(text_ids)
        assert [e.token for e in whole.entries] == [CODEC.token_name(i) for i in ids]
    elif min_tokens == 0:
        assert not any(s in shown for s in stop)


def test_a_stop_string_ends_the_choice_before_its_text():
    choice = Choice(CODEC, stop=["ab"])
    first = choice.feed(output([B, A], None, True))
    assert (first.text, [e.token for e in first.entries]) == ("b", ["b"])
    second = choice.feed(output([B, B], None, True))
    assert (second.text, second.finish_reason, second.entries) == ("", "stop", [])
    assert (choice.finished, choice.num_tokens) == (True, 3)
    assert choice.feed(output([A], FinishReason.LENGTH, False)) == Delta()


def test_held_text_is_given_out_at_the_end():
    choice = Choice(CODEC, stop=["abb"])
    assert choice.feed(output([AB], None, False)).text == ""
    end = choice.feed(output([E1], FinishReason.LENGTH, False))
    assert (end.text, end.finish_reason) == ("ab\ufffd", "length")


def test_the_stop_token_is_an_id_but_no_text():
    delta = Choice(CODEC).feed(output([A, B], FinishReason.STOP, False))
    assert (delta.text, delta.token_ids, delta.finish_reason) == ("a", [A, B], "stop")


def test_special_tokens_are_text_only_if_asked_for():
    for skip, text in ((True, "ab"), (False, "a<|return|>b")):
        choice = Choice(CODEC, skip_special_tokens=skip)
        assert choice.feed(output([A, RETURN, B], FinishReason.LENGTH, False)).text == text


def test_stop_strings_wait_for_min_tokens():
    choice = Choice(CODEC, stop=["a"], min_tokens=2)
    deltas = [choice.feed(output([A], None, False)) for _ in range(3)]
    assert [d.text for d in deltas] == ["a", "a", ""]
    assert choice.finished


def test_without_a_tokenizer_there_are_ids_but_no_text():
    delta = Choice(None).feed(output([7], FinishReason.LENGTH, True))
    assert (delta.text, delta.token_ids) == ("", [7])
    assert delta.entries[0].token == "token_id:7"
    assert delta.entries[0].top == {"token_id:7": -0.7, f"token_id:{A}": -0.1}


def test_an_echoed_prompt_has_entries_with_offsets():
    logprobs = [TokenLogprobs(i, -1.0, 1, []) for i in (E1, E2, B)]
    entries = prompt_entries(CODEC, [AB, E1, E2, B], logprobs)
    assert [e.token for e in entries] == ["ab", "bytes:\\xc3", "bytes:\\xa9", "b"]
    assert [e.offset for e in entries] == [0, 2, 2, 3]
    assert entries[0].logprob is None
    assert entries[0].top is None
    assert entries[3].top == {"b": -1.0}

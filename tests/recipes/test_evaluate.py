"""The evaluation: its judges, and what they say of the shipped model."""

import dataclasses
import itertools
import json
from collections import Counter

import pytest

from recipes.nano.corpus import TASKS
from recipes.nano.evaluate import Evaluation, differences, main
from recipes.nano.example import split_of
from recipes.nano.heldout import effort_cases, heldout_cases
from recipes.nano.report import Judged, make_report
from recipes.nano.scoring import TurnGrammar, gives, is_right, mentions, parse_turn
from rose.server.chat.harmony import HarmonyFormat, encode_pieces, render_turn_pieces
from rose.server.detokenize import TextCodec
from tools.make_tiny_checkpoint import Sizes, make_tokenizer, write_checkpoint

PER_ROW = 8
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>42<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
PREAMBLE = "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant"


@pytest.fixture(scope="module")
def codec():
    return TextCodec(make_tokenizer())


@pytest.fixture(scope="module")
def cases():
    return heldout_cases(PER_ROW)


@pytest.fixture(scope="module")
def evaluation(cases, codec):
    return Evaluation(cases, [], codec)


def turn_of(example, codec):
    """The turn that the corpus expects, as token ids."""
    return encode_pieces(render_turn_pieces(example.turn), codec)


def test_the_expected_turns_are_all_right(evaluation, codec):
    report = evaluation.run("oracle", lambda cases: [turn_of(c.example, codec) for c in cases])
    assert {row.name for row in report.rows if row.right < row.turns} == set()
    assert report.total.well_formed == report.total.turns
    assert {row.name.split(",")[0] for row in report.rows} == set(TASKS)
    assert report.failures == []


def test_turns_of_other_prompts_are_mostly_wrong(cases, evaluation, codec):
    """Each prompt gets the right answer to the next prompt of its row."""
    right, turns = Counter(), Counter()
    for case, other in itertools.pairwise(cases):
        if case.row == other.row:
            turns[case.row] += 1
            right[case.row] += evaluation.judge(case, turn_of(other.example, codec)).right
    del turns["unknown"], right["unknown"]  # a refusal refuses anything
    assert {row for row in turns if right[row] == turns[row]} == set()
    assert right.total() < turns.total() / 4


def test_cases_are_held_out_and_always_the_same(cases):
    assert all(split_of(case.example) == "heldout" for case in cases)
    assert cases == heldout_cases(PER_ROW)
    assert max(Counter(case.row for case in cases).values()) == PER_ROW
    for case in cases:
        assert ("unseen" in case.row) == case.example.unseen_tool


@pytest.mark.parametrize(
    "text",
    [
        THOUGHT + FINAL,
        THOUGHT + CALL,
        THOUGHT + PREAMBLE + CALL,
        THOUGHT + PREAMBLE + FINAL,
        THOUGHT + FINAL.replace("<|message|>", " <|constrain|>json<|message|>"),
    ],
)
def test_grammar_accepts(codec, text):
    assert TurnGrammar(codec).accepts(codec.encode(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        FINAL,
        CALL,
        THOUGHT,
        THOUGHT + FINAL.removesuffix("<|return|>"),
        THOUGHT + FINAL.replace("<|return|>", "<|end|>"),
        THOUGHT + FINAL.replace("<|return|>", "<|call|>"),
        THOUGHT + CALL.replace("<|call|>", "<|return|>"),
        THOUGHT + CALL.replace(" <|constrain|>json", ""),
        THOUGHT + CALL.replace("commentary", "analysis"),
        THOUGHT + CALL.replace("functions.", ""),
        THOUGHT + FINAL.replace("final", "finally"),
        THOUGHT + FINAL.replace("<|message|>", ""),
        THOUGHT + FINAL.replace("42", "<|channel|>"),
        THOUGHT + FINAL.replace("42", "<|endoftext|>"),
        THOUGHT + FINAL + "\n",
        THOUGHT + THOUGHT + FINAL,
        THOUGHT.removesuffix("assistant") + FINAL,
        "\n" + THOUGHT + FINAL,
    ],
)
def test_grammar_refuses(codec, text):
    assert not TurnGrammar(codec).accepts(codec.encode(text))


def test_spelled_control_tokens_are_text(codec):
    grammar = TurnGrammar(codec)
    spelled = codec.encode_plain("<|channel|>")
    marked = codec.encode(THOUGHT + FINAL)
    assert not grammar.accepts(codec.encode_plain(THOUGHT + FINAL))
    assert grammar.accepts([*marked[:-1], *spelled, marked[-1]])
    assert not grammar.accepts([*marked[:-1], 10**6, marked[-1]])


@pytest.mark.parametrize(
    ("content", "answer", "found"),
    [
        ("So it is 12.", "12", True),
        ("12", "12", True),
        ("It is 112.", "12", False),
        ("It is -12.", "12", False),
        ("It is 12.5.", "12", False),
        ("11, 12, 13", "12", False),
        ("-3, 4", "-3, 4", True),
        ("It is blue.", "blue", True),
        ("It is bluebell.", "blue", False),
        ("Yes, 3 is.", "Yes", True),
        ("There are (12).", "12", True),
    ],
)
def test_mentions(content, answer, found):
    assert mentions(content, answer) is found


@pytest.mark.parametrize(
    ("task", "content", "answer", "found"),
    [
        ("compare", "7 is larger than 3.", "7", True),
        ("compare", "3 is smaller than 7.", "7", False),
        ("compare", "No, 3 is not larger. Yes?", "Yes", False),
        ("addition", "7 + 5 = 12.", "12", True),
        ("addition", "12 + 5 = 18.", "12", False),
        ("subtraction", "5-8=-3", "-3", True),
        ("subtraction", "5-8=3", "-3", False),
    ],
)
def test_a_number_that_is_not_given_as_the_answer(task, content, answer, found):
    assert gives(task, content, answer) is found


def with_call(case, codec, arguments, name="f"):
    """Whether a call is right for a prompt that expects f({"a": 1, "b": [true]})."""
    expected = dataclasses.replace(case.example.expected, call=("f", {"a": 1, "b": [True]}))
    example = dataclasses.replace(case.example, expected=expected)
    text = THOUGHT + CALL.replace('{"a":1}', arguments).replace("functions.f", f"functions.{name}")
    return is_right(example, parse_turn(HarmonyFormat(codec), example, codec.encode(text)))


def test_calls_are_compared_as_json(cases, codec):
    case = cases[0]
    assert with_call(case, codec, '{"b": [true], "a": 1}')
    assert not with_call(case, codec, '{"a": 1, "b": [true]}', name="g")
    for arguments in ('{"a": 1}', '{"a": 1.0, "b": [true]}', '{"a": 1, "b": [1]}', '{"a": 1', "[]"):
        assert not with_call(case, codec, arguments), arguments


def test_efforts_ask_the_same_prompts(cases):
    efforts = effort_cases(cases, 5)
    assert Counter(case.row for case in efforts) == {"low": 5, "medium": 5, "high": 5}
    assert len({case.example.key for case in efforts}) == 5
    assert all(case.example.conversation.reasoning_effort == case.row for case in efforts)
    assert effort_cases(cases, 0) == []


def judged(row, *, right=True, well_formed=True, tokens=1):
    task = row.partition(",")[0]
    return Judged(row=row, task=task, right=right, well_formed=well_formed, reasoning_tokens=tokens)


def test_targets():
    sums = [judged("addition", right=n % 10 != 0) for n in range(100)]
    calls = [judged("tool_call, unseen tool", right=n > 21) for n in range(100)]
    thoughts = [judged(e, tokens=t) for e, t in (("low", 1), ("medium", 5), ("high", 3))]
    report = make_report("m", [*sums, *calls], thoughts)
    assert [(t.good, t.turns, t.met) for t in report.targets] == [
        (90, 100, True),
        (78, 100, False),
        (203, 203, True),
    ]
    assert len(report.failures) == 2
    assert "effort" in report.failures[1]


def test_precisions_are_compared():
    first = make_report("m", [judged("addition")] * 200, [])
    near = make_report("n", [judged("addition", right=n > 1) for n in range(200)], [])
    far = make_report("f", [judged("addition", right=n > 2) for n in range(200)], [])
    assert differences(first, near) == []
    assert len(differences(first, far)) == 2


def test_a_random_model_reaches_nothing(tmp_path, capsys):
    write_checkpoint(tmp_path, Sizes(layers=2))
    out = tmp_path / "found.json"
    words = [str(tmp_path), "--per-task", "1", "--efforts", "1", "--tasks", "addition", "sort"]
    assert main([*words, "--json", str(out), "--max-tokens", "8"]) == 0
    assert main([*words, "--strict", "--max-tokens", "8"]) == 1
    [report] = json.loads(out.read_text())
    assert report["total"]["turns"] == 2
    assert report["total"]["right"] == report["total"]["well_formed"] == 0
    assert "| addition" in capsys.readouterr().out

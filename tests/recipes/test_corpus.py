import itertools
import json
import random
import re
import statistics
from collections import defaultdict

import pytest

from recipes.nano import corpus
from recipes.nano.corpus import arithmetic, columns, comparison, messages, precedence, who
from recipes.nano.example import is_unseen_tool, split_of
from recipes.nano.vocabulary import TOKENIZER_FILE
from rose.server.chat.harmony import encode_pieces, render_pieces, render_turn_pieces
from rose.server.detokenize import TextCodec

MAX_TOKENS = 1000


def take(split, count, seed=1, task=None):
    return list(itertools.islice(corpus.stream(seed, split, task), count))


@pytest.fixture(scope="module")
def train():
    return take("train", 12_000)


@pytest.fixture(scope="module")
def heldout():
    return take("heldout", 1_200)


def prompt(example):
    """What the user and the developer wrote, without what is drawn beside the prompt."""
    tools = tuple(json.dumps([t.name, t.parameters]) for t in example.conversation.tools)
    return tuple((m.role, m.content) for m in example.conversation.messages), tools


def test_the_same_seed_gives_the_same_examples():
    assert take("train", 300, seed=5) == take("train", 300, seed=5)
    assert take("train", 50, seed=5) != take("train", 50, seed=6)


def test_training_and_evaluation_share_no_prompt(train, heldout):
    keys = {e.key for e in heldout if not e.unseen_tool}
    assert not {e.key for e in train} & keys
    assert not {prompt(e) for e in train} & {prompt(e) for e in heldout}


def test_unseen_tools_occur_in_evaluation_only(train, heldout):
    assert not any(is_unseen_tool(t.name) for e in train for t in e.conversation.tools)
    unseen = [e for e in heldout if e.unseen_tool]
    assert len(unseen) > 100
    for example in unseen:
        assert any(is_unseen_tool(t.name) for t in example.conversation.tools)


def test_every_task_comes_by_its_weight(train):
    total = sum(corpus.TASK_WEIGHTS.values())
    for task, weight in corpus.TASK_WEIGHTS.items():
        share = sum(e.task == task for e in train) / len(train)
        assert share == pytest.approx(weight / total, rel=0.5, abs=0.005), task


@pytest.mark.parametrize("task", corpus.TASKS)
def test_every_task_has_examples_on_both_sides(task):
    for split in ("train", "heldout"):
        examples = take(split, 20, task=task)
        assert {e.task for e in examples} == {task}
        assert {split_of(e) for e in examples} == {split}


def test_a_stream_of_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="no task 'poetry'"):
        next(corpus.stream(0, "train", "poetry"))


def test_turns_are_an_analysis_and_then_a_call_or_a_final(train):
    for example in train:
        analysis, last = example.turn
        assert analysis.channel == "analysis"
        assert analysis.content
        if example.expected.call is None:
            assert (last.channel, last.recipient) == ("final", None)
        else:
            name, arguments = example.expected.call
            assert (last.channel, last.recipient) == ("commentary", name)
            assert json.loads(last.content) == arguments


def test_the_final_holds_the_expected_answer(train):
    for example in train:
        final = example.turn[-1].content
        if example.expected.answer is not None:
            assert example.expected.answer in final
        if example.expected.json is not None:
            assert json.loads(final) == example.expected.json


def test_higher_effort_thinks_more(train):
    lengths = defaultdict(lambda: defaultdict(list))
    for example in train:
        effort = example.conversation.reasoning_effort
        lengths[example.task][effort].append(len(example.turn[0].content))
    for task, by_effort in lengths.items():
        low, medium, high = (statistics.mean(by_effort[e]) for e in ("low", "medium", "high"))
        assert low < medium < high, task


def test_texts_hold_no_special_token(train):
    for example in train:
        for message in (*example.conversation.messages, *example.turn):
            assert "<|" not in message.content


def fits_schema(value, schema):
    kind = schema["type"]
    if kind == "object":
        properties = schema["properties"]
        return (
            isinstance(value, dict)
            and all(k in value for k in schema.get("required", ()))
            and all(k in properties and fits_schema(v, properties[k]) for k, v in value.items())
        )
    if kind == "array":
        return isinstance(value, list) and all(fits_schema(v, schema["items"]) for v in value)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    types = {"string": str, "integer": int, "number": (int, float)}
    return isinstance(value, types[kind]) and ("enum" not in schema or value in schema["enum"])


def test_calls_fit_the_schema_of_a_declared_tool(train, heldout):
    for example in (*train, *heldout):
        names = [t.name for t in example.conversation.tools]
        assert len(set(names)) == len(names)
        if example.expected.call is None:
            continue
        name, arguments = example.expected.call
        tool = example.conversation.tools[names.index(name)]
        empty = {"type": "object", "properties": {}}
        assert fits_schema(arguments, tool.parameters or empty), (arguments, tool)


def test_json_answers_fit_their_schema(train):
    answers = [e for e in train if e.task == "json"]
    assert answers
    for example in answers:
        schema = example.conversation.response_schema.schema
        assert fits_schema(example.expected.json, schema)


SUM = re.compile(r"(-?\d+) ?([-+*/]) ?(\d+)(?: ?([-+]) ?(\d+))? ?= ?(-?\d+)")


@pytest.mark.parametrize("task", ["addition", "subtraction", "multiplication", "division"])
def test_sums_in_analyses_and_finals_are_right(task):
    checked = 0
    for example in take("train", 1500, seed=3, task=task):
        for message in example.turn:
            for a, sign, b, second, c, result in SUM.findall(message.content):
                value = eval(f"{a}{sign}{b}{second}{c}")  # digits and signs only, by the pattern
                assert value == int(result), message.content
                checked += 1
    assert checked > 1500


def test_the_columns_write_the_digits_of_the_result():
    rng = random.Random(0)
    for _ in range(300):
        a, b = rng.randrange(1000), rng.randrange(1000)
        steps = columns.add_steps(a, b).medium
        written = re.findall(r"write (\d), carry (\d)", steps)
        digits = written[-1][1] + "".join(digit for digit, _ in reversed(written))
        assert int(digits) == a + b
        low, high = sorted((a, b))
        taken = re.findall(r"write (\d)", columns.subtract_steps(high, low).medium)
        assert int("".join(reversed(taken))) == high - low


def test_operands_stay_within_what_is_to_be_mastered():
    rng = random.Random(0)
    for sign in "+-*/":
        for _ in range(500):
            a, b = arithmetic.draw_operands(rng, sign)
            assert 0 <= a <= 999
            assert 0 <= b <= 999
            if sign == "/":
                assert a % b == 0


@pytest.fixture(scope="module")
def codec():
    return TextCodec.load(TOKENIZER_FILE.parent)


def test_examples_fit_the_context_and_round_trip(train, heldout, codec):
    for example in (*train[:1500], *heldout[:200]):
        pieces = render_pieces(example.conversation)
        pieces += render_turn_pieces(example.turn, tools=example.conversation.tools)
        ids = encode_pieces(pieces, codec)
        assert len(ids) <= MAX_TOKENS
        text = "".join(piece for piece in pieces if isinstance(piece, str))
        assert codec.decode(ids) == text


def test_any_text_round_trips(codec):
    for text in ("", " ", "naïve 東京 🙂\t\n\n  x", "a  b\r\n", "{'k': [1,2]}", "FOO_barBaz-9"):
        assert codec.decode(codec.encode(text)) == text


def test_names_are_the_same_tokens_wherever_they_stand(codec):
    inside = codec.encode("functions.get_florp(Wabanzi)")
    spoken = codec.encode("call get_florp for Wabanzi")
    for name in ("get_florp", "Wabanzi"):
        ids = codec.encode(name)
        for sequence in (inside, spoken):
            assert any(sequence[i : i + len(ids)] == ids for i in range(len(sequence)))


def test_a_scan_for_a_person_reads_the_sentences_in_order():
    rng = random.Random(1)
    for _ in range(300):
        example = who.who(rng)
        text = "\n".join(m.content for m in example.conversation.messages)
        read = re.findall(r"(\w[^.]*?): (yes|no)\.", example.turn[0].content)
        places = [text.index(sentence) for sentence, _ in read]
        assert places == sorted(places)
        found = [verdict for _, verdict in read].count("yes")
        assert found == (example.expected.answer != "do not know")


def test_free_text_is_copied_from_the_request():
    rng = random.Random(2)
    for _ in range(300):
        example = messages.free_text(rng)
        request = example.conversation.messages[-1].content
        texts = re.findall(r'": "([^"]*)"', example.turn[-1].content)
        copied = [t for t in texts if t in request]
        derived = [t for t in texts if t not in request]
        assert copied
        assert len(derived) <= 1
        assert all(any(messages.first_words(c) == t for c in copied) for t in derived)


def test_decimals_are_compared_by_their_value():
    rng = random.Random(3)
    for _ in range(500):
        analysis = comparison.decimals(rng).turn[0].content
        large, small = re.findall(r"([\d.]+\d|\d) > ([\d.]+\d|\d)", analysis)[-1]
        assert float(large) > float(small)


def test_products_and_brackets_come_first():
    rng = random.Random(4)
    for _ in range(500):
        example = precedence.precedence(rng)
        asked = example.conversation.messages[-1].content.replace("x", "*")
        [term] = re.findall(r"\(?\d[\d+\-* ()]*\d\)?", asked)
        assert eval(term) == int(example.expected.answer)  # digits and signs only, by the pattern

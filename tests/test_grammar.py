"""Grammars as they are checked, without an engine."""

import json
from pathlib import Path

import pytest

from rose.grammar import compile_grammar, load_tokenizer, schema_problem
from rose.protocol import Grammar, InvalidRequestError, Request
from rose.wire import decode, encode

NANO = Path(__file__).parents[1] / "rose" / "assets" / "nano" / "tokenizer.json"
RETURN, END_OF_TEXT, CALL = 2553, 2552, 2559


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(NANO, 2560, (RETURN, END_OF_TEXT, CALL))


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "string", "format": "postcode"}, "postcode"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, '"if"'),
        ({"not": {"type": "null"}}, '"not"'),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "greater than maximum"),
        ({"$ref": "https://example.org/schema"}, "example.org"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-ahead"),
        ({"type": "strin"}, "strin"),
    ],
)
def test_what_a_schema_has_that_cannot_be_followed_is_said_in_one_line(schema, named):
    problem = schema_problem(json.dumps(schema))
    assert named in problem
    assert "\n" not in problem
    assert "start:" not in problem


def test_a_schema_too_deep_to_read_is_a_problem_and_no_crash():
    schema = {"type": "string"}
    for _ in range(300):
        schema = {"type": "array", "items": schema}
    assert "recursion limit" in schema_problem(json.dumps(schema))


def test_annotations_and_recursion_are_no_problem():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "title": "Node"}
    assert schema_problem(json.dumps({"$defs": {"node": node}, "$ref": "#/$defs/node"})) is None


def test_a_complete_grammar_allows_the_models_end_tokens_alone(tokenizer):
    matcher = compile_grammar('start: "ok"', tokenizer)
    assert matcher.consume_tokens(tokenizer.tokenize_str("ok"))
    mask = matcher.compute_bitmask()
    allowed = {token for token in range(2560) if mask[token // 8] >> (token % 8) & 1}
    assert allowed == {RETURN, END_OF_TEXT, CALL}


@pytest.mark.parametrize("source", ["start: <|nosuch|>", "begin: /a/", 'start: "a', ""])
def test_a_grammar_that_cannot_be_compiled_is_refused(tokenizer, source):
    with pytest.raises(InvalidRequestError, match="grammar cannot be used") as caught:
        compile_grammar(source, tokenizer)
    assert caught.value.param == "grammar"


def test_a_checkpoint_unfit_for_grammars_is_refused_with_the_reason(tmp_path):
    with pytest.raises(InvalidRequestError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path / "tokenizer.json", 2560, (RETURN,))
    with pytest.raises(InvalidRequestError, match="no end token"):
        load_tokenizer(NANO, 2560, ())
    with pytest.raises(InvalidRequestError, match="too small"):
        load_tokenizer(NANO, 2000, (1,))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidRequestError, match="cannot be used with grammars"):
        load_tokenizer(tmp_path / "tokenizer.json", 2560, (RETURN,))


def test_a_grammar_crosses_the_wire():
    request = Request(request_id="r", prompt_token_ids=[1], grammar=Grammar(source="start: /a/"))
    assert decode(encode(request)) == request

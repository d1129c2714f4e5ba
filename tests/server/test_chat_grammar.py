"""What a chat's grammar lets through, token by token in Harmony's own form."""

import json

import pytest

from rose.grammar import compile_grammar, load_tokenizer
from rose.protocol import InvalidRequestError
from rose.server.chat.format import Conversation, FunctionTool
from rose.server.grammar import RESPONSES_PARAMS, ToolChoice, chat_grammar
from tests.constrained import NANO

GET = FunctionTool(
    name="get",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
GET_MORE = FunctionTool(name="get_more", parameters={"properties": {"n": {"type": "integer"}}})
NOTHING = FunctionTool(name="nothing")
TOOLS = Conversation(messages=[], tools=[GET, GET_MORE, NOTHING])
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array"}},
    "required": ["a"],
    "additionalProperties": False,
}
THINK = "<|channel|>analysis<|message|>1. <b>ü\n\n{}<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant"
REQUIRED = ToolChoice("required")


@pytest.fixture(scope="module")
def fits():
    tokenizer = load_tokenizer(NANO / "tokenizer.json", 2560, (2553, 2552, 2559))

    def check(grammar, text):
        """Whether the grammar takes the text, and is then complete."""
        ids = tokenizer.tokenize_str(text, parse_special=True)
        matcher = compile_grammar(grammar.source, tokenizer)
        for token in ids:
            if not matcher.compute_bitmask()[token // 8] >> (token % 8) & 1:
                return False
            matcher.consume_token(token)
        return matcher.is_accepting()

    return check


def call(name, arguments):
    return (
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"
    )


def final(text):
    return f"<|channel|>final<|message|>{text}<|return|>"


@pytest.mark.parametrize("before", ["", THINK, PREAMBLE, THINK + PREAMBLE, THINK * 3])
def test_a_required_call_may_come_after_thoughts_and_preambles(fits, before):
    grammar = chat_grammar(TOOLS, tool_choice=REQUIRED)
    assert fits(grammar, before + call("get", '{"city": "Rome"}'))
    assert not fits(grammar, before + final("Rome"))


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        (call("get", '{"city":"Rome"}'), True),
        (call("get", '{ "city": "Rome"}'), False),  # other whitespace
        (call("get", '{"city": 5}'), False),
        (call("get", "{}"), False),
        (call("get_more", "{}"), True),
        (call("get_more", '{"n": 3, "other": [null]}'), True),
        (call("get_more", "3"), False),  # arguments are an object, though the schema does not say
        (call("nothing", "{}"), True),
        (call("nothing", '{"a": 1}'), False),
        (call("other", "{}"), False),
        (call("get", '{"city": "Rome"}').replace("<|call|>", "<|end|>"), False),
        (THINK * 4 + call("nothing", "{}"), False),  # put off for too long
    ],
)
def test_a_required_call_follows_the_schema_of_a_declared_function(fits, text, ok):
    assert fits(chat_grammar(TOOLS, tool_choice=REQUIRED), text) is ok


def test_a_named_function_is_the_only_one(fits):
    grammar = chat_grammar(TOOLS, tool_choice=ToolChoice("required", ("get",)))
    assert fits(grammar, call("get", '{"city": "Rome"}'))
    assert not fits(grammar, call("get_more", "{}"))


def test_a_schema_binds_the_final_message_and_leaves_calls_free(fits):
    grammar = chat_grammar(TOOLS, response_format=SCHEMA)
    assert fits(grammar, THINK * 5 + final('{"a": 1, "b": [{"c": "d"}, 2]}'))
    assert fits(grammar, call("get", '{"town": [1]}'))
    assert not fits(grammar, call("other", "{}"))
    assert not fits(grammar, call("get", "town"))
    assert not fits(grammar, final('{"b": []}'))
    assert not fits(grammar, final("No."))


def test_tool_choice_none_leaves_the_answer_alone(fits):
    grammar = chat_grammar(TOOLS, response_format=SCHEMA, tool_choice=ToolChoice("none"))
    assert fits(grammar, final('{"a": 1}'))
    assert not fits(grammar, call("nothing", "{}"))


def test_any_json_object(fits):
    grammar = chat_grammar(Conversation(messages=[]), response_format="json_object")
    assert fits(grammar, THINK + final('{"x": {"y": [1.5e3, true, null, "ü\\n"]}}'))
    assert not fits(grammar, final("[]"))


def test_strict_functions_bind_their_arguments_and_the_rest_is_free(fits):
    grammar = chat_grammar(TOOLS, strict_tools={"get"})
    assert fits(grammar, final("Any text at all."))
    assert fits(grammar, call("get", '{"city": "Rome"}'))
    assert not fits(grammar, call("get", '{"town": "Rome"}'))
    assert fits(grammar, call("get_more", '{"n": "three"}'))


def test_a_free_turn_has_no_grammar():
    assert chat_grammar(TOOLS) is None
    assert chat_grammar(TOOLS, layout="text") is None
    assert chat_grammar(TOOLS, tool_choice=ToolChoice("none"), strict_tools={"get"}) is None


def test_in_a_format_without_headers_the_whole_text_is_json(fits):
    grammar = chat_grammar(TOOLS, layout="text", response_format=SCHEMA)
    assert fits(grammar, '{"a": 1}')
    assert not fits(grammar, final('{"a": 1}'))
    with pytest.raises(InvalidRequestError, match="no known form") as caught:
        chat_grammar(TOOLS, layout="text", tool_choice=REQUIRED)
    assert caught.value.param == "tool_choice"


def test_a_clients_own_options_do_not_weaken_its_schema(fits):
    grammar = chat_grammar(
        Conversation(messages=[]),
        response_format=SCHEMA | {"x-guidance": {"lenient": True, "whitespace_flexible": True}},
    )
    assert not fits(grammar, final('{\n"a": 1}'))


def test_names_and_keys_are_data_and_never_grammar(fits):
    name, key = 'a" | "b', '"} //'
    tools = [FunctionTool(name=name, parameters={"properties": {key: {"const": 1}}})]
    grammar = chat_grammar(Conversation(messages=[], tools=tools), tool_choice=REQUIRED)
    assert fits(grammar, call(name, json.dumps({key: 1})))
    assert not fits(grammar, call(name, json.dumps({key: 2})))
    assert not fits(grammar, call("b", "{}"))


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"response_format": {"not": {}}}, "response_format", '"not"'),
        ({"response_format": {"format": "x", "type": "string"}}, "response_format", "format: x"),
        ({"tool_choice": ToolChoice("required", ("x",))}, "tool_choice", "get, get_more, nothing"),
    ],
)
def test_what_cannot_be_followed_is_an_error_that_names_the_field(fields, param, said):
    with pytest.raises(InvalidRequestError, match=said) as caught:
        chat_grammar(TOOLS, **fields)
    assert caught.value.param == param


def test_a_functions_schema_is_named_by_its_place_only_where_it_is_needed():
    bad = FunctionTool(name="bad", parameters={"type": "array", "uniqueItems": True})
    conversation = Conversation(messages=[], tools=[GET, bad])
    assert chat_grammar(conversation) is None
    assert chat_grammar(conversation, tool_choice=ToolChoice("required", ("get",))) is not None
    for params, param in (
        ({}, "tools[1].function.parameters"),
        ({"params": RESPONSES_PARAMS}, "tools[1].parameters"),
    ):
        with pytest.raises(InvalidRequestError, match="uniqueItems") as caught:
            chat_grammar(conversation, tool_choice=REQUIRED, **params)
        assert caught.value.param == param


def test_a_required_call_without_functions_is_an_error():
    with pytest.raises(InvalidRequestError, match="no function is declared"):
        chat_grammar(Conversation(messages=[]), tool_choice=REQUIRED)

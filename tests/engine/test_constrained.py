"""Sequences with a grammar, run by the engine on nano: alone, in company, preempted, one ahead."""

import json
import random
import re

import jsonschema
import pytest

from rose.protocol import FinishReason, Grammar, InvalidRequestError
from rose.server.chat.format import Conversation, FunctionTool, Message, ResponseSchema
from rose.server.grammar import ToolChoice, chat_grammar
from tests.constrained import NanoRuns

WEATHER = FunctionTool(
    name="get_weather",
    description="The weather in a city",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
)
WEATHER_MORE = FunctionTool(
    name="get_weather_of_days",
    description="The weather of the next days",
    parameters={
        "type": "object",
        "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["days"],
    },
)
CLOCK = FunctionTool(name="clock", description="The time")
TOOLS = (WEATHER, WEATHER_MORE, CLOCK)
QUESTIONS = ("What is 12 plus 30?", "Weather in Rome?", "What time is it?", "Hello!", "Sort 3 1 2.")
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def ask(text, **fields):
    return Conversation(messages=[Message(role="user", content=text)], **fields)


def person(text):
    return ask(text, response_schema=ResponseSchema(name="person", schema=PERSON))


@pytest.fixture(scope="module")
def bench():
    return NanoRuns()


def check_call(bench, conversation, ids, allowed):
    turn = bench.turn(conversation, ids)
    (call,) = turn.calls
    tool = next(tool for tool in conversation.tools if tool.name == call.name)
    assert call.name in allowed
    arguments = json.loads(call.arguments)
    assert isinstance(arguments, dict)
    if tool.parameters is None:
        assert arguments == {}
    else:
        jsonschema.validate(arguments, tool.parameters)


def test_a_required_call_is_made_whatever_is_asked_and_its_arguments_validate(bench):
    conversations = [ask(question, tools=TOOLS) for question in QUESTIONS for _ in range(3)]
    keys = [
        (bench.submit(c, chat_grammar(c, tool_choice=ToolChoice("required"))), 0)
        for c in conversations
    ]
    found = bench.run()
    ended = 0
    for key, conversation in zip(keys, conversations, strict=True):
        ids, reason = found[key]
        if reason is FinishReason.STOP:
            ended += 1
            check_call(bench, conversation, ids, {tool.name for tool in TOOLS})
    assert ended >= 0.8 * len(keys)


@pytest.mark.parametrize("name", [tool.name for tool in TOOLS])
def test_a_named_function_is_called_and_no_other(bench, name):
    conversations = [ask(question, tools=TOOLS) for question in QUESTIONS]
    choice = ToolChoice("required", (name,))
    keys = [(bench.submit(c, chat_grammar(c, tool_choice=choice)), 0) for c in conversations]
    found = bench.run()
    ended = [(k, c) for k, c in zip(keys, conversations, strict=True) if found[k][1] == "stop"]
    assert len(ended) >= 4
    for key, conversation in ended:
        check_call(bench, conversation, found[key][0], {name})


def a_schema(rng, depth=0):
    kind = rng.choice(
        ("word", "enum", "integer", "number", "boolean", "null", "pattern", "date", "const", "any")
        if depth == 2
        else (
            "object",
            "array",
            "tuple",
            "maybe",
            "object",
            "array",
            "word",
            "integer",
            "reference",
        )
    )
    inner = [] if depth == 2 else [a_schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    return {
        "word": {"type": "string", "minLength": 1, "maxLength": 12},
        "enum": {"enum": ["red", "blue", 3, None]},
        "integer": {"type": "integer", "minimum": -5, "maximum": rng.randint(0, 5000)},
        "number": {"type": "number", "exclusiveMinimum": 0, "maximum": 10},
        "boolean": {"type": "boolean"},
        "null": {"type": "null"},
        "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
        "date": {"type": "string", "format": "date"},
        "const": {"const": {"a": [1, "é"]}},
        "any": {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 5}]},
        "array": {"type": "array", "items": inner and inner[0], "minItems": 1, "maxItems": 3},
        "tuple": {"type": "array", "prefixItems": inner, "items": False, "minItems": len(inner)},
        "maybe": {"anyOf": [*inner, {"type": "null"}]},
        "reference": {"$ref": "#/$defs/shared"},
        "object": {
            "type": "object",
            "properties": {f"key {n}": schema for n, schema in enumerate(inner)},
            "required": [f"key {n}" for n in range(len(inner)) if rng.random() < 0.7],
            "additionalProperties": False,
        },
    }[kind]


def fifty_schemas():
    rng = random.Random(4)
    shared = {"shared": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}}
    return [
        {
            "$defs": shared,
            "type": "object",
            "properties": {"value": a_schema(rng), "note": {"type": "string", "maxLength": 10}},
            "required": ["value", "note"][: rng.randint(1, 2)],
            "additionalProperties": False,
        }
        for _ in range(50)
    ]


def test_fifty_schemas_are_followed_at_temperature_one(bench):
    schemas = fifty_schemas()
    conversation = ask("Give me a value.")
    keys = [
        (bench.submit(conversation, chat_grammar(conversation, response_format=schema)), 0)
        for schema in schemas
    ]
    found = bench.run()
    ended = 0
    for key, schema in zip(keys, schemas, strict=True):
        ids, reason = found[key]
        if reason is FinishReason.STOP:
            ended += 1
            jsonschema.validate(json.loads(bench.turn(conversation, ids).content), schema)
    assert ended >= 40


def test_any_object_is_one(bench):
    conversation = ask("Give me JSON.")
    grammar = chat_grammar(conversation, response_format="json_object")
    keys = [(bench.submit(conversation, grammar), 0) for _ in range(6)]
    found = bench.run()
    contents = [
        bench.turn(conversation, found[k][0]).content for k in keys if found[k][1] == "stop"
    ]
    assert contents
    assert all(isinstance(json.loads(content), dict) for content in contents)


def test_the_answer_is_the_models_own_where_it_would_follow_the_schema_anyway(bench):
    fields = {"name": {"type": "string"}, "age": {"type": "integer"}}
    schema = PERSON | {"properties": fields}
    conversation = ask(
        "Anna is 31 years old.", response_schema=ResponseSchema(name="person", schema=schema)
    )
    free = bench.submit(conversation, None, temperature=0)
    bound = bench.submit(
        conversation, chat_grammar(conversation, response_format=schema), temperature=0
    )
    found = bench.run()
    assert found[bound, 0] == found[free, 0]
    assert json.loads(bench.turn(conversation, found[bound, 0][0]).content)["name"] == "Anna"


def test_company_with_a_grammar_changes_nothing_for_the_free(bench):
    free = [ask(question) for question in QUESTIONS]
    alone = [(bench.submit(c, None, seed=5), 0) for c in free]
    truth = bench.run()
    mixed = []
    for conversation in free:
        mixed.append((bench.submit(conversation, None, seed=5), 0))
        bound = person(conversation.messages[0].content)
        bench.submit(bound, chat_grammar(bound, response_format=PERSON))
    found = bench.run()
    assert [found[key] for key in mixed] == [truth[key] for key in alone]


def constrained_run(**options):
    bench = NanoRuns(**options)
    people = [person(f"{name} is {n}.") for n, name in enumerate(("Al", "Bo", "Cy"), start=30)]
    calls = [ask(question, tools=TOOLS) for question in QUESTIONS[:2]]
    for c in people:
        bench.submit(c, chat_grammar(c, response_format=PERSON), n=2, max_tokens=120)
        bench.submit(c, None, max_tokens=120)
    for c in calls:
        bench.submit(c, chat_grammar(c, tool_choice=ToolChoice("required")), max_tokens=120)
    return bench, bench.run()


@pytest.fixture(scope="module")
def truth():
    return constrained_run()[1]


def test_one_ahead_or_not_makes_no_difference(truth):
    assert constrained_run(one_ahead=False)[1] == truth


def test_preemption_and_small_chunks_make_no_difference(truth):
    bench, found = constrained_run(
        num_blocks=(60, 60), max_model_len=600, chunk_size=32, max_batched_tokens=64
    )
    assert bench.engine.stats().preemptions > 0
    assert found == truth


def test_sequences_of_one_request_follow_the_grammar_each_by_itself(bench):
    request_id = bench.submit(ask("Hello!"), Grammar(source="start: /[a-z]{9}/"), n=4)
    found = bench.run()
    texts = {bench.text(found[request_id, index][0]) for index in range(4)}
    assert len(texts) > 1
    assert all(re.fullmatch("[a-z]{9}", text) for text in texts)


def test_log_probabilities_are_the_models_own_before_the_grammar(bench):
    conversation = ask("Hello!")
    grammar = Grammar(source='start: "zzz"')
    request_id = bench.submit(conversation, grammar, logprobs=2)
    ids, reason = bench.run()[request_id, 0]
    assert reason is FinishReason.STOP
    first = bench.logprobs[request_id, 0][0]
    assert first.token_id == ids[0]
    assert first.rank > 1
    assert first.logprob < first.top[0][1]
    assert first.top[0][0] != ids[0]


@pytest.mark.parametrize(
    ("grammar", "sampling", "param"),
    [
        ("start: <|nosuch|>", {}, "grammar"),
        ("start: %json {", {}, "grammar"),
        ("start: /a/", {"ignore_eos": True}, "ignore_eos"),
        ("start: /a/", {"min_tokens": 3}, "min_tokens"),
    ],
)
def test_what_cannot_be_followed_is_refused_at_once(bench, grammar, sampling, param):
    with pytest.raises(InvalidRequestError) as caught:
        bench.submit(ask("Hello!"), Grammar(source=grammar), **sampling)
    assert caught.value.param == param
    assert not bench.engine.has_work()


def test_a_grammar_beyond_limits_in_mid_generation_ends_with_an_error(bench):
    # So ambiguous that the parser's rows grow with each letter.
    rules = "".join(f"r{n}: s s | A\n" for n in range(60))
    source = f"start: s\ns: {' | '.join(f'r{n}' for n in range(60))}\n{rules}A: /[a-z]/\n"
    request_id = bench.submit(ask("Hello!"), Grammar(source=source), max_tokens=2000)
    healthy = bench.submit(ask("Hello!"), None, temperature=0)
    found = bench.run()
    assert found[request_id, 0][1] is FinishReason.ERROR
    assert found[healthy, 0][1] is FinishReason.STOP

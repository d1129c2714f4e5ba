"""What is asked: lengths, prompts, prefixes, traces, shares."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rose
from rose.bench.results import BenchError
from rose.bench.serving.lengths import Lengths
from rose.bench.serving.plan import FIRST_ID, Plan
from rose.bench.serving.trace import TraceEntry, load_tokenizer, read_trace

NANO = Path(rose.__file__).parent / "assets" / "nano"


def plan(**changes: object) -> Plan:
    fields = {
        "seed": 7,
        "cell": 0,
        "input": Lengths("fixed", 12),
        "output": Lengths("fixed", 5),
        "vocab_size": 500,
    }
    return Plan(**fields | changes)


@given(
    input_tokens=st.integers(1, 300),
    output_tokens=st.integers(1, 300),
    prefix_tokens=st.integers(0, 50),
    groups=st.integers(1, 4),
    number=st.integers(0, 10**6),
    seed=st.integers(0, 2**40),
)
def test_budgets_are_exact(input_tokens, output_tokens, prefix_tokens, groups, number, seed):
    made = plan(
        input=Lengths("fixed", input_tokens),
        output=Lengths("fixed", output_tokens),
        prefix_tokens=prefix_tokens,
        prefix_groups=groups,
        seed=seed,
    )
    asked = made.request(number)
    assert len(asked.prompt) == prefix_tokens + input_tokens
    assert asked.output_tokens == output_tokens
    assert all(FIRST_ID <= token < 500 for token in asked.prompt)
    assert made.request(number) == asked


def test_prefixes_are_shared_within_a_group_and_with_no_other():
    made = plan(prefix_tokens=20, prefix_groups=3)
    prompts = [tuple(made.request(number).prompt) for number in range(9)]
    heads = [prompt[:20] for prompt in prompts]
    assert heads[0] == heads[3] == heads[6]
    assert len(set(heads)) == 3
    assert len({prompt[20:] for prompt in prompts}) == 9


def test_loads_of_a_run_share_no_prompt():
    first, second = (
        {tuple(plan(cell=cell, prefix_tokens=4).request(n).prompt[:4]) for n in range(50)}
        for cell in (0, 1)
    )
    assert not first & second


def test_words_for_chats():
    made = plan(as_text=True, prefix_tokens=3)
    prompts = [made.request(number).prompt for number in range(2)]
    assert [len(prompt.split()) for prompt in prompts] == [15, 15]
    assert prompts[0].split()[:3] == prompts[1].split()[:3]
    assert prompts[0] != prompts[1]


@pytest.mark.parametrize(
    ("text", "low", "high", "centre"),
    [
        ("64", 64, 64, 64),
        ("uniform:10:20", 10, 20, 15),
        ("normal:512:64", 1, 900, 512),
        ("lognormal:512:0.5", 1, 9000, 512),
        ("normal:2:5", 1, 60, 2),
    ],
)
def test_distributions(text, low, high, centre):
    rng = np.random.default_rng(3)
    lengths = Lengths.parse(text)
    drawn = np.array([lengths.draw(rng) for _ in range(4000)])
    assert low <= drawn.min()
    assert drawn.max() <= high
    assert np.median(drawn) == pytest.approx(centre, rel=0.05)
    if text == "uniform:10:20":
        assert set(drawn) == set(range(10, 21))
    if text == "normal:512:64":
        assert drawn.std() == pytest.approx(64, rel=0.05)
    if text == "lognormal:512:0.5":
        assert np.log(drawn).std() == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    "text",
    ["", "0", "-5", "1.5", "uniform:5", "uniform:9:3", "normal:5", "zipf:1:2", "1e3", "5:6", "nan"],
)
def test_lengths_that_are_none(text):
    with pytest.raises(BenchError, match="lengths"):
        Lengths.parse(text)


@pytest.fixture
def words():
    """A tokenizer of one token a word."""
    return lambda text: [FIRST_ID + len(word) for word in text.split()]


def conversation(*turns: tuple[str, str]) -> dict:
    return {"conversations": [{"from": who, "value": text} for who, text in turns]}


def test_a_sharegpt_trace(tmp_path, words):
    path = tmp_path / "trace.json"
    entries = [
        conversation(("human", "how many petals"), ("gpt", "five or more"), ("human", "thanks")),
        conversation(("gpt", "hello"), ("human", "hi")),  # begins with an answer
        conversation(("human", "alone")),
        conversation(("user", "why"), ("assistant", "who knows")),
        {"input_length": 4, "output_length": 9},
    ]
    path.write_text(json.dumps(entries))
    found = read_trace(path, words, as_text=False)
    assert found == (
        TraceEntry(3, 3, words("how many petals")),
        TraceEntry(1, 2, words("why")),
        TraceEntry(4, 9),
    )
    assert read_trace(path, words, as_text=True)[0].prompt == "how many petals"
    made = plan(trace=found)
    asked = [made.request(number) for number in range(6)]
    # Each entry once, in an order that the seed draws, before any comes again.
    assert sorted((len(a.prompt), a.output_tokens) for a in asked[:3]) == [(1, 2), (3, 3), (4, 9)]
    assert [a.output_tokens for a in asked[:3]] == [a.output_tokens for a in asked[3:]]


def test_a_trace_of_lengths_one_a_line(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"prompt_tokens": 3, "output_tokens": 1}\n\n{"input_length": 5, "output_length": 2}\n'
    )
    assert read_trace(path, None, as_text=False) == (TraceEntry(3, 1), TraceEntry(5, 2))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[", "neither JSON nor JSON lines"),
        ("[]", "no entry"),
        ("[3]", "entry 0: must be an object"),
        ('[{"input_length": 3}]', "needs conversations, or an integer output_length"),
        ('[{"input_length": 3, "output_length": 0}]', "from 1 to"),
        ('[{"input_length": 999999999999, "output_length": 1}]', "from 1 to"),
        (json.dumps([conversation(("human", "a"), ("gpt", "b"))]), "--tokenizer"),
    ],
)
def test_traces_that_are_none(tmp_path, text, told):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(BenchError, match=told):
        read_trace(path, None, as_text=False)
    with pytest.raises(BenchError, match="No such file"):
        read_trace(tmp_path / "none", None, as_text=False)


def test_a_tokenizer_from_a_folder(tmp_path):
    encode, size = load_tokenizer(NANO)
    assert 0 < len(encode("the rose grows")) < 10
    assert 1000 < size <= 2560
    with pytest.raises(BenchError, match="--tokenizer"):
        load_tokenizer(tmp_path)

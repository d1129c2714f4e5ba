"""Masks of slots: only tokens that the grammar allows, in step with each sequence's own history."""

import json
import random
from pathlib import Path

import jsonschema
import pytest
import torch

from rose.core.step import NewSequence, ScheduledSequence, SchedulerOutput
from rose.protocol import Grammar, SamplingParams
from rose.server.detokenize import TextCodec
from rose.worker.grammar import MAX_COMPILED, SlotGrammars

NANO = Path(__file__).parents[2] / "rose" / "assets" / "nano"
VOCAB, EOS = 2560, (2553, 2552, 2559)
PROMPT = [1, 2, 3]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "tags": {"type": "array", "items": {"enum": ["a", "é", 7]}, "maxItems": 3},
        "size": {"type": "number", "minimum": 0, "maximum": 99},
        "more": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def codec():
    return TextCodec.load(NANO)


@pytest.fixture
def grammars():
    return SlotGrammars(NANO / "tokenizer.json", vocab_size=VOCAB, eos_token_ids=EOS)


def admit(grammars, slot, source, output=()):
    ids = [*PROMPT, *output]
    grammar = source and Grammar(source=source)
    grammars.admit(NewSequence(slot, slot, ids, len(PROMPT), SamplingParams(), 0, EOS, grammar))
    return ids


def allowed_of(masks, rows):
    masked, failed = masks.apply(torch.zeros(rows, VOCAB))
    assert not failed
    return [row.isfinite().nonzero().flatten().tolist() for row in masked]


def step_of(*rows):
    return SchedulerOutput(0, sequences=list(rows))


def row_of(slot, ids, known=None):
    return ScheduledSequence(slot, slot, len(ids) - 1, 1, True, None, known)


def walk(grammars, rng, slot, length):
    """Follow the masks at random; returns the ids before the end token, or None if too long."""
    ids, known = admit(grammars, slot, f"start: %json {json.dumps(SCHEMA)}"), None
    for _ in range(length):
        (allowed,) = allowed_of(grammars.start(step_of(row_of(slot, ids, known))), 1)
        # Ends where it may and closes what it can, or most walks would never end.
        ends = [token for token in allowed if token in EOS]
        ids.append(rng.choice(ends or allowed))
        if ends:
            return ids[len(PROMPT) : -1]
        known = [ids[-1]]
    return None


def test_whatever_the_masks_allow_is_a_value_of_the_schema(grammars, codec):
    rng = random.Random(1)
    ended = 0
    for slot in range(60):
        ids = walk(grammars, rng, slot, 120)
        if ids is not None:
            ended += 1
            text = b"".join(codec.token_bytes(token) for token in ids).decode()
            jsonschema.validate(json.loads(text), SCHEMA)
    assert ended >= 20


def test_rows_without_a_grammar_are_left_as_they_are(grammars):
    admit(grammars, 0, "start: /[a-c]+/")
    admit(grammars, 1, None)
    logits = torch.randn(3, VOCAB)
    step = step_of(row_of(1, PROMPT), row_of(0, PROMPT), row_of(2, PROMPT))
    masked, _ = grammars.start(step).apply(logits)
    assert torch.equal(masked[[0, 2]], logits[[0, 2]])
    finite = masked[1].isfinite()
    assert 3 <= finite.sum() < 40
    assert torch.equal(masked[1][finite], logits[1][finite])


def test_a_step_without_constrained_rows_costs_no_mask(grammars):
    assert grammars.start(step_of(row_of(0, PROMPT))) is None
    admit(grammars, 0, "start: /a/")
    assert grammars.start(step_of(row_of(1, PROMPT))) is None
    chunk = ScheduledSequence(0, 0, 0, 2, False, ((0,), (0,)))
    assert grammars.start(step_of(chunk)) is None
    admit(grammars, 0, None)
    assert grammars.start(step_of(row_of(0, PROMPT))) is None


def test_a_slot_taken_again_with_its_output_goes_on_where_it_was(grammars, codec):
    source = 'start: "abc" /[0-9]+/ "z"'
    output = codec.encode_plain("abc12")
    ids = admit(grammars, 0, source)
    for n, token in enumerate(output):
        known = None if n == 0 else [ids[-1]]
        (allowed,) = allowed_of(grammars.start(step_of(row_of(0, ids, known))), 1)
        assert token in allowed
        ids.append(token)
    (stepwise,) = allowed_of(grammars.start(step_of(row_of(0, ids, [ids[-1]]))), 1)

    again = admit(grammars, 5, source, output)
    (at_once,) = allowed_of(grammars.start(step_of(row_of(5, again))), 1)
    assert at_once == stepwise
    assert all(codec.token_bytes(token)[:1] in b"0123456789z" for token in at_once)


def test_known_ids_that_were_told_before_are_not_read_twice(grammars, codec):
    a, b = codec.encode_plain("a"), codec.encode_plain("b")
    admit(grammars, 0, 'start: "ab" "c"', a + b)
    # The last chunk after a preemption: its ids came with the slot.
    chunk = ScheduledSequence(0, 0, 2, 3, True, None, [PROMPT[-1], *a, *b])
    (allowed,) = allowed_of(grammars.start(step_of(chunk)), 1)
    assert allowed == codec.encode_plain("c")


def test_a_row_that_broke_its_grammar_is_reported_and_its_neighbour_masked(grammars, codec):
    admit(grammars, 0, 'start: "a"', codec.encode_plain("z"))
    admit(grammars, 1, 'start: "a"')
    masks = grammars.start(step_of(row_of(0, [*PROMPT, 0]), row_of(1, PROMPT)))
    masked, failed = masks.apply(torch.zeros(2, VOCAB))
    assert failed == {0}
    assert masked[0].isfinite().all()
    assert masked[1].isfinite().nonzero().flatten().tolist() == codec.encode_plain("a")


def test_more_grammars_than_are_kept_still_work(grammars):
    for n in range(MAX_COMPILED + 3):
        grammars.check(Grammar(source=f'start: "{n}"'))
    admit(grammars, 0, 'start: "0"')
    (allowed,) = allowed_of(grammars.start(step_of(row_of(0, PROMPT))), 1)
    assert len(allowed) == 1

"""Messages survive the wire, and what is no message is refused with the reason."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rose import protocol, wire

INFO = protocol.EngineInfo(
    model="m",
    model_path="/m",
    max_model_len=64,
    vocab_size=300,
    eos_token_ids=(1, 2),
    max_num_seqs=8,
    description="cpu",
)
LOGPROBS = [protocol.TokenLogprobs(5, -0.5, 1, [(5, -0.5), (6, -1.5)])]
MESSAGES = [
    protocol.Request(
        request_id="r",
        prompt_token_ids=[1, 2, 3],
        sampling=protocol.SamplingParams(
            n=2, max_tokens=3, seed=7, logit_bias={5: -1.5}, stop_token_ids=(9,), logprobs=0
        ),
        priority=-3,
    ),
    protocol.Abort("r"),
    protocol.Abort("r", 2),
    protocol.Hello(),
    protocol.Shutdown(),
    INFO,
    protocol.OutputBatch(
        [
            protocol.RequestOutput("r", 0, [5], None, LOGPROBS, LOGPROBS, 3, 2),
            protocol.RequestOutput("r", 1, [], protocol.FinishReason.ABORT),
        ]
    ),
    protocol.Rejected("r", "too long", "prompt"),
    protocol.Heartbeat(protocol.EngineStats(running=1, kv_blocks_used=(1, 2))),
    protocol.EngineFailed("boom"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_message_comes_back_equal(message):
    back = wire.decode(wire.encode(message))
    assert back == message
    assert type(back) is type(message)


def test_every_protocol_message_has_a_case():
    assert {type(m) for m in MESSAGES} == set(wire._TYPES)


@given(
    ids=st.lists(st.integers(0, 2**31)),
    temperature=st.floats(0, 1e6),
    seed=st.none() | st.integers(0, 2**63 - 1),
    bias=st.dictionaries(st.integers(0, 2**20), st.floats(-100, 100)),
)
def test_requests_come_back_equal(ids, temperature, seed, bias):
    sampling = protocol.SamplingParams(temperature=temperature, seed=seed, logit_bias=bias)
    request = protocol.Request(request_id="é", prompt_token_ids=ids, sampling=sampling)
    assert wire.decode(wire.encode(request)) == request


def test_no_message_is_refused_on_the_way_out():
    with pytest.raises(wire.WireError, match="SamplingParams is no message"):
        wire.encode(protocol.SamplingParams())


def test_integers_beyond_64_bits_are_refused_on_the_way_out():
    with pytest.raises(wire.WireError, match="does not fit in 64 bits"):
        wire.encode(protocol.Request(request_id="r", prompt_token_ids=[2**64]))


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ([b"Hello/1"], "2 frames"),
        ([b"Bogus/1", b""], "unknown message kind 'Bogus/1'"),
        ([b"\xff\xfe", b""], "unknown message kind"),
        ([b"Hello/9", b"\x80"], "version 9; this side speaks version 1"),
        ([b"Abort/1", b"\x80"], "malformed Abort/1"),
        ([b"Abort/1", b"\xc1"], "malformed Abort/1"),
    ],
)
def test_frames_that_are_no_message_are_refused(frames, says):
    with pytest.raises(wire.WireError, match=says):
        wire.decode(frames)


def test_values_out_of_range_are_refused_on_the_way_in():
    payload = {"request_id": "r", "prompt_token_ids": [1], "sampling": {"temperature": -1.0}}
    with pytest.raises(wire.WireError, match="temperature must be a finite number"):
        wire.decode([b"Request/1", msgspec.msgpack.encode(payload)])

"""The protocol's own checks: every bad value is refused by name."""

import math

import pytest

from rose.protocol import InvalidRequestError, SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", True),
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("max_tokens", 1.5),
        ("min_tokens", -1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("temperature", 10**400),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("presence_penalty", math.nan),
        ("presence_penalty", -(10**400)),
        ("frequency_penalty", math.inf),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {3: math.nan}),
        ("seed", -1),
        ("seed", 2**63),
        ("stop_token_ids", (-1,)),
        ("logprobs", -1),
        ("prompt_logprobs", -2),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(InvalidRequestError) as refused:
        SamplingParams(**{field: value})
    assert refused.value.param == field
    assert field in refused.value.message


def test_min_tokens_may_not_exceed_max_tokens():
    with pytest.raises(InvalidRequestError, match=r"min_tokens \(5\)"):
        SamplingParams(min_tokens=5, max_tokens=4)


def test_limits_themselves_are_allowed():
    SamplingParams(temperature=0.0, top_p=1.0, min_p=1.0, seed=2**63 - 1, logprobs=0, min_tokens=0)

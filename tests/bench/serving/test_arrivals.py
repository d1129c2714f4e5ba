"""When requests are due."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rose.bench.serving.arrivals import Extent, OpenLoop


def test_poisson_gaps_are_exponential_and_independent():
    gaps = np.diff(OpenLoop(8.0).due(Extent(requests=20_000, duration=None), seed=1), prepend=0.0)
    assert gaps.mean() == pytest.approx(1 / 8, rel=0.03)
    assert stats.kstest(gaps, "expon", args=(0, 1 / 8)).pvalue > 0.01
    # What equal gaps would fail: the number in a second is as variable as its mean.
    counts = np.bincount(np.cumsum(gaps).astype(int))[:-1]
    assert counts.var() == pytest.approx(8.0, rel=0.1)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.03


def test_equal_gaps():
    due = OpenLoop(4.0, poisson=False).due(Extent(requests=9000, duration=None), seed=1)
    assert due[0] == 0
    np.testing.assert_allclose(np.diff(due), 0.25, rtol=1e-9)


@given(
    rate=st.floats(0.5, 500),
    poisson=st.booleans(),
    requests=st.none() | st.integers(1, 9000),
    duration=st.none() | st.floats(0.1, 20),
    warmup=st.integers(0, 5000),
    seed=st.integers(0, 2**32),
)
def test_as_many_as_asked_within_the_time_asked(rate, poisson, requests, duration, warmup, seed):
    if requests is None and duration is None:
        return
    extent = Extent(requests=requests, duration=duration, warmup=warmup)
    due = OpenLoop(rate, poisson).due(extent, seed)
    assert (np.diff(due) >= 0).all()
    assert len(due) > warmup
    measured = due[warmup:]
    if duration is None:
        assert len(measured) == requests
        return
    assert measured[-1] - measured[0] < duration
    # It ended for a reason: another one would have been too many, or too late.
    more = OpenLoop(rate, poisson).due(Extent(requests=len(due) + 1, duration=None), seed)
    np.testing.assert_array_equal(more[: len(due)], due)
    assert len(measured) == requests or more[len(due)] - measured[0] >= duration


def test_a_seed_says_all():
    extent = Extent(requests=100, duration=None)
    same, again, other = (OpenLoop(3.0).due(extent, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(same, again)
    assert (same != other).all()


def test_an_extent_without_bounds_is_none():
    with pytest.raises(ValueError, match="requests, duration or both"):
        Extent(requests=None, duration=None)

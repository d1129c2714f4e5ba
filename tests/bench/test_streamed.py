"""Steady steps out of one sequence's stream."""

import pytest

from rose.bench.streamed import Told, steady_steps
from rose.bench.subject import DoesNotFitError

MOST = 20


def test_steps_begin_when_the_last_sequence_has_begun():
    told = [Told(0.0, 0, 1), Told(1.0, 1, 1), Told(2.0, 2, 1)]
    told += [Told(2.0 + n, 2, n + 1) for n in range(1, 18)]
    told += [Told(20.5, 0, MOST), Told(21.0, 2, 19), Told(22.0, 2, 20), Told(22.0, 1, MOST)]
    samples, contexts = steady_steps(told, 3, most=MOST, warmup=2, steps=10)
    assert samples == [1.0] * 10
    # Sequence 0 had its 20 when the streamed one had 18: it was two ahead.
    assert contexts == (3, 3 + 2)


def test_the_streamed_sequence_need_not_be_the_last_to_begin():
    told = [Told(float(n), 1, n) for n in range(1, 6)] + [Told(5.5, 0, 1)]
    told += [Told(float(n), 1, n) for n in range(6, MOST + 1)] + [Told(30.0, 0, MOST)]
    samples, contexts = steady_steps(told, 2, most=MOST, warmup=0, steps=15)
    assert samples == [1.0] * 15
    assert contexts[0] == 5
    with pytest.raises(DoesNotFitError):
        steady_steps(told, 2, most=MOST, warmup=0, steps=16)


def test_tokens_that_arrive_together_are_as_many_steps():
    told = [Told(1.0, 0, 1), Told(3.0, 0, 3), Told(4.0, 0, 4), Told(10.0, 0, 7)]
    samples, contexts = steady_steps(told, 1, most=7, warmup=0, steps=6)
    assert samples == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    assert contexts == (1, 1)


def test_sequences_that_did_not_run_side_by_side():
    one_by_one = [Told(0.0, 0, 1), Told(5.0, 0, MOST)]
    one_by_one += [Told(5.0 + n, 1, n) for n in range(1, MOST + 1)]
    with pytest.raises(DoesNotFitError, match="the 2 sequences did not run side by side for 3"):
        steady_steps(one_by_one, 2, most=MOST, warmup=0, steps=3)
    never = [Told(float(n), 1, n) for n in range(1, MOST + 1)]
    with pytest.raises(DoesNotFitError):
        steady_steps(never, 2, most=MOST, warmup=0, steps=3)


def test_a_stream_that_ends_too_soon():
    alone = [Told(float(n), 0, n) for n in range(1, 6)]
    assert steady_steps(alone, 1, most=5, warmup=0, steps=4)[0] == [1.0] * 4
    with pytest.raises(DoesNotFitError):
        steady_steps(alone, 1, most=5, warmup=0, steps=5)

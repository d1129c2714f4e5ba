"""Stepping an engine: what is timed, and what is told when a batch does not run together."""

import pytest

from rose.bench import subject
from rose.bench.subject import DoesNotFitError, time_steps, time_to_first_tokens


class Scripted:
    """A Stepper whose steps are given, each as the indices that get a token; its own clock."""

    def __init__(self, steps, seconds=1.0):
        self.steps, self.seconds, self.now = iter(steps), seconds, 0.0
        self.submitted, self.dropped = None, 0

    def submit(self, prompts, max_tokens):
        self.submitted = (len(prompts), max_tokens)

    def step(self):
        self.now += self.seconds
        return next(self.steps)

    def drop(self):
        self.dropped += 1


@pytest.fixture
def scripted(monkeypatch):
    def make(steps, seconds=1.0):
        stepper = Scripted(steps, seconds)
        monkeypatch.setattr(subject.time, "perf_counter", lambda: stepper.now)
        return stepper

    return make


def test_the_last_of_the_first_tokens_counts(scripted):
    stepper = scripted([[], [0], [], [1, 0], [2]], seconds=0.5)
    assert time_to_first_tokens(stepper, [[1], [2], [3]]) == 2.5
    assert stepper.submitted == (3, 1)


def test_steps_are_timed_once_all_sequences_have_decoded_together(scripted):
    steps = [[], [0], [0], [0, 1], *[[0, 1]] * 2, *[[1, 0]] * 3]
    stepper = scripted(steps)
    run = time_steps(stepper, [[7] * 10] * 2, warmup=2, steps=3, ramp=8)
    assert run.samples == [1.0, 1.0, 1.0]
    # Three tokens before the second began, and two of warm-up.
    assert run.contexts == (10 + 1 + 2, 10 + 3 + 2)
    assert stepper.submitted == (2, 8 + 2 + 3 + 1)
    assert stepper.dropped == 1
    assert next(stepper.steps, None) is None


def test_a_result_that_is_not_due_belongs_to_the_next_sample(scripted):
    stepper = scripted([[0], [0], [], [], [0], [0]])
    assert time_steps(stepper, [[7]], warmup=1, steps=2, ramp=4).samples == [3.0, 1.0]


def test_sequences_that_never_run_together(scripted):
    stepper = scripted([[0]] * 99)
    with pytest.raises(DoesNotFitError, match="only 1 of 2 sequences came to run at once"):
        time_steps(stepper, [[7]] * 2, warmup=0, steps=1, ramp=5)
    assert stepper.dropped == 1


def test_a_sequence_that_is_preempted(scripted):
    stepper = scripted([[0, 1], [0, 1], [0]])
    with pytest.raises(DoesNotFitError, match="a step ran 1 of 2 sequences"):
        time_steps(stepper, [[7]] * 2, warmup=0, steps=5, ramp=5)
    assert stepper.dropped == 1


def test_an_interrupt_leaves_nothing_in_flight(scripted):
    def interrupted():
        yield [0]
        raise KeyboardInterrupt

    stepper = scripted(interrupted())
    with pytest.raises(KeyboardInterrupt):
        time_steps(stepper, [[7]], warmup=0, steps=5, ramp=5)
    assert stepper.dropped == 1

import itertools

import pytest

from rose.core.sequence import (
    IllegalTransitionError,
    SequenceStatus,
    make_sequences,
    sequence_seed,
)
from rose.core.waiting_queue import WaitingQueue
from rose.protocol import SEED_LIMIT, Request, SamplingParams, TokenLogprobs

WAITING, RUNNING, FINISHED = SequenceStatus
LEGAL = {(WAITING, RUNNING), (RUNNING, WAITING), (WAITING, FINISHED), (RUNNING, FINISHED)}


def make(prompt=(1, 2, 3), eos=(9,), longest=100, **sampling):
    request = Request(
        request_id="r", prompt_token_ids=list(prompt), sampling=SamplingParams(**sampling)
    )
    return make_sequences(request, first_id=5, seed=3, eos_token_ids=eos, longest=longest)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(SequenceStatus, repeat=2)))
def test_only_legal_transitions(before, after):
    (sequence,) = make()
    sequence.status = before
    if (before, after) in LEGAL:
        sequence.change_status(after)
        assert sequence.status is after
    else:
        with pytest.raises(IllegalTransitionError, match=f"is {before.value} and cannot"):
            sequence.change_status(after)
        assert sequence.status is before


def test_seeds_differ_by_index_and_by_seed():
    seeds = [sequence_seed(seed, index) for seed in range(100) for index in range(100)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < SEED_LIMIT for seed in seeds)
    # Each bit is set about half of the time.
    counts = [sum(seed >> bit & 1 for seed in seeds) for bit in range(63)]
    assert all(4700 < count < 5300 for count in counts)
    assert sequence_seed(SEED_LIMIT - 1, 0) != sequence_seed(SEED_LIMIT - 1, 1)


def test_siblings_share_nothing_mutable():
    a, b = make(n=2)
    a.token_ids.append(7)
    assert b.token_ids == [1, 2, 3]
    assert a.table is not b.table
    assert (a.sequence_id, b.sequence_id) == (5, 6)
    assert (a.index, b.index) == (0, 1)
    assert a.seed != b.seed


def test_stop_ids_and_length_limit():
    assert make(stop_token_ids=(4, 9))[0].stop_token_ids == (4, 9)
    assert make(stop_token_ids=(4,), ignore_eos=True)[0].stop_token_ids == (4,)
    assert make()[0].length_limit == 100
    assert make(max_tokens=7)[0].length_limit == 10


def test_prompt_logprobs_are_collected_by_position_and_taken_once():
    sequence, sibling = make(prompt=[1, 2, 3, 4], n=2, prompt_logprobs=0)
    entry = [TokenLogprobs(i, -float(i), 1, []) for i in range(4)]
    assert sibling.sampling.prompt_logprobs is None
    assert sibling.take_prompt_logprobs() is None
    sequence.collect_prompt_logprobs(0, entry[1:3])
    with pytest.raises(RuntimeError, match="2 prompt logprobs arrived for 3"):
        sequence.take_prompt_logprobs()
    sequence.collect_prompt_logprobs(0, entry[1:3])  # again, after a preemption
    sequence.collect_prompt_logprobs(2, entry[3:])
    assert sequence.take_prompt_logprobs() == entry[1:]
    assert sequence.sampling.prompt_logprobs is None
    assert sequence.take_prompt_logprobs() is None


def test_waiting_queue_orders_by_key_and_forgets_the_finished():
    queue = WaitingQueue()
    sequences = make(n=9)
    for sequence in sequences:
        sequence.queue_key = (-sequence.index, 0, sequence.index)
        queue.push(sequence)
    for sequence in sequences[4:]:
        sequence.change_status(FINISHED)
        queue.discard()
    assert len(queue) == 4
    order = []
    while (sequence := queue.peek()) is not None:
        order.append(sequence.index)
        queue.pop()
    assert order == [3, 2, 1, 0]
    assert len(queue) == 0

"""Sequences with a grammar: they run only when all their ids are known."""

from rose.config import CacheConfig, SchedulerConfig
from rose.core.scheduler import Scheduler
from rose.core.sequence import make_sequences
from rose.core.step import ModelRunnerOutput
from rose.protocol import FinishReason, Grammar, Request, SamplingParams

FREE, CONSTRAINED = 0, 1
GRAMMAR = Grammar(source="start: /a*/")


def scheduler_with(*, chunk=8, blocks=32, prompts=((1, 2, 3), (4, 5, 6, 7, 8))):
    scheduler = Scheduler(
        SchedulerConfig(max_num_seqs=4, max_batched_tokens=64, chunk_size=chunk),
        CacheConfig(block_size=4, num_blocks=(blocks, 32), window=4, prefix_cache=False),
    )
    for sequence_id, (prompt, grammar) in enumerate(zip(prompts, (None, GRAMMAR), strict=True)):
        request = Request(
            request_id=str(sequence_id),
            prompt_token_ids=list(prompt),
            sampling=SamplingParams(max_tokens=20),
            grammar=grammar,
        )
        scheduler.add(
            make_sequences(request, first_id=sequence_id, seed=0, eos_token_ids=(), longest=28)
        )
    return scheduler


def ran(step):
    return {row.sequence_id: row for row in step.sequences}


def result(step, token, **fields):
    ids = [[token] for row in step.sequences if row.samples]
    return ModelRunnerOutput(step.step_id, ids, **fields)


def test_the_constrained_one_waits_for_its_id_and_the_other_runs_ahead():
    scheduler = scheduler_with()
    first = scheduler.schedule()
    assert [new.grammar for new in first.new_sequences] == [None, GRAMMAR]
    assert [row.known_ids for row in first.sequences] == [None, None]
    ahead = scheduler.schedule()
    assert set(ran(ahead)) == {FREE}

    scheduler.update(first, result(first, 9))
    both = scheduler.schedule()

    assert set(ran(both)) == {FREE, CONSTRAINED}
    assert ran(both)[CONSTRAINED].known_ids == [9]
    assert ran(both)[FREE].known_ids is None
    scheduler.check_integrity()


def test_chunks_of_a_constrained_prompt_follow_without_waiting():
    scheduler = scheduler_with(chunk=2)
    rows = [ran(scheduler.schedule())[CONSTRAINED] for _ in range(3)]
    assert [(row.start, row.num_tokens, row.samples) for row in rows] == [
        (0, 2, False), (2, 2, False), (4, 1, True)
    ]  # fmt: skip
    assert CONSTRAINED not in ran(scheduler.schedule())


def test_after_preemption_all_ids_come_with_the_new_slot():
    scheduler = scheduler_with(blocks=9)
    known, admitted = [4, 5, 6, 7, 8], []
    in_flight = None
    while scheduler.has_sequences():
        step = scheduler.schedule()
        for new in step.new_sequences:
            if new.sequence_id == CONSTRAINED:
                assert new.token_ids == known
                admitted.append(new)
        if in_flight is not None:
            token = 100 + in_flight.step_id
            row = ran(in_flight).get(CONSTRAINED)
            if row is not None and row.samples:
                known.append(token)
            scheduler.update(in_flight, result(in_flight, token))
        in_flight = step if step.sequences else None
    assert scheduler.stats().preemptions >= 1
    assert [new.grammar for new in admitted] == [GRAMMAR] * len(admitted)
    assert len(admitted[-1].token_ids) > 5


def test_a_sequence_whose_grammar_failed_ends_with_an_error_and_the_others_go_on():
    scheduler = scheduler_with()
    step = scheduler.schedule()
    outputs = scheduler.update(step, result(step, 9, failed=frozenset({CONSTRAINED})))
    free, failed = outputs
    assert (failed.token_ids, failed.finish_reason) == ([], FinishReason.ERROR)
    assert (free.token_ids, free.finish_reason) == ([9], None)
    scheduler.check_integrity()
    assert set(ran(scheduler.schedule())) == {FREE}

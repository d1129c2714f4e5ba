import pytest

from rose.config import CacheConfig, ConfigError
from rose.core.block_pool import IntegrityError
from rose.core.step import ModelRunnerOutput
from rose.protocol import FinishReason, TokenLogprobs
from tests.core.scheduler_driver import STOP, Driver, shape


def test_a_step_does_not_change_after_it_was_made():
    driver = Driver()
    driver.add("a", 4)
    step = driver.schedule()
    driver.update(step)
    assert step.new_sequences[0].token_ids == [0, 1, 2, 3]


def test_long_prompt_runs_in_chunks_and_then_decodes_one_ahead():
    driver = Driver()
    driver.add("a", 35)
    steps = [driver.schedule() for _ in range(4)]
    assert [shape(s) for s in steps] == [
        [(0, 16, False)],
        [(16, 16, False)],
        [(32, 3, True)],
        [(35, 1, True)],  # its input id is still pending
    ]
    assert [len(s.new_sequences) for s in steps] == [1, 0, 0, 0]
    assert steps[1].sequences[0].new_blocks is not None
    assert steps[3].sequences[0].new_blocks is None
    for step in steps[:2]:
        assert driver.update(step) == []
    (output,) = driver.update(steps[2], [5])
    assert (output.token_ids, output.num_prompt_tokens) == ([5], 35)


def test_decodes_run_whatever_the_prompts():
    driver = Driver(max_batched_tokens=8, chunk_size=8)
    driver.add("a", 4)
    driver.update(driver.schedule())
    driver.add("b", 20)
    driver.add("c", 20)
    for _ in range(3):
        step = driver.schedule()
        assert step.num_tokens <= 8
        assert driver.names(step)[0] == "a"
        assert sum(name == "a" for name in driver.names(step)) == 1
        driver.update(step)


def test_decodes_keep_their_token_behind_a_prompt_that_goes_first():
    driver = Driver(max_num_seqs=4, max_batched_tokens=8, chunk_size=8)
    driver.add("a", [1])
    driver.add("b", [2])
    driver.update(driver.schedule())
    driver.add("urgent", [3] * 20, priority=-1)
    assert shape(driver.schedule())[2] == (0, 6, False)
    step = driver.schedule()
    assert driver.names(step) == ["urgent", "a", "b"]
    assert [row.num_tokens for row in step.sequences] == [6, 1, 1]


def test_a_chunk_cut_to_crumbs_waits():
    driver = Driver(max_batched_tokens=16, chunk_size=16)  # an even share is 4 tokens
    driver.add("a", 14)
    driver.add("b", [50] * 20)
    step = driver.schedule()
    assert shape(step) == [(0, 14, True)]
    driver.update(step)
    assert shape(driver.schedule()) == [(14, 1, True), (0, 15, False)]


def test_not_scheduled_past_max_tokens_while_ids_are_pending():
    driver = Driver()
    driver.add("a", 4, max_tokens=2)
    one, two, three = driver.schedule(), driver.schedule(), driver.schedule()
    assert shape(two) == [(4, 1, True)]
    assert three.sequences == []
    driver.update(one)
    assert driver.schedule().sequences == []
    (output,) = driver.update(two)
    assert output.finish_reason is FinishReason.LENGTH
    assert not driver.scheduler.has_sequences()
    assert driver.scheduler.stats().kv_blocks_used == (0, 0)


def test_stop_token_makes_the_row_in_flight_void():
    driver = Driver()
    driver.add("a")
    driver.add("b", [5, 6])
    one = driver.schedule()
    two = driver.schedule()
    outputs = driver.update(one, [STOP], [7])
    assert [(o.request_id, o.finish_reason) for o in outputs] == [
        ("a", FinishReason.STOP),
        ("b", None),
    ]
    driver.add("c")  # takes a's slot while the void row is in flight
    three = driver.schedule()
    outputs = driver.update(two, [8], [9])
    assert [(o.request_id, o.token_ids) for o in outputs] == [("b", [9])]
    assert {o.request_id for o in driver.update(three)} == {"b", "c"}


def test_stop_ids_before_min_tokens_do_not_stop():
    driver = Driver()
    driver.add("a", 4, min_tokens=2, max_tokens=5)
    reasons = [driver.update(driver.schedule(), [STOP])[0].finish_reason for _ in range(3)]
    assert reasons == [None, None, FinishReason.STOP]


def test_ignore_eos_keeps_own_stop_ids():
    driver = Driver()
    driver.add("a", 4, ignore_eos=True, stop_token_ids=(50,))
    assert driver.update(driver.schedule(), [STOP])[0].finish_reason is None
    assert driver.update(driver.schedule(), [50])[0].finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("ids", "kept", "reason"),
    [
        ([1, STOP, 2], [1, STOP], FinishReason.STOP),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4], FinishReason.LENGTH),
        ([1, 2, 3, STOP], [1, 2, 3, STOP], FinishReason.STOP),
        ([1, 2], [1, 2], None),
    ],
)
def test_several_accepted_ids_are_cut_where_the_sequence_ends(ids, kept, reason):
    driver = Driver(one_ahead=False)
    driver.add("a", 4, max_tokens=4, logprobs=0)
    entries = [TokenLogprobs(i, 0.0, 1, []) for i in ids]
    (output,) = driver.update(driver.schedule(), ids, logprobs={0: entries})
    assert (output.token_ids, output.finish_reason) == (kept, reason)
    assert [entry.token_id for entry in output.logprobs] == kept
    if reason is None:
        assert shape(driver.schedule()) == [(4, 2, True)]


def test_a_sampling_row_without_ids_is_an_error():
    driver = Driver()
    driver.add("a")
    with pytest.raises(ValueError, match="got no id"):
        driver.update(driver.schedule(), [])


def test_result_of_another_step_is_an_error():
    driver = Driver()
    driver.add("a")
    step = driver.schedule()
    with pytest.raises(ValueError, match="result of step 3 given for step 0"):
        driver.scheduler.update(step, ModelRunnerOutput(3, [[1]]))


def test_priority_is_worth_so_many_arrivals():
    driver = Driver(max_num_seqs=1, max_batched_tokens=32, priority_aging=2)
    driver.add("running")
    driver.update(driver.schedule())
    for name, priority in (("low", 1), ("b", 0), ("c", 0), ("d", 0), ("high", -1)):
        driver.add(name, priority=priority)
    # Keys: low 1+2, b 2, c 3, d 4, high 5-2.
    order = []
    for _ in range(6):
        (name,) = driver.names(step := driver.schedule())
        order.append(name)
        driver.update(step, [STOP])
    assert order == ["running", "b", "low", "c", "high", "d"]


def test_low_priority_is_served_under_a_stream_of_better_ones():
    driver = Driver(max_num_seqs=1, max_batched_tokens=32, priority_aging=5)
    driver.add("patient", priority=3)
    for number in range(40):
        driver.add(f"pushy{number}a")
        driver.add(f"pushy{number}b")
        outputs = driver.update(driver.schedule(), [STOP])
        if outputs[0].request_id == "patient":
            break
    assert number == 14  # arrivals 1 to 14 have lower keys than 3 * 5


def test_one_that_does_not_fit_holds_up_those_behind_it():
    cache = CacheConfig(block_size=4, num_blocks=(10, 64), window=8)
    driver = Driver(cache)
    driver.add("a", list(range(16)))
    driver.update(driver.schedule())
    driver.add("big", list(range(100, 124)))
    driver.add("small", [50])
    # a holds 5 blocks; big needs 6.
    step = driver.schedule()
    assert driver.names(step) == ["a"]
    assert driver.update(step, [STOP])
    assert driver.names(driver.schedule()) == ["big", "small"]


def test_admission_beside_others_leaves_the_watermark_free():
    for blocks, admitted in ((5, False), (6, True)):
        driver = Driver(CacheConfig(block_size=4, num_blocks=(blocks, 64), window=8))
        driver.add("a", list(range(6)))  # 2 blocks
        driver.update(driver.schedule())
        driver.add("b", list(range(100, 112)))  # 3 blocks
        assert driver.names(driver.schedule()) == ["a", "b"][: 1 + admitted]


def test_a_prompt_waits_until_its_window_fits_and_not_only_its_first_chunk():
    cache = CacheConfig(block_size=4, num_blocks=(64, 6), window=8)
    driver = Driver(cache, chunk_size=4)
    driver.add("a", [1] * 16)
    driver.update(driver.schedule())
    driver.add("b", [2] * 16)
    # b takes 1 sliding block at first and 4 before long; beside a, 1 more stays free.
    assert driver.names(driver.schedule()) == ["a"]
    assert driver.names(driver.schedule()) == ["a"]
    driver.scheduler.abort("a")
    assert driver.names(driver.schedule()) == ["b"]


def test_alone_a_sequence_may_take_the_whole_cache():
    driver = Driver(CacheConfig(block_size=4, num_blocks=(4, 64), window=8))
    driver.add("a", 15)
    assert shape(driver.schedule()) == [(0, 15, True)]
    assert driver.scheduler.stats().kv_blocks_used == (4, 4)


def test_preemption_takes_the_worst_key_and_keeps_its_sampled_ids():
    cache = CacheConfig(block_size=4, num_blocks=(5, 64), window=8, prefix_cache=False)
    driver = Driver(cache)
    driver.add("a", [1] * 7, max_tokens=8)
    driver.add("b", [2] * 6, max_tokens=8)
    one = driver.schedule()
    assert driver.names(one) == ["a", "b"]  # 4 of 5 blocks
    two = driver.schedule()
    assert shape(two) == [(7, 1, True), (6, 1, True)]
    three = driver.schedule()  # a takes the last block
    assert shape(three) == [(8, 1, True), (7, 1, True)]
    four = driver.schedule()  # b needs one, and is itself the worst
    assert driver.names(four) == ["a"]
    assert driver.scheduler.stats().preemptions == 1
    assert driver.scheduler.stats().waiting == 1
    for step in (one, two):
        driver.update(step)
    driver.scheduler.abort("a")
    assert driver.schedule().sequences == []  # b would fit, but its third id is pending
    (output,) = driver.update(three, [7], [8])
    assert (output.request_id, output.token_ids) == ("b", [8])
    again = driver.schedule()
    assert shape(again) == [(0, 9, True)]
    assert again.new_sequences[0].token_ids == [2, 2, 2, 2, 2, 2, 7, 7, 8]
    assert again.new_sequences[0].num_prompt_tokens == 6


def test_preempted_sequence_can_finish_while_it_waits():
    cache = CacheConfig(block_size=4, num_blocks=(5, 64), window=8)
    driver = Driver(cache)
    driver.add("a", [1] * 8, max_tokens=8)
    driver.add("b", [2] * 7, max_tokens=8)
    one = driver.schedule()
    two = driver.schedule()  # a takes the fifth block, b has room for one more
    three = driver.schedule()
    assert driver.names(three) == ["a"]
    driver.update(one)
    outputs = driver.update(two, [7], [STOP])
    assert outputs[1].finish_reason is FinishReason.STOP
    assert driver.scheduler.stats().waiting == 0


def test_siblings_wait_for_the_prompt_and_share_its_blocks():
    driver = Driver()
    driver.add("a", 33, n=3)
    steps = [driver.schedule() for _ in range(4)]
    assert [len(s.sequences) for s in steps] == [1, 1, 1, 1]
    for step in steps[:3]:
        driver.update(step)
    step = driver.schedule()
    assert shape(step)[1:] == [(32, 1, True), (32, 1, True)]
    assert driver.scheduler.stats().cached_prompt_tokens == 64
    driver.update(steps[3])
    assert [o.num_cached_tokens for o in driver.update(step)] == [0, 32, 32]


def test_prompt_logprobs_do_not_read_the_prefix_cache():
    driver = Driver()
    driver.add("a", 9)
    driver.update(driver.schedule())
    driver.add("b", 9, prompt_logprobs=0)
    driver.add("c", 9)
    step = driver.schedule()
    assert shape(step)[1:] == [(0, 9, True), (8, 1, True)]
    entries = [TokenLogprobs(i, 0.0, 1, []) for i in range(1, 9)]
    outputs = driver.update(step, [7], [7], [7], prompt_logprobs={1: entries})
    assert [o.prompt_logprobs for o in outputs] == [None, entries, None]
    step = driver.schedule()
    assert all(o.prompt_logprobs is None for o in driver.update(step))


def test_abort_frees_at_once_and_ignores_what_is_in_flight():
    driver = Driver()
    driver.add("a", 20, n=3)
    driver.add("b", [9])
    one = driver.schedule()
    outputs = driver.scheduler.abort("a")
    driver.scheduler.check_integrity()
    assert [(o.index, o.finish_reason) for o in outputs] == [
        (i, FinishReason.ABORT) for i in range(3)
    ]
    assert driver.scheduler.abort("a") == []
    assert driver.scheduler.stats().kv_blocks_used == (1, 1)
    assert [o.request_id for o in driver.update(one)] == ["b"]


def test_abort_of_one_sequence_frees_its_blocks_and_leaves_the_others():
    driver = Driver()
    driver.add("a", 5, n=3)
    driver.update(driver.schedule())
    driver.update(driver.schedule())
    used = driver.scheduler.stats().kv_blocks_used
    flying = driver.schedule()
    (output,) = driver.scheduler.abort("a", 1)
    driver.scheduler.check_integrity()
    assert (output.index, output.token_ids, output.finish_reason) == (1, [], FinishReason.ABORT)
    assert driver.scheduler.stats().kv_blocks_used < used
    assert driver.scheduler.abort("a", 1) == []
    assert driver.scheduler.abort("a", 3) == []
    assert driver.scheduler.abort("unknown", 0) == []
    assert [o.index for o in driver.update(flying)] == [0, 2]
    assert [o.index for o in driver.scheduler.abort("a")] == [0, 2]
    assert not driver.scheduler.has_request("a")
    assert driver.scheduler.stats().kv_blocks_used == (0, 0)


@pytest.mark.parametrize("started", [False, True])
def test_siblings_do_not_wait_for_a_first_sequence_that_was_aborted(started):
    driver = Driver(chunk_size=8)
    driver.add("a", 12, n=4)
    if started:
        driver.update(driver.schedule())
    driver.scheduler.abort("a", 2)
    driver.scheduler.abort("a", 0)
    driver.scheduler.check_integrity()
    step = driver.schedule()
    assert [row.sequence_id for row in step.sequences] == [1]  # alone: 3 still shares its prompt
    indices = set()
    while len(indices) < 2:
        indices |= {output.index for output in driver.update(step)}
        step = driver.schedule()
    assert indices == {1, 3}
    assert driver.scheduler.stats().cached_prompt_tokens == (16 if started else 8)


@pytest.mark.parametrize("started", [False, True])
def test_prompt_logprobs_of_a_first_sequence_that_was_aborted_come_with_the_next(started):
    driver = Driver(chunk_size=8)
    driver.add("a", 12, n=3, prompt_logprobs=0)
    entries = [TokenLogprobs(i, 0.0, 1, []) for i in range(1, 12)]
    if started:
        driver.update(driver.schedule(), prompt_logprobs={0: entries[:8]})
    driver.scheduler.abort("a", 0)
    first = driver.schedule()
    assert shape(first) == [(0, 8, False)]  # computed in full
    assert first.new_sequences[0].sampling.prompt_logprobs == 0
    driver.update(first, prompt_logprobs={1: entries[:8]})
    (output,) = driver.update(driver.schedule(), prompt_logprobs={1: entries[8:]})
    assert (output.index, output.prompt_logprobs) == (1, entries)
    later = [output for _ in range(3) for output in driver.update(driver.schedule())]
    assert {output.index for output in later} == {1, 2}
    assert all(output.prompt_logprobs is None for output in later)


def test_abort_of_the_only_sequence_left_ends_the_request():
    driver = Driver()
    driver.add("a", n=2)
    driver.scheduler.abort("a", 1)
    driver.scheduler.abort("a", 0)
    driver.scheduler.check_integrity()
    assert not driver.scheduler.has_sequences()
    assert driver.schedule().sequences == []
    driver.add("a", n=2)  # the id is free again


def test_a_cache_too_small_for_a_chunk_is_refused():
    with pytest.raises(ConfigError, match="make the chunk size smaller or the cache larger"):
        Driver(CacheConfig(block_size=4, num_blocks=(64, 3), window=8), chunk_size=16)


def test_what_could_outgrow_the_cache_or_is_known_is_refused():
    driver = Driver()
    (sequence,) = driver.add("a")
    with pytest.raises(ValueError, match="in flight already"):
        driver.add("a")
    sequence.request_id, sequence.length_limit = "b", 10_000
    with pytest.raises(ValueError, match="may grow to 10000 tokens; the cache holds 256"):
        driver.scheduler.add([sequence])


def test_integrity_check_sees_a_lost_slot_and_a_lost_sequence():
    driver = Driver()
    (sequence,) = driver.add("a")
    driver.schedule()
    sequence.slot = 0 if sequence.slot else 1
    with pytest.raises(IntegrityError, match="slots"):
        driver.scheduler.check_integrity()
    driver = Driver()
    driver.add("a")
    driver.scheduler._waiting.pop()
    with pytest.raises(IntegrityError, match="neither running nor waiting"):
        driver.scheduler.check_integrity()

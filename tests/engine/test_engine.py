import pytest

from rose.config import CacheConfig, ConfigError, SchedulerConfig
from rose.protocol import (
    EngineDeadError,
    FinishReason,
    InvalidRequestError,
    Request,
    SamplingParams,
)
from tests.fakes import FakeExecutor, expected_output, fake_engine

EOS = (1,)


def request(name="r", prompt=(5, 6, 7), priority=0, **sampling):
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        sampling=SamplingParams(**{"temperature": 0.0, **sampling}),
        priority=priority,
    )


def drain(engine):
    """Run to the end; outputs by (request, index)."""
    found: dict[tuple[str, int], list] = {}
    while engine.has_work():
        for output in engine.step():
            found.setdefault((output.request_id, output.index), []).append(output)
        engine.check_integrity()
    return found


def ids(outputs):
    return [token for output in outputs for token in output.token_ids]


def test_outputs_are_those_of_the_model():
    engine = fake_engine()
    requests = [request(f"r{i}", range(i + 1), max_tokens=20) for i in range(20)]
    for one in requests:
        engine.add_request(one)
    found = drain(engine)
    for one in requests:
        wanted = expected_output(one, 0, vocab_size=256, eos=EOS, longest=512)
        assert ids(found[one.request_id, 0]) == wanted
    stats = engine.stats()
    assert stats.prompt_tokens == sum(range(1, 21))
    assert stats.generated_tokens == sum(len(ids(pieces)) for pieces in found.values())
    assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 0, (0, 0))


def test_a_step_is_enqueued_before_the_one_before_it_is_collected():
    executor = FakeExecutor()
    engine = fake_engine(executor)
    engine.add_request(request(max_tokens=3))
    assert engine.step() == []
    assert executor.num_rows == 0  # enqueued, not waited for
    (output,) = engine.step()
    assert len(output.token_ids) == 1
    assert engine.stats().steps == 2


def test_idle_steps_do_nothing():
    executor = FakeExecutor()
    engine = fake_engine(executor)
    assert not engine.has_work()
    assert engine.step() == []
    assert engine.stats().steps == 0


def test_seeds_reproduce_and_siblings_differ():
    def run(company, **sampling):
        engine = fake_engine()
        for number in range(company):
            engine.add_request(request(f"other{number}", [number], max_tokens=9))
        engine.add_request(request(temperature=1.0, max_tokens=12, ignore_eos=True, **sampling))
        found = drain(engine)
        return [ids(found["r", index]) for index in range(3)]

    alone = run(0, seed=11, n=3)
    assert alone == run(5, seed=11, n=3)
    assert len({tuple(one) for one in alone}) == 3
    assert alone[0] != run(0, seed=12, n=3)[0]
    # Without a seed the engine draws one from its own.
    assert run(0, n=3) == run(0, n=3)
    assert run(0, n=3) != alone


def test_n_may_exceed_the_slots():
    engine = fake_engine(scheduler=SchedulerConfig(max_num_seqs=2, max_batched_tokens=16))
    engine.add_request(request(n=7, max_tokens=4))
    found = drain(engine)
    assert len(found) == 7
    assert len({tuple(ids(pieces)) for pieces in found.values()}) == 1  # all greedy


def test_abort_is_reported_by_the_next_step():
    engine = fake_engine()
    engine.add_request(request(n=2, max_tokens=100, min_tokens=100))
    for _ in range(5):
        engine.step()
    engine.abort("r")
    engine.abort("unknown")
    assert engine.stats().kv_blocks_used == (0, 0)
    outputs = engine.step()
    assert [(o.index, o.token_ids, o.finish_reason) for o in outputs] == [
        (0, [], FinishReason.ABORT),
        (1, [], FinishReason.ABORT),
    ]
    while engine.has_work():
        assert engine.step() == []
    engine.add_request(request())  # the id is free again


def test_abort_of_one_sequence_leaves_its_siblings_as_they_are():
    wanted = request(n=3, max_tokens=40, min_tokens=40, temperature=1.0, seed=3)
    engine = fake_engine()
    engine.add_request(wanted)
    early = [output for _ in range(6) for output in engine.step()]
    engine.abort("r", 1)
    used = engine.stats().running
    found = drain(engine)
    assert used == 2
    (last,) = found["r", 1]
    assert (last.token_ids, last.finish_reason) == ([], FinishReason.ABORT)
    for index in (0, 2):
        before = ids(output for output in early if output.index == index)
        whole = expected_output(wanted, index, vocab_size=256, eos=EOS, longest=512)
        assert before + ids(found["r", index]) == whole


@pytest.mark.parametrize(
    ("bad", "param", "message"),
    [
        (request(prompt=[]), "prompt_token_ids", "at least one token id"),
        (request(prompt=[1, 256]), "prompt_token_ids", "id 256; this model's ids are 0 to 255"),
        (request(prompt=[-1]), "prompt_token_ids", "id -1"),
        (request(prompt=[1, "a"]), "prompt_token_ids", "found one of type str"),
        (request(prompt=[True]), "prompt_token_ids", "found one of type bool"),
        (request(prompt=[1] * 512), "prompt_token_ids", "shorten the prompt to at most 511"),
        (request(prompt=[1] * 500, max_tokens=13), "max_tokens", "max_tokens of at most 12"),
        (request(stop_token_ids=(3, 256)), "stop_token_ids", "id 256"),
        (request(logit_bias={900: 1.0}), "logit_bias", "id 900"),
        (request(logprobs=65), "logprobs", "at most 64; got 65"),
        (request(prompt_logprobs=65), "prompt_logprobs", "at most 64; got 65"),
        (request(n=129), "n", "at most 128; got 129"),
    ],
)
def test_impossible_requests_are_refused_at_once(bad, param, message):
    engine = fake_engine()
    with pytest.raises(InvalidRequestError, match=message) as caught:
        engine.add_request(bad)
    assert caught.value.param == param
    assert not engine.has_work()


def test_the_longest_possible_request_is_served():
    engine = fake_engine()
    engine.add_request(request(prompt=[2] * 500, max_tokens=12, min_tokens=12))
    engine.add_request(request("s", prompt=[2] * 511))
    found = drain(engine)
    assert len(ids(found["r", 0])) == 12
    assert len(ids(found["s", 0])) == 1
    assert found["s", 0][-1].finish_reason is FinishReason.LENGTH


def test_the_cache_bounds_the_longest_sequence():
    engine = fake_engine(cache=CacheConfig(block_size=4, num_blocks=(10, 64), window=8))
    assert engine.info().max_model_len == 40
    with pytest.raises(InvalidRequestError, match="this engine holds 40 tokens"):
        engine.add_request(request(max_tokens=38))
    engine.add_request(request(min_tokens=100, ignore_eos=True))
    found = drain(engine)
    assert len(ids(found["r", 0])) == 37


def test_a_request_id_in_flight_is_refused():
    engine = fake_engine()
    engine.add_request(request())
    with pytest.raises(InvalidRequestError, match="in flight already"):
        engine.add_request(request())
    drain(engine)
    engine.add_request(request())


@pytest.mark.parametrize(
    ("cache", "max_model_len", "message"),
    [
        (CacheConfig(block_size=4, num_blocks=(64, 2), window=8), 512, "chunk size smaller"),
        (CacheConfig(block_size=1, num_blocks=(1, 64), window=8), 512, "need at least 2"),
        (CacheConfig(block_size=4, num_blocks=(64, 64), window=8), 1, "need at least 2"),
    ],
)
def test_a_cache_for_nothing_is_refused(cache, max_model_len, message):
    with pytest.raises(ConfigError, match=message):
        fake_engine(cache=cache, max_model_len=max_model_len)


def test_what_the_executor_raises_ends_the_engine():
    engine = fake_engine(FakeExecutor(fail_at_step=2))
    engine.add_request(request(max_tokens=9, min_tokens=9))
    with pytest.raises(RuntimeError, match="step 2 was told to fail"):
        drain(engine)
    with pytest.raises(EngineDeadError, match="step 2 was told to fail"):
        engine.step()
    with pytest.raises(EngineDeadError, match="step 2 was told to fail"):
        engine.add_request(request("s"))
    engine.shutdown()


def test_shutdown_ends_everything_once():
    executor = FakeExecutor()
    engine = fake_engine(executor)
    engine.shutdown()
    engine.shutdown()
    assert executor.is_shut_down
    with pytest.raises(EngineDeadError, match="it was shut down"):
        engine.add_request(request())


def test_info_describes_the_engine():
    info = fake_engine().info()
    assert (info.model, info.vocab_size, info.eos_token_ids) == ("fake", 256, EOS)
    assert (info.max_model_len, info.max_num_seqs) == (512, 8)
    assert "256 full and 128 sliding blocks of 4 tokens" in info.description


def test_a_long_prompt_takes_as_many_steps_as_chunks():
    engine = fake_engine()
    engine.add_request(request(prompt=[3] * 200, max_tokens=1))
    drain(engine)
    assert engine.stats().steps == 7  # chunks of 32

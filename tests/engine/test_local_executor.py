"""The in-process executor, driven by hand-written steps."""

import dataclasses
import json

import pytest
import torch

from rose.config import CacheConfig, ConfigError, ParallelConfig
from rose.core.step import NewSequence, ScheduledSequence, SchedulerOutput
from rose.engine.local_executor import LocalExecutor
from rose.options import EngineOptions
from rose.protocol import SamplingParams

VOCAB = 61
CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "sliding_window": 6,
    "max_position_embeddings": 1000,
}
GREEDY = SamplingParams(temperature=0)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("executor")
    (path / "config.json").write_text(json.dumps(CONFIG))
    options = EngineOptions(
        model=str(path), dtype="float32", device="cpu", load_format="dummy", max_num_seqs=4
    )
    return options.resolve()


class Everything:
    def __init__(self):
        self.seen = []

    def wants(self, sequence_id):
        return True

    def observe(self, sequence_id, start, logits):
        self.seen.append((sequence_id, start, logits.clone()))


def start(config, observer=None):
    executor = LocalExecutor(config, observer=observer)
    cache = CacheConfig(block_size=4, num_blocks=(20, 20), window=6)
    executor.allocate(cache, 40)
    return executor


def new(sequence_id, slot, tokens, sampling=GREEDY):
    return NewSequence(sequence_id, slot, tokens, len(tokens), sampling, 5, ())


def test_steps_submitted_ahead_answer_in_order_and_by_their_rows(config):
    observer = Everything()
    executor = start(config, observer)
    wants = SamplingParams(temperature=0, logprobs=3, prompt_logprobs=1)
    first = SchedulerOutput(
        0,
        [new(7, 2, [1, 2, 3, 4, 5, 6]), new(8, 0, [9, 9, 9], wants)],
        [
            ScheduledSequence(7, 2, 0, 4, False, ((0,), (0,))),
            ScheduledSequence(8, 0, 0, 3, True, ((1,), (1,))),
        ],
        7,
    )
    second = SchedulerOutput(
        1,
        [],
        [
            ScheduledSequence(7, 2, 4, 2, True, ((2,), (2,))),
            ScheduledSequence(8, 0, 3, 1, True, None),
        ],
        3,
    )
    handles = [executor.submit(first), executor.submit(second)]
    results = [handle.result() for handle in handles]
    assert [r.step_id for r in results] == [0, 1]
    logits = [logits for _, _, logits in observer.seen]
    assert [(s, at, len(x)) for s, at, x in observer.seen] == [
        (7, 0, 4), (8, 0, 3), (7, 4, 2), (8, 3, 1)
    ]  # fmt: skip
    best = [x[-1].argmax().item() for x in logits]
    assert results[0].token_ids == [[best[1]]]
    assert results[1].token_ids == [[best[2]], [best[3]]]
    assert set(results[0].logprobs) == set(results[1].logprobs) == {8}
    [entry] = results[1].logprobs[8]
    assert (entry.token_id, entry.rank, len(entry.top)) == (best[3], 1, 3)
    # Of the prompt 9 9 9: its second and third token; the third step has none left.
    truth = torch.log_softmax(logits[1].double(), -1)
    found = results[0].prompt_logprobs[8]
    assert [e.token_id for e in found] == [9, 9]
    assert [e.logprob for e in found] == pytest.approx(truth[:2, 9].tolist(), abs=1e-5)
    assert results[1].prompt_logprobs == {}


def test_long_prompts_are_scored_tile_by_tile(config):
    """More positions than one tile of logits holds, in two chunks."""
    executor = LocalExecutor(config)
    executor.allocate(CacheConfig(block_size=16, num_blocks=(60, 60), window=6), 900)
    tokens = [i * 7 % VOCAB for i in range(700)]
    blocks = tuple(range(44))
    rows = [
        ScheduledSequence(0, 1, 0, 600, False, (blocks[:38], blocks[:38])),
        ScheduledSequence(0, 1, 600, 100, True, (blocks[38:], blocks[38:])),
    ]
    wants = SamplingParams(temperature=0, prompt_logprobs=0)
    found = []
    for step_id, row in enumerate(rows):
        admitted = [new(0, 1, tokens, wants)] if step_id == 0 else []
        step = SchedulerOutput(step_id, admitted, [row], row.num_tokens)
        found.append(executor.submit(step).result().prompt_logprobs[0])
    assert [len(f) for f in found] == [600, 99]
    assert [e.token_id for f in found for e in f] == tokens[1:]


def test_memory_is_what_was_asked_for_or_what_all_slots_need(config):
    executor = LocalExecutor(config)
    # Keys and values, 4 bytes each, 16 wide: one full layer and two sliding ones.
    assert list(executor.block_bytes(8)) == [8 * 128, 8 * 256]
    assert executor.kv_bytes() == 4 * (1000 // 16 + 1) * 16 * 384
    asked = LocalExecutor(dataclasses.replace(config, kv_cache_bytes=12345))
    assert asked.kv_bytes() == 12345


def test_misuse_is_refused(config):
    step = SchedulerOutput(0, [new(0, 0, [1])], [ScheduledSequence(0, 0, 0, 1, True, ((0,), (0,)))])
    executor = LocalExecutor(config)
    with pytest.raises(RuntimeError, match="allocate"):
        executor.submit(step)
    executor.shutdown()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        executor.kv_bytes()
    with pytest.raises(ValueError, match="runs no sequence"):
        start(config).submit(SchedulerOutput(0))
    with pytest.raises(ConfigError, match="tp=2"):
        LocalExecutor(dataclasses.replace(config, parallel=ParallelConfig(tp=2)))

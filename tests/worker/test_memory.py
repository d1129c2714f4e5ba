"""Weights are counted before they exist, the largest step is run, the KV cache gets the rest."""

import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rose.config import (
    FULL,
    SLIDING,
    CacheConfig,
    ConfigError,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
)
from rose.core.mapping import ParallelMapping
from rose.core.step import NewSequence, SchedulerOutput
from rose.engine.start import resolve_cache
from rose.models.gpt_oss import GptOss
from rose.models.layouts import ExpertStorage, expected_tensors
from rose.options import EngineOptions
from rose.protocol import SamplingParams
from rose.quant import quant_scheme
from rose.worker.largest_step import LONG_ROWS, largest_step, rehearsal, scratch_cache
from rose.worker.memory import (
    GRAPH_BYTES,
    MARGIN_BYTES,
    HostMemory,
    MemoryPlan,
    graph_bytes,
    memory_line,
    require_room_for_weights,
    weight_bytes,
)
from rose.worker.worker import Worker
from tools.make_tiny_checkpoint import Sizes, make_config

GB = 10**9
BYTES = {"BF16": 2, "U8": 1}


def shape(**sizes):
    config = make_config(Sizes(**sizes))
    return ModelConfig.from_dicts(config, {}, source="test")


MODEL_20B, MODEL_120B = (
    shape(
        layers=layers, hidden=2880, intermediate=2880, heads=64, kv_heads=8,
        experts=experts, vocab=201088,
    )
    for layers, experts in ((24, 32), (36, 128))
)  # fmt: skip


class FakeMemory:
    """A device of which so much is free; what work holds at its peak is told."""

    def __init__(self, free, peak=0, total=150 * GB):
        self._free, self._peak, self._total = free, peak, total
        self.works = 0

    def total(self):
        return self._total

    def free(self):
        return self._free

    def peak(self, work):
        work()
        self.works += 1
        return self._peak


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quantization", ["bf16", "fp8", "mxfp4"])
def test_weights_are_counted_as_they_will_be_stored(quantization, dtype):
    config = shape(layers=3, hidden=96, intermediate=160, vocab=272)
    model = GptOss(
        config,
        scheme=quant_scheme(quantization),
        mapping=ParallelMapping(),
        dtype=dtype,
        device=torch.device("cpu"),
    )
    stored = sum(parameter.nbytes for parameter in model.parameters())
    assert weight_bytes(config, quantization, dtype) == stored


@pytest.mark.parametrize(("config", "size"), [(MODEL_20B, 13.76), (MODEL_120B, 65.25)])
def test_the_published_models_take_what_their_files_take(config, size):
    found = weight_bytes(config, "mxfp4", torch.bfloat16)
    assert found / GB == pytest.approx(size, abs=0.005)
    tensors = expected_tensors(config, ExpertStorage.MXFP4, head=True).values()
    in_files = sum(torch.Size(t.shape).numel() * BYTES[t.dtypes[0]] for t in tensors)
    assert found == in_files


def test_room_for_weights():
    need = weight_bytes(MODEL_20B, "mxfp4", torch.bfloat16)
    require_room_for_weights(FakeMemory(need), MODEL_20B, "mxfp4", torch.bfloat16)
    with pytest.raises(ConfigError):
        require_room_for_weights(FakeMemory(need - 1), MODEL_20B, "mxfp4", torch.bfloat16)


def test_a_hosts_memory_is_what_linux_says(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       24000 kB\nMemFree: 100 kB\nMemAvailable:    5000 kB\n")
    host = HostMemory(meminfo)
    assert (host.total(), host.free()) == (24000 * 1024, 5000 * 1024)
    with pytest.raises(ConfigError, match=r"the weights need 65\.25 GB"):
        require_room_for_weights(host, MODEL_120B, "mxfp4", torch.bfloat16)


def test_a_host_that_tells_nothing_is_tried(tmp_path):
    require_room_for_weights(HostMemory(tmp_path / "no"), MODEL_120B, "bf16", torch.bfloat16)


@pytest.mark.parametrize(
    ("config", "quantization", "free", "offered"),
    [
        (MODEL_120B, "bf16", 140, {"fp8 takes 119", "mxfp4 takes 65.25 GB", "tp=2 would"}),
        (MODEL_120B, "bf16", 100, {"mxfp4 takes 65.25 GB", "tp=4 would"}),
        (MODEL_120B, "fp8", 80, {"mxfp4 takes 65.25 GB", "tp=2 would"}),
        (MODEL_120B, "mxfp4", 40, {"tp=2 would"}),
        (MODEL_120B, "mxfp4", 5, {"a larger device"}),
        (MODEL_20B, "bf16", 30, {"fp8 takes 22", "mxfp4 takes 13.76 GB", "tp=2 would"}),
    ],
)
def test_an_error_says_what_would_fit_and_nothing_else(config, quantization, free, offered):
    memory = FakeMemory(free * GB)
    with pytest.raises(ConfigError) as caught:
        require_room_for_weights(memory, config, quantization, torch.bfloat16)
    message = str(caught.value)
    assert f"has {free}.00 GB free of 150.00 GB" in message
    offers = {"fp8 takes", "mxfp4 takes", "tp=2", "tp=4", "tp=8", "a larger device"}
    wanted = {offer for offer in offers if any(offer in each for each in offered)}
    assert {offer for offer in offers if offer in message} == wanted
    assert all(each in message for each in offered)


def test_a_quantization_that_does_not_suit_the_model_is_not_offered():
    config = shape(hidden=80, intermediate=80)
    need = weight_bytes(config, "bf16", torch.float32)
    with pytest.raises(ConfigError) as caught:
        require_room_for_weights(FakeMemory(need - 1), config, "bf16", torch.float32)
    assert "fp8" in str(caught.value)
    assert "mxfp4" not in str(caught.value)


amounts = st.integers(0, 200 * GB)


@given(total=amounts, free=amounts, step=amounts, graphs=amounts)
def test_the_kv_cache_gets_the_rest(total, free, step, graphs):
    plan = MemoryPlan(total=total, free=free, weights=0, step=step, graphs=graphs)
    assert plan.kv + plan.step + plan.graphs + plan.margin == free
    assert plan.margin >= MARGIN_BYTES
    plan.require_kv(plan.kv, 1)
    with pytest.raises(ConfigError):
        plan.require_kv(plan.kv + 1, 1)


def test_graphs_take_more_the_larger_and_the_more_they_are():
    assert graph_bytes(MODEL_20B, []) == 0
    one = graph_bytes(MODEL_20B, [1])
    assert one > GRAPH_BYTES
    assert graph_bytes(MODEL_20B, [1, 2]) > one + GRAPH_BYTES
    # Logits of 256 rows, twice in float32 and once in bfloat16.
    assert graph_bytes(MODEL_20B, [256]) > 10 * 256 * 201088


def test_the_line_adds_up():
    parts = {"weights": 13 * GB, "KV cache": 100 * GB}
    line = memory_line(150 * GB, 30 * GB, parts, 4 * GB)
    assert line == (
        "Device memory: 150.00 GB: weights 13.00 GB, KV cache 100.00 GB, other 7.00 GB, "
        "free 30.00 GB, of which a step takes up to 4.00 GB"
    )
    assert memory_line(150 * GB, 30 * GB, parts, None).endswith("free 30.00 GB")


def engine_config(**changes):
    base = EngineConfig(model=MODEL_20B, path=None, served_name="x")
    return dataclasses.replace(base, **changes)


@given(
    seqs=st.integers(1, 40),
    more=st.integers(0, 3000),
    chunk=st.integers(1, 4000),
    block_size=st.sampled_from([1, 16, 128]),
    max_model_len=st.none() | st.integers(1, 5000),
)
def test_the_largest_step_is_full_and_one_that_could_be(
    seqs, more, chunk, block_size, max_model_len
):
    # As EngineOptions bounds it.
    chunk = min(chunk, seqs + more, max_model_len or chunk)
    scheduler = SchedulerConfig(max_num_seqs=seqs, max_batched_tokens=seqs + more, chunk_size=chunk)
    config = engine_config(scheduler=scheduler, block_size=block_size, max_model_len=max_model_len)
    step = largest_step(config)
    counts = [s.num_tokens for s in step.sequences]
    assert [s.slot for s in step.sequences] == list(range(seqs))
    assert step.num_tokens == sum(counts) == min(seqs + more, seqs * chunk)
    assert all(1 <= count <= chunk for count in counts)
    assert all(s.samples for s in step.sequences)
    first = step.sequences[0]
    assert first.start + first.num_tokens == config.longest_sequence
    assert_lies_in_the_scratch_cache(config, step)


def assert_lies_in_the_scratch_cache(config, step):
    for new, s in zip(step.new_sequences, step.sequences, strict=True):
        end = s.start + s.num_tokens
        assert s.start >= 0
        assert new.slot == s.slot
        assert len(new.token_ids) == new.num_prompt_tokens == end
        # Every position lies in the only block that there is.
        for group in (FULL, SLIDING):
            assert (
                set(s.new_blocks[group])
                == {0}
                == set(range(scratch_cache(config).num_blocks[group]))
            )
            assert len(s.new_blocks[group]) * config.block_size >= end


@given(
    seqs=st.integers(1, 40),
    more=st.integers(0, 3000),
    chunk=st.integers(1, 4000),
    max_model_len=st.none() | st.integers(1, 5000),
)
def test_the_rehearsal_has_steps_of_every_size(seqs, more, chunk, max_model_len):
    budget = seqs + more
    chunk = min(chunk, budget, max_model_len or chunk)
    scheduler = SchedulerConfig(max_num_seqs=seqs, max_batched_tokens=budget, chunk_size=chunk)
    config = engine_config(scheduler=scheduler, max_model_len=max_model_len)
    steps = list(rehearsal(config))
    for step in steps:
        counts = [s.num_tokens for s in step.sequences]
        assert len(counts) <= seqs
        assert step.num_tokens == sum(counts)
        assert all(1 <= count <= chunk for count in counts)
        assert_lies_in_the_scratch_cache(config, step)
    steps, decodes = steps[: -len(sizes_to(seqs))], steps[-len(sizes_to(seqs)) :]
    for step, size in zip(decodes, sizes_to(seqs), strict=True):
        assert [s.num_tokens for s in step.sequences] == [1] * size
    wanted = [min(size, seqs * chunk) for size in sizes_between(budget)]
    wanted_long = [min(size, seqs * chunk) for size in sizes_to(min(budget, LONG_ROWS))]
    longest = config.longest_sequence
    ends = [max(s.start + s.num_tokens for s in step.sequences) for step in steps]
    short = [step.num_tokens for step, end in zip(steps, ends, strict=True) if end < longest]
    long = [step.num_tokens for step, end in zip(steps, ends, strict=True) if end == longest]
    if chunk < longest:  # else a chunk alone is as long as can be
        assert short == wanted
        assert long == wanted_long
    assert [step.num_tokens for step in steps] == wanted + wanted_long


def sizes_to(most):
    """Powers of two, and the largest: it may be all that a kernel's variant serves."""
    return sorted({2**n for n in range(13) if 2**n <= most} | {most})


def sizes_between(most):
    """Those, and the numbers halfway between powers of two."""
    return sorted({*sizes_to(most), *(3 * 2**n for n in range(13) if 3 * 2**n <= most)})


TINY = {
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": 61,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "sliding_window": 6,
    "max_position_embeddings": 1000,
}


def options(path, model=TINY, **changes):
    (path / "config.json").write_text(json.dumps(model))
    given = {
        "dtype": "float32", "device": "cpu", "load_format": "dummy", "block_size": 4,
        "max_num_seqs": 5, "max_batched_tokens": 30, **changes,
    }  # fmt: skip
    return EngineOptions(model=str(path), **given).resolve()


class TestWorker:
    def test_what_a_step_took_stays_free(self, tmp_path, capfd):
        config = options(tmp_path)
        memory = FakeMemory(free=10 * GB, peak=2 * GB)
        worker = Worker(config, ParallelMapping(), None, memory)
        masked_logits, margin = 4 * 5 * 61, MARGIN_BYTES + 1500_000_000
        wanted = 8 * GB - masked_logits - margin
        assert worker.kv_bytes() == wanted
        assert memory.works == 1
        cache, longest = resolve_cache(config, worker)
        # A cache of that size would not fit here.
        worker.allocate(dataclasses.replace(cache, num_blocks=(20, 20)), longest)
        [line] = [x for x in capfd.readouterr().err.splitlines() if x.startswith("Device memory")]
        assert "free 10.00 GB, of which a step takes up to 2.00 GB" in line

    def test_graphs_that_will_be_captured_have_their_share(self, tmp_path):
        config = options(tmp_path)
        sizes = []
        for captures in (False, True):
            worker = Worker(config, ParallelMapping(), None, FakeMemory(free=10 * GB))
            worker._captures = captures
            sizes.append(worker.kv_bytes())
        assert sizes[0] - sizes[1] == graph_bytes(config.model, [1, 2, 4, 5])

    def test_the_rehearsal_runs(self, tmp_path):
        """With all that sampling can be asked for, and before there is a cache."""
        worker = Worker(options(tmp_path), ParallelMapping(), None)
        with torch.inference_mode():
            worker._rehearse()

    def test_nothing_is_run_for_a_size_that_was_asked_for(self, tmp_path):
        memory = FakeMemory(free=10 * GB)
        worker = Worker(options(tmp_path, kv_cache_bytes=12345), ParallelMapping(), None, memory)
        assert worker.kv_bytes() == 12345
        assert memory.works == 0

    def test_weights_that_do_not_fit_are_refused_before_they_are_made(self, tmp_path):
        """Filling them would take minutes, and more memory than most machines have."""
        sizes = Sizes(
            layers=36, hidden=2880, intermediate=2880, heads=64, kv_heads=8,
            experts=128, vocab=201088,
        )  # fmt: skip
        config = options(tmp_path, make_config(sizes), dtype="bfloat16")
        with pytest.raises(ConfigError, match=r"weights need 65.25 GB with quantization=mxfp4"):
            Worker(config, ParallelMapping(), None, FakeMemory(free=60 * GB))

    def test_one_chunk_must_fit(self, tmp_path):
        worker = Worker(options(tmp_path), ParallelMapping(), None, FakeMemory(GB, peak=GB))
        with pytest.raises(ConfigError) as caught:
            worker.kv_bytes()
        message = str(caught.value)
        assert "one chunk of 30 tokens needs 0.00 GB of KV cache" in message
        assert "of the device's 150.00 GB only 0.00 GB are left" in message
        assert "a step 1.00 GB" in message

    def test_a_chunk_that_just_fits_makes_a_cache_that_holds_it(self, tmp_path):
        config = options(tmp_path)
        # Keys and values, 4 bytes each, 16 wide: one full layer and two sliding ones.
        full, sliding = 4 * 128, 4 * 256
        needed = 8 * full + ((30 + 6 - 3) // 4 + 2) * sliding
        rest = MARGIN_BYTES + 1_500_000_000 + 4 * 5 * 61
        worker = Worker(config, ParallelMapping(), None, FakeMemory(needed + rest))
        assert worker.kv_bytes() == needed
        cache, longest = resolve_cache(config, worker)
        assert longest >= 30
        assert cache.num_blocks[FULL] * full + cache.num_blocks[SLIDING] * sliding <= needed
        worker = Worker(config, ParallelMapping(), None, FakeMemory(needed + rest - 1))
        with pytest.raises(ConfigError, match="one chunk of 30 tokens"):
            worker.kv_bytes()

    def test_a_step_that_does_not_fit_is_an_error_of_the_users_kind(self, tmp_path):
        class Full(FakeMemory):
            def peak(self, work):
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")

        worker = Worker(options(tmp_path), ParallelMapping(), None, Full(GB))
        with pytest.raises(ConfigError, match="no memory for a step of 30 tokens, 5 of them samp"):
            worker.kv_bytes()

    def test_the_observer_does_not_see_the_largest_step(self, tmp_path):
        class Observer:
            def wants(self, sequence_id):
                raise AssertionError("asked")

        worker = Worker(options(tmp_path), ParallelMapping(), Observer(), FakeMemory(10 * GB))
        worker.kv_bytes()

    def test_the_logits_that_an_observer_sees_exist_tile_by_tile(self, tmp_path):
        """All at once, those of a chunk of 8192 would take 6.6 GB with a real vocabulary."""

        class Observer:
            def __init__(self):
                self.seen = []

            def wants(self, sequence_id):
                return True

            def observe(self, sequence_id, start, logits):
                self.seen.append((start, len(logits)))

        config = options(tmp_path, max_batched_tokens=700, max_num_seqs=1)
        observer = Observer()
        worker = Worker(config, ParallelMapping(), observer)
        worker.allocate(CacheConfig(block_size=4, num_blocks=(200, 200), window=6), 720)
        [row] = largest_step(dataclasses.replace(config, max_model_len=700)).sequences
        new = NewSequence(0, 0, [1] * 700, 700, SamplingParams(), 0, ())
        row.new_blocks = (tuple(range(175)),) * 2
        worker.run(SchedulerOutput(0, [new], [row], 700)).result()
        assert observer.seen == [(0, 256), (256, 256), (512, 188)]

"""Decoding by graphs, with a capture that runs the captured function anew: the same on any device.

What CUDA itself adds, tests/gpu checks.
"""

import dataclasses
import weakref

import pytest
import torch

from rose.config import CacheConfig, ModelConfig
from rose.core.mapping import ParallelMapping
from rose.core.step import NewSequence, ScheduledSequence, SchedulerOutput
from rose.kernels.dispatch import Implementation, force
from rose.llm import LLM
from rose.models.gpt_oss import GptOss
from rose.models.weights import load_dummy
from rose.protocol import SamplingParams
from rose.quant import quant_scheme
from rose.worker.block_tables import BlockTables
from rose.worker.cuda_graph import LARGEST_BUCKET, DecodeGraphs, capturable, decode_buckets
from rose.worker.forward_batch import BatchBuilder
from rose.worker.kv_cache import allocate_kv
from rose.worker.token_pool import TokenPool

MODEL = ModelConfig.from_dicts(
    {
        "architectures": ["GptOssForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 100,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 64,
        "rope_theta": 10000,
        "swiglu_limit": 7.0,
        "eos_token_id": 1,
    },
    {},
    source="test",
)


BF16 = torch.empty(0, dtype=torch.bfloat16)


def test_steps_are_captured_only_where_fused_kernels_serve():
    """References of attention, routing and experts read numbers back, which a capture forbids."""
    with force(Implementation.TRITON):
        assert all(capturable(MODEL, each, BF16, 16) for each in ("bf16", "fp8", "mxfp4"))
        ragged_heads = dataclasses.replace(MODEL, head_dim=24)
        assert not capturable(ragged_heads, "bf16", BF16, 16)
        assert not capturable(MODEL, "bf16", BF16, 8)
        ragged_rows = dataclasses.replace(MODEL, intermediate_size=40)
        assert capturable(ragged_rows, "bf16", BF16, 16)
        assert not capturable(ragged_rows, "fp8", BF16, 16)
    with force(Implementation.REFERENCE):
        assert not capturable(MODEL, "bf16", BF16, 16)
    assert not capturable(MODEL, "bf16", BF16, 16)  # on a CPU


def replayed(body):
    body()
    return body


def with_graphs(llm, buckets):
    """Give the engine graphs that are functions."""
    worker = llm._engine._executor._worker
    runner = worker._runner
    with torch.inference_mode():
        runner.graphs = DecodeGraphs(
            model=worker._model,
            kv=runner._kv,
            pool=runner._pool,
            tables=runner._builder._tables,
            window=worker._config.model.sliding_window,
            buckets=buckets,
            width=1,
            capture=replayed,
            device=worker._device,
        )
    return runner.graphs


@pytest.mark.parametrize("one_ahead", [True, False])
def test_graphs_decode_what_the_model_does(oracle_dir, one_ahead):
    """Mixed with prompt chunks, padded, preempted, with penalties, seeds and log-probabilities."""
    greedy = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, logprobs=2)
    drawn = SamplingParams(
        temperature=0.8, top_p=0.9, seed=3, n=2, max_tokens=25, ignore_eos=True,
        repetition_penalty=1.2, prompt_logprobs=1,
    )  # fmt: skip
    prompts = [list(range(3, 3 + n)) for n in (40, 7, 23, 1, 64)]
    params = [greedy, drawn, greedy, greedy, drawn]
    options = {
        "dtype": "float32", "num_blocks": (8, 24), "chunk_size": 16,
        "max_batched_tokens": 24, "max_num_seqs": 6, "one_ahead": one_ahead,
    }  # fmt: skip
    with LLM(str(oracle_dir / "a"), device="cpu", **options) as llm:
        expected = llm.generate(prompts, params)
        preempted = llm.stats.preemptions
    with LLM(str(oracle_dir / "a"), device="cpu", **options) as llm:
        graphs = with_graphs(llm, [1, 4])
        ran = []
        run = graphs.run
        graphs.run = lambda inputs: ran.append(inputs.shape[1]) or run(inputs)
        found = llm.generate(prompts, params)
    assert preempted > 0
    assert set(ran) == {1, 4}, "both sizes served"
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours.outputs, theirs.outputs, strict=True):
            assert one.token_ids == other.token_ids
            for a, b in zip(one.logprobs or [], other.logprobs or [], strict=True):
                assert a.logprob == pytest.approx(b.logprob, abs=1e-4)


def test_a_batch_beyond_the_largest_graph_runs_eagerly(oracle_dir):
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    prompts = [[5, 6, n] for n in range(3, 8)]
    with LLM(str(oracle_dir / "a"), device="cpu", dtype="float32", num_blocks=(64, 160)) as llm:
        expected = [r.token_ids for r in llm.generate(prompts, params)]
    with LLM(str(oracle_dir / "a"), device="cpu", dtype="float32", num_blocks=(64, 160)) as llm:
        graphs = with_graphs(llm, [2])
        graphs.run = None  # a call would fail
        assert [r.token_ids for r in llm.generate(prompts, params)] == expected


def test_what_a_graph_reads_outlives_its_capture():
    """A graph knows addresses only: of a freed tensor it would read what lies there next."""
    device, seen = torch.device("cpu"), []
    cache = CacheConfig(block_size=16, num_blocks=(4, 4), window=MODEL.sliding_window)
    model = GptOss(MODEL, scheme=quant_scheme("bf16"), mapping=ParallelMapping(), device=device,
                   dtype=torch.float32)  # fmt: skip
    load_dummy(model, 0)
    kv = allocate_kv(MODEL, cache, torch.float32, device)

    def watch(module, args):
        batch = args[2]
        seen.extend(map(weakref.ref, (batch.query_start, batch.plan.decode_sequences)))

    def forgotten(body):
        body()
        return lambda: None

    model.register_forward_pre_hook(watch)
    with torch.inference_mode(), force(Implementation.TRITON):
        graphs = DecodeGraphs(
            model=model, kv=kv, pool=TokenPool(3, 40, device),
            tables=BlockTables(cache, 3, 40, device), window=4, buckets=[1, 2], width=1,
            capture=forgotten, device=device,
        )  # fmt: skip
    assert len(seen) == 4
    assert all(each() is not None for each in seen)
    del graphs


def test_several_tokens_a_sequence():
    """Two sequences of three tokens each, beside what a plain batch makes of them.

    Only fused kernels learn lengths from the device alone, so Triton's interpreter runs them.
    """
    torch.manual_seed(0)
    width, device = 3, torch.device("cpu")
    cache = CacheConfig(block_size=16, num_blocks=(12, 12), window=MODEL.sliding_window)
    options = {"dtype": torch.float32, "device": device}
    model = GptOss(MODEL, scheme=quant_scheme("bf16"), mapping=ParallelMapping(), **options)
    load_dummy(model, 0)
    kv = allocate_kv(MODEL, cache, torch.float32, device)
    pool, tables = TokenPool(3, 40, device), BlockTables(cache, 3, 40, device)
    builder = BatchBuilder(tables=tables, pool=pool, window=4, plan_launches=True, device=device)
    parts = {"pool": pool, "tables": tables, "window": 4, "buckets": [1, 4], "width": width}
    with torch.inference_mode():
        with force(Implementation.TRITON):
            graphs = DecodeGraphs(model=model, kv=kv, **parts, capture=replayed, device=device)
        lengths = {0: 30, 2: 5}
        for slot, length in lengths.items():
            ids = torch.randint(0, 99, (length + width,)).tolist()
            builder.admit(NewSequence(slot, slot, ids, len(ids), SamplingParams(), 0, ()))
        blocks = {0: (0, 1, 2), 2: (5,)}
        prompts = [
            ScheduledSequence(s, s, 0, n, False, (blocks[s],) * 2) for s, n in lengths.items()
        ]
        step = SchedulerOutput(0, sequences=prompts)
        builder.extend(step)
        batch = builder.build(step)
        model(batch.token_ids, batch.positions, batch.attention, kv)
        verified = [ScheduledSequence(s, s, n, width, True, None) for s, n in lengths.items()]
        step = SchedulerOutput(1, sequences=verified)
        inputs, rows = builder.decode_inputs(step, 4, width)
        with force(Implementation.TRITON):
            _, logits = graphs.run(inputs)
        batch = builder.build(step)
        hidden = model(batch.token_ids, batch.positions, batch.attention, kv)
        expected = model.logits(hidden)  # by the reference, which needs to know the lengths
    assert rows.positions.tolist() == [33, 8]
    torch.testing.assert_close(logits[: 2 * width], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sequences", [1, 3, 8, 37, 64, 200, 256, 1000])
def test_buckets_cover_all_sizes_without_much_padding(sequences):
    buckets = decode_buckets(sequences)
    assert buckets == sorted(set(buckets))
    assert buckets[-1] == min(sequences, LARGEST_BUCKET)
    for rows in range(1, buckets[-1] + 1):
        padded = next(size for size in buckets if size >= rows)
        assert padded - rows <= max(rows - 1, 0) or padded - rows < 16

"""The public Python API on a small random model."""

import asyncio
import gc
import json
import time

import numpy as np
import pytest
import torch
from scipy import stats

from rose.config import ConfigError
from rose.engine.engine import Engine
from rose.llm import LLM, AsyncLLM
from rose.options import EngineOptions
from rose.protocol import EngineDeadError, FinishReason, InvalidRequestError, SamplingParams

VOCAB, EOS = 97, 96
CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": VOCAB,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "max_position_embeddings": 256,
    "eos_token_id": EOS,
}
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
OPTIONS = {
    "dtype": "float32",
    "device": "cpu",
    "load_format": "dummy",
    "chunk_size": 32,
    "num_blocks": (64, 64),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("llm")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return str(path)


@pytest.fixture
def llm(folder):
    with LLM(folder, **OPTIONS) as llm:
        yield llm


def test_results_come_in_the_order_of_the_prompts(llm):
    prompts = [[i, i + 1, 3][: 1 + i % 3] * (1 + 7 * (i % 2)) for i in range(9)]
    params = [SamplingParams(temperature=0, max_tokens=9 - i, ignore_eos=True) for i in range(9)]
    together = llm.generate(prompts, params)
    alone = [llm.generate([p], own)[0] for p, own in zip(prompts, params, strict=True)]
    assert [r.token_ids for r in together] == [r.token_ids for r in alone]
    assert [r.prompt_token_ids for r in together] == prompts
    assert [len(r.token_ids) for r in together] == list(range(9, 0, -1))
    assert {r.finish_reason for r in together} == {FinishReason.LENGTH}
    assert len({tuple(r.token_ids[:1]) for r in together}) > 3
    assert llm.generate([]) == []


def test_greedy_tokens_are_the_best_of_the_scores(llm):
    prompt = [4, 8, 15, 16, 23, 42] * 6
    [result] = llm.generate([prompt], GREEDY)
    scores = llm.score([*prompt, *result.token_ids[:-1]])
    assert scores.shape == (len(prompt) + 7, VOCAB)
    assert scores.dtype == torch.float32
    assert scores.argmax(-1)[len(prompt) - 1 :].tolist() == result.token_ids


def test_scores_ignore_the_prefix_cache(llm):
    prompt = list(range(50))
    assert torch.equal(llm.score(prompt), llm.score(prompt))
    llm.generate([prompt], GREEDY)
    assert llm.score(prompt).isfinite().all()


def test_a_stop_token_ends_the_output_and_belongs_to_it(llm):
    [free] = llm.generate([[7, 7, 9]], GREEDY)
    stop = free.token_ids[4]
    first = free.token_ids.index(stop)
    params = SamplingParams(temperature=0, max_tokens=8, stop_token_ids=(stop,), ignore_eos=True)
    [stopped] = llm.generate([[7, 7, 9]], params)
    assert stopped.token_ids == free.token_ids[: first + 1]
    assert stopped.finish_reason is FinishReason.STOP


def test_the_models_own_end_token_counts_unless_ignored(llm):
    bias = {EOS: 1000.0}
    [ended] = llm.generate([[5, 6]], SamplingParams(max_tokens=6, logit_bias=bias))
    assert (ended.token_ids, ended.finish_reason) == ([EOS], FinishReason.STOP)
    params = SamplingParams(max_tokens=6, logit_bias=bias, ignore_eos=True)
    [ignored] = llm.generate([[5, 6]], params)
    assert (ignored.token_ids, ignored.finish_reason) == ([EOS] * 6, FinishReason.LENGTH)
    params = SamplingParams(max_tokens=6, logit_bias=bias, min_tokens=3)
    [later] = llm.generate([[5, 6]], params)
    assert EOS not in later.token_ids[:3]
    assert later.token_ids[3:] == [EOS]


def test_n_continuations_differ_and_reproduce(llm):
    params = SamplingParams(n=5, max_tokens=12, seed=3, ignore_eos=True, logprobs=0)
    [result] = llm.generate([[9, 8, 7] * 12], params)
    outputs = [tuple(c.token_ids) for c in result.outputs]
    assert len(set(outputs)) == 5
    assert all(len(c.logprobs) == 12 for c in result.outputs)
    [again] = llm.generate([[9, 8, 7] * 12], params)
    assert [tuple(c.token_ids) for c in again.outputs] == outputs


def test_first_tokens_follow_the_models_distribution(llm):
    prompt = [31, 41, 59]
    expected = torch.softmax(llm.score(prompt)[-1].double() / 1.5, dim=-1).numpy()
    counts = np.zeros(VOCAB)
    for seed in range(12):
        params = SamplingParams(n=128, max_tokens=1, temperature=1.5, seed=seed)
        [result] = llm.generate([prompt], params)
        for completion in result.outputs:
            counts[completion.token_ids[0]] += 1
    expected *= counts.sum()
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    assert stats.chisquare(observed, wanted).pvalue > 1e-3


def test_one_bad_request_stops_the_batch_before_anything_runs(llm):
    with pytest.raises(InvalidRequestError, match=r"prompt 2: .*97.*0 to 96") as caught:
        llm.generate([[1], [2], [97], [3]], GREEDY)
    assert caught.value.param == "prompt_token_ids"
    assert llm.stats.steps == 0
    assert [r.token_ids for r in llm.generate([[1]], GREEDY)]
    assert llm.stats.kv_blocks_used == (0, 0)


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        ([[]], GREEDY, "empty"),
        ([1, 2], GREEDY, "list of token ids; got 1"),
        (["hi"], GREEDY, "list of token ids; got 'hi'"),
        ([[1]] * 2, [GREEDY], "2 prompts, but 1 sampling"),
        ([[1] * 256], GREEDY, "256 tokens"),
        ([[1] * 250], GREEDY, "at most 6"),
    ],
)
def test_bad_requests_are_refused_in_one_clear_line(llm, prompts, params, message):
    with pytest.raises(InvalidRequestError, match=message) as caught:
        llm.generate(prompts, params)
    assert "\n" not in str(caught.value)


def test_check_runs_nothing_and_finds_what_generate_would(llm):
    llm.check([[1], [2, 3]])
    with pytest.raises(InvalidRequestError, match="prompt 1: the prompt is empty"):
        llm.check([[1], []])
    assert llm.stats.steps == 0


def test_progress_goes_to_standard_error(llm, capsys):
    llm.generate([[1], [2], [3]], GREEDY, progress=True)
    captured = capsys.readouterr()
    assert captured.err.startswith("generating: 3 ")
    assert captured.out == ""


def test_streams_interleave_and_give_what_generate_gives(llm):
    prompts = [[1, 2, 3], [4] * 40]
    whole = [r.token_ids for r in llm.generate(prompts, GREEDY)]
    streams = [llm.stream(p, GREEDY) for p in prompts]
    parts = [[], []]
    for outputs in zip(*streams, strict=True):
        for part, output in zip(parts, outputs, strict=True):
            assert len(output.token_ids) == 1
            part += output.token_ids
    assert parts == whole


def test_a_stream_that_is_dropped_is_aborted(llm):
    long = SamplingParams(max_tokens=200, ignore_eos=True)
    stream = llm.stream([1, 2, 3], long)
    next(stream)
    with pytest.raises(RuntimeError, match="finish or close the stream"):
        llm.score([1, 2])
    del stream
    gc.collect()
    assert llm.stats.kv_blocks_used == (0, 0)
    assert llm.score([1, 2]).shape == (2, VOCAB)
    with llm.stream([1, 2, 3], long) as stream:
        next(stream)
    assert llm.stats.running == 0
    with pytest.raises(StopIteration):
        next(stream)


def test_a_stream_refuses_a_bad_prompt_at_once(llm):
    with pytest.raises(InvalidRequestError):
        llm.stream([VOCAB])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            {"quantization": "int4"},
            "unknown quantization 'int4'; choose one of auto, bf16, fp8, mxfp4",
        ),
        ({"dtype": "float16"}, "unknown dtype 'float16'; choose one of bfloat16, float32"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"load_format": "pickle"}, "unknown load_format"),
        ({"block_size": 0}, "block_size must be an integer from 1 to 65536; got 0"),
        ({"block_size": 16.0}, "block_size must be an integer .* got 16.0"),
        ({"max_num_seqs": 10**9}, "max_num_seqs must be an integer from 1 to 65536"),
        ({"seed": -1}, "seed must be an integer in"),
        ({"num_blocks": (2**40, 2**40)}, "num_blocks must be two integers"),
        (
            {"num_blocks": None, "kv_cache_bytes": 2**47},
            "no memory for the KV cache.*kv_cache_bytes",
        ),
        ({"chunk_size": 0}, "chunk_size must be an integer from 1"),
        ({"max_num_seqs": 4096}, "max_batched_tokens"),
        ({"num_blocks": (4, 0)}, "num_blocks"),
        ({"max_model_len": 257}, "positions end at 256"),
        ({"max_model_len": 200, "num_blocks": (4, 64)}, "ask for at most 64"),
        ({"num_blocks": (64, 2)}, "lower chunk_size"),
    ],
)
def test_options_that_cannot_work_say_why(folder, option, message):
    with pytest.raises(ConfigError, match=message) as caught:
        LLM(folder, **{**OPTIONS, **option})
    assert "\n" not in str(caught.value)


def test_quantization_is_the_checkpoints_own_unless_chosen(folder, tmp_path):
    def resolved(path, **choice):
        return EngineOptions(model=str(path), device="cpu", **choice).resolve().quantization

    assert resolved(folder) == "bf16"
    assert resolved(folder, quantization="fp8") == "fp8"
    packed = {**CONFIG, "quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "config.json").write_text(json.dumps(packed))
    assert resolved(tmp_path) == "mxfp4"
    assert resolved(tmp_path, quantization="bf16") == "bf16"


def test_a_chunk_is_never_larger_than_a_step_or_a_sequence(folder):
    def chunk(**choice):
        options = EngineOptions(model=folder, device="cpu", **choice)
        return options.resolve().scheduler.chunk_size

    assert chunk(chunk_size=500) == 500
    assert chunk(chunk_size=500, max_batched_tokens=100) == 100
    assert chunk(chunk_size=500, max_model_len=64) == 64


def test_cuda_is_refused_where_there_is_none(folder):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(ConfigError, match="no CUDA device"):
        LLM(folder, **{**OPTIONS, "device": "cuda"})


def test_one_token_short_of_the_limit_is_served(llm):
    [result] = llm.generate([[3] * 255], SamplingParams(temperature=0))
    assert len(result.token_ids) == 1
    [result] = llm.generate([[3] * 200], SamplingParams(temperature=0, ignore_eos=True))
    assert (len(result.token_ids), result.finish_reason) == (56, FinishReason.LENGTH)
    assert llm.score([3] * 255).shape == (255, VOCAB)


def options_of(folder):
    return EngineOptions(model=folder, **OPTIONS)


async def test_async_callers_share_one_engine(folder):
    with LLM(folder, **OPTIONS) as llm:
        prompts = [[i, 5, i] for i in range(12)]
        whole = [r.token_ids for r in llm.generate(prompts, GREEDY)]
    async with AsyncLLM(options_of(folder)) as engine:

        async def collect(prompt):
            return [t async for o in engine.generate(prompt, GREEDY) for t in o.token_ids]

        assert await asyncio.gather(*map(collect, prompts)) == whole
        with pytest.raises(InvalidRequestError, match="empty"):
            await collect([])
        assert await collect(prompts[3]) == whole[3]


@pytest.fixture
def slow_steps(monkeypatch):
    """Steps that take so long that no request ends by itself before a test is done with it."""
    step = Engine.step

    def slow_step(engine):
        time.sleep(0.1)
        return step(engine)

    monkeypatch.setattr(Engine, "step", slow_step)


async def test_cancelling_a_caller_aborts_its_request_only(folder, slow_steps):
    long = SamplingParams(max_tokens=240, ignore_eos=True, n=2)
    async with AsyncLLM(options_of(folder)) as engine:
        started = asyncio.Event()

        async def consume():
            async for _ in engine.generate([1, 2], long):
                started.set()

        task = asyncio.create_task(consume())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        tokens = [t async for o in engine.generate([3, 4], GREEDY) for t in o.token_ids]
        assert len(tokens) == 8


async def exhaust(stream):
    async for _ in stream:
        pass


async def test_closing_ends_what_is_in_flight_with_an_error(folder, slow_steps):
    engine = AsyncLLM(options_of(folder))
    stream = engine.generate([1, 2], SamplingParams(max_tokens=250, ignore_eos=True))
    await anext(stream)
    await asyncio.to_thread(engine.close)
    with pytest.raises(EngineDeadError, match="closed"):
        await asyncio.wait_for(exhaust(stream), 60)
    with pytest.raises(EngineDeadError):
        await anext(engine.generate([1], GREEDY))

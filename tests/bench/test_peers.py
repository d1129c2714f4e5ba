"""The adapters of vLLM and SGLang, against stand-ins of the interfaces that they call."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from rose.bench import machine, peers
from rose.bench.engines import check_shardings, start_subject
from rose.bench.peers import PeerOptions, Sglang, Vllm, steady_steps
from rose.bench.results import BenchError, Sharding
from rose.bench.subject import DoesNotFitError
from rose.options import EngineOptions


class VllmEngine:
    """Gives every request one token a step, after as many steps as its prompt is long."""

    def __init__(self):
        self.requests, self.asked = {}, []

    def add_request(self, name, prompt, params):
        assert name not in self.requests
        self.requests[name] = [len(prompt["prompt_token_ids"]), params.max_tokens]
        self.asked.append(params)

    def step(self):
        outputs = []
        for name, state in list(self.requests.items()):
            state[0] -= 1
            if state[0] <= 0:
                state[1] -= 1
                outputs.append(
                    SimpleNamespace(request_id=name, outputs=[SimpleNamespace(token_ids=[1])])
                )
                if not state[1]:
                    del self.requests[name]
        return outputs

    def abort_request(self, names):
        for name in names:
            self.requests.pop(name, None)

    def has_unfinished_requests(self):
        return bool(self.requests)


@pytest.fixture
def vllm(monkeypatch):
    module, sampling = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    started = {}

    def llm(**options):
        started.update(options)
        return SimpleNamespace(llm_engine=VllmEngine())

    module.LLM, module.SamplingParams = llm, SimpleNamespace
    sampling.RequestOutputKind = SimpleNamespace(DELTA="delta")
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", sampling)
    monkeypatch.setattr(peers, "package_version", lambda name: "1.2")
    return started


def options(tmp_path, **changes):
    defaults = {
        "folder": tmp_path,
        "load_format": "dummy",
        "sharding": Sharding(tp=2, ep=2),
        "longest": 1000,
        "max_num_seqs": None,
        "max_batched_tokens": None,
        "seed": 0,
    }
    return PeerOptions(**{**defaults, **changes})


def test_vllm_is_stepped_as_we_are(vllm, tmp_path):
    subject = Vllm(options(tmp_path))
    assert subject.name == "vllm 1.2"
    assert (vllm["tensor_parallel_size"], vllm["enable_expert_parallel"]) == (2, True)
    assert vllm["load_format"] == "dummy"
    assert subject.prefill([[1, 2], [3, 4]]) > 0
    run = subject.decode([[1, 2], [3, 4]], warmup=2, steps=5)
    assert len(run.samples) == 5
    assert run.contexts == (2 + 1 + 2, 2 + 1 + 2)
    engine = subject._llm.llm_engine
    assert not engine.requests
    params = engine.asked[-1]
    assert params.ignore_eos
    assert not params.detokenize
    assert (params.temperature, params.output_kind) == (1.0, "delta")
    subject.close()


def test_lengths_that_a_peer_refuses(vllm, tmp_path):
    subject = Vllm(options(tmp_path))
    assert subject.refuse_prefill(999) is None
    assert "exceed the longest sequence, 1000" in subject.refuse_prefill(1000)
    assert "exceed the longest sequence, 1000" in subject.refuse_decode(1, 900, 101)


class SglangEngine:
    """Streams tokens of all prompts in turns, the second starting two tokens late."""

    def __init__(self, **started):
        self.started = started

    def generate(self, input_ids, sampling_params, stream=False):
        most = sampling_params["max_new_tokens"]
        if not stream:
            return [{}] * len(input_ids)
        late = [2 * index for index in range(len(input_ids))]
        return (
            {"index": index, "meta_info": {"completion_tokens": turn - late[index]}}
            for turn in range(1, most + max(late) + 1)
            for index in range(len(input_ids))
            if 1 <= turn - late[index] <= most
        )

    def shutdown(self):
        self.started.clear()


def test_sglang_is_timed_between_streamed_tokens(monkeypatch, tmp_path):
    module = ModuleType("sglang")
    module.Engine = SglangEngine
    monkeypatch.setitem(sys.modules, "sglang", module)
    subject = Sglang(options(tmp_path))
    assert subject._engine.started["skip_tokenizer_init"]
    assert subject.prefill([[1] * 4]) > 0
    run = subject.decode([[1] * 4] * 2, warmup=3, steps=6)
    assert len(run.samples) == 6
    assert run.contexts == (4 + 1 + 3, 4 + 3 + 3)
    subject.close()
    assert not subject._engine.started


def test_steady_steps_are_those_of_the_last_to_start():
    events = [(0.0, 0, 1), (1.0, 0, 2), (1.5, 1, 1)]
    events += [(when, index, when + 1 - index) for when in range(2, 8) for index in (0, 1)]
    samples, before = steady_steps(events, batch=2, warmup=1, steps=3)
    assert samples == [1.0, 1.0, 1.0]
    assert before == (2, 3)


def test_sequences_that_do_not_run_side_by_side():
    alone = [(float(when), 0, when + 1) for when in range(5)]
    after = [(10.0 + when, 1, when + 1) for when in range(5)]
    with pytest.raises(DoesNotFitError, match="did not run side by side"):
        steady_steps(alone + after, batch=2, warmup=0, steps=3)
    with pytest.raises(DoesNotFitError, match="did not run side by side"):
        steady_steps(alone, batch=1, warmup=0, steps=5)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_peer_that_is_not_installed(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    asked = EngineOptions(model="nano", device="cpu")
    with pytest.raises(BenchError, match=f"--engine {name}: {name} cannot be imported here"):
        start_subject(name, asked, asked.resolve(), Sharding())


def test_shardings_that_cannot_run_are_named_all_at_once():
    wanted = [Sharding(), Sharding(tp=2), Sharding(tp=2, ep=2)]
    with pytest.raises(BenchError) as error:
        check_shardings("rose", wanted, gpus=8)
    text = str(error.value)
    assert "tp2: this Rose runs a model on one GPU; ep2tp2:" in text
    assert text.endswith("These would do: tp1")
    check_shardings("rose", [Sharding()], gpus=0)


def test_shardings_of_a_peer():
    check_shardings("vllm", [Sharding(), Sharding(tp=2), Sharding(tp=2, ep=2)], gpus=2)
    with pytest.raises(BenchError, match=r"tp4: needs 4 GPUs, and this machine has 2\. These.*tp2"):
        check_shardings("vllm", [Sharding(tp=2), Sharding(tp=4)], gpus=2)
    with pytest.raises(BenchError, match="dp2: data parallelism of sglang is not driven"):
        check_shardings("sglang", [Sharding(dp=2)], gpus=8)
    with pytest.raises(BenchError, match="ep2tp4: vllm spreads experts over all its GPUs or none"):
        check_shardings("vllm", [Sharding(tp=4, ep=2)], gpus=8)


def test_versions_of_packages():
    assert machine.package_version("click")
    assert machine.package_version("no-such-distribution") is None

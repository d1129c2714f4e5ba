"""Stand-ins of vLLM and SGLang that take no argument that the packages do not.

Names, order and behaviour are those of vLLM 0.26.0 and 0.33.0 and of SGLang 0.5.17 and 0.5.23, as
far as `rose bench` meets them: what both releases of a package have.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

from rose.bench.peers import PeerOptions
from rose.bench.results import Sharding

VLLM_ENGINE_ARGS = {
    "load_format",
    "enable_expert_parallel",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_prefix_caching",
    "async_scheduling",
    "disable_log_stats",
}
"""Of EngineArgs, which LLM takes beside the parameters of its own."""

VLLM_SAMPLING = {
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "max_tokens",
    "min_tokens",
    "logprobs",
    "detokenize",
    "output_kind",
    "skip_reading_prefix_cache",
}

SGLANG_SERVER_ARGS = {
    "model_path",
    "skip_tokenizer_init",
    "load_format",
    "tp_size",
    "ep_size",
    "context_length",
    "max_running_requests",
    "chunked_prefill_size",
    "mem_fraction_static",
    "disable_radix_cache",
    "stream_interval",
    "random_seed",
    "log_level",
}

SGLANG_SAMPLING = {
    "max_new_tokens",
    "temperature",
    "top_p",
    "top_k",
    "ignore_eos",
    "stream_interval",
    "stop_token_ids",
}


def options(folder, *, max_num_seqs=None, max_batched_tokens=None):
    """What an adapter is made with: two GPUs, dummy weights, sequences of up to 1000 tokens."""
    return PeerOptions(
        folder=folder,
        load_format="dummy",
        sharding=Sharding(tp=2, ep=2),
        longest=1000,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens,
        seed=3,
    )


def install(monkeypatch, name, **members):
    """Make `import name` find a module with these members."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


class VllmCore:
    def __init__(self):
        self.running = True

    def shutdown(self, timeout=None):
        self.running = False


class VllmEngine:
    """A prompt takes as many steps as it is long; results name requests as the caller did."""

    def __init__(self, options):
        scheduler = SimpleNamespace(
            max_num_batched_tokens=options.get("max_num_batched_tokens") or 16384,
            max_num_seqs=options.get("max_num_seqs") or 1024,
            async_scheduling=True,
        )
        cache = SimpleNamespace(gpu_memory_utilization=0.92, enable_prefix_caching=True)
        graphs = SimpleNamespace(cudagraph_mode="FULL", max_cudagraph_capture_size=1024)
        self.vllm_config = SimpleNamespace(
            scheduler_config=scheduler, cache_config=cache, compilation_config=graphs
        )
        self.engine_core = VllmCore()
        self.requests, self.asked, self.known = {}, [], set()

    def add_request(self, request_id, prompt, params, arrival_time=None, lora_request=None):
        assert isinstance(request_id, str)
        assert request_id not in self.requests
        ids = prompt["prompt_token_ids"]
        cached = len(ids) // 16 * 16 if tuple(ids) in self.known else 0
        self.known.add(tuple(ids))
        self.requests[request_id] = [len(ids), params.max_tokens, cached]
        self.asked.append(params)
        return f"{request_id}-{len(self.asked):08}"

    def step(self):
        outputs = []
        for name, state in list(self.requests.items()):
            state[0] -= 1
            if state[0] > 0:
                continue
            state[1] -= 1
            output = SimpleNamespace(token_ids=[1], finish_reason=None)
            outputs.append(
                SimpleNamespace(request_id=name, outputs=[output], num_cached_tokens=state[2])
            )
            if not state[1]:
                del self.requests[name]
        return outputs

    def abort_request(self, request_ids, internal=False):
        assert not internal, "these are names that the caller gave"
        for name in request_ids:
            self.requests.pop(name, None)

    def has_unfinished_requests(self):
        return bool(self.requests)


class VllmLLM:
    """Remembers what the last was started with."""

    last = None

    def __init__(
        self,
        model,
        *,
        tokenizer=None,
        skip_tokenizer_init=False,
        tensor_parallel_size=1,
        seed=0,
        gpu_memory_utilization=0.92,
        enforce_eager=False,
        **kwargs,
    ):
        assert set(kwargs) <= VLLM_ENGINE_ARGS
        assert skip_tokenizer_init
        self.started = {
            "model": model,
            "tensor_parallel_size": tensor_parallel_size,
            "seed": seed,
            **kwargs,
        }
        self.llm_engine = VllmEngine(kwargs)
        type(self).last = self


def vllm_sampling(**fields):
    assert set(fields) <= VLLM_SAMPLING
    return SimpleNamespace(**fields)


def install_vllm(monkeypatch):
    """The modules that the adapter imports."""
    install(monkeypatch, "vllm", LLM=VllmLLM, SamplingParams=vllm_sampling)
    kinds = SimpleNamespace(CUMULATIVE="cumulative", DELTA="delta", FINAL_ONLY="final")
    install(monkeypatch, "vllm.sampling_params", RequestOutputKind=kinds)


class SglangEngine:
    """Streams as SGLang does: the first token, every `stream_interval`th after it, and the last.

    Sequence i begins i steps late. In every tenth step whoever listens is late, and gets the next
    step's token in one chunk with this one's.
    """

    last = None

    def __init__(self, **kwargs):
        assert set(kwargs) <= SGLANG_SERVER_ARGS
        self.started = kwargs
        self.asked, self.known, self.events = [], set(), 0
        self.retractions, self.reason = 0, None
        type(self).last = self

    def generate(self, prompt=None, sampling_params=None, input_ids=None, *, stream=False):
        longest = self.started["context_length"]
        many = isinstance(sampling_params, list)
        self.asked = sampling_params if many else [sampling_params] * len(input_ids)
        for ids, sampling in zip(input_ids, self.asked, strict=True):
            assert set(sampling) <= SGLANG_SAMPLING
            assert len(ids) < longest - 6, "Input length exceeds the maximum allowed length"
            assert len(ids) + sampling["max_new_tokens"] <= longest - 2, "silently cut"
        if not stream:
            return [{"output_ids": [1], "meta_info": self.meta(ids, 1, 1)} for ids in input_ids]
        return self.chunks(input_ids)

    def chunks(self, prompts):
        most = self.asked[0]["max_new_tokens"]
        for turn in range(1, most + len(prompts)):
            for index, ids in enumerate(prompts):
                tokens = turn - index
                if not 1 <= tokens <= most or (turn % 10 == 0 and 1 < tokens < most):
                    continue
                every = self.asked[index]["stream_interval"] or self.started["stream_interval"]
                if every == 1 or tokens in (1, most) or tokens % every == 1:
                    self.events += 1
                    yield {"index": index, "meta_info": self.meta(ids, tokens, most)}

    def meta(self, ids, tokens, most):
        cached = len(ids) - 1 if tuple(ids) in self.known else 1
        self.known.add(tuple(ids))
        reason = self.reason or {"type": "length", "length": most}
        return {
            "completion_tokens": tokens,
            "cached_tokens": cached,
            "finish_reason": reason if tokens == most else None,
            "num_retractions": self.retractions,
        }

    def get_server_info(self):
        return {"chunked_prefill_size": 8192, "attention_backend": "fa3", "version": "0.5.17"}

    def shutdown(self):
        self.started = None


def install_sglang(monkeypatch):
    """The module that the adapter imports."""
    install(monkeypatch, "sglang", Engine=SglangEngine)

"""vLLM as a subject of the measurement, through its offline class."""

import gc
from importlib import import_module

from rose.bench.peers import Peer, PeerOptions, check_cold, load_module
from rose.bench.subject import TEMPERATURE, DecodeRun, time_steps, time_to_first_tokens

TOLD = (
    ("scheduler_config", ("max_num_batched_tokens", "max_num_seqs", "async_scheduling")),
    ("cache_config", ("gpu_memory_utilization", "enable_prefix_caching")),
    ("compilation_config", ("cudagraph_mode", "max_cudagraph_capture_size")),
)
"""Settings that it resolved itself, by part of its configuration; another release may lack some."""


class Vllm(Peer):
    """vLLM's offline class: a Subject, and a Stepper by its engine's own steps.

    Its engine runs in a process of its own and ahead of us: a step of ours takes the next of its
    results, and the time between two is its own as long as we are faster.

    Raises:
        BenchError: it cannot be imported, or does not start.
    """

    def __init__(self, options: PeerOptions) -> None:
        vllm = load_module("vllm")
        super().__init__("vllm", options)
        self._sampling = vllm.SamplingParams
        # Only what is new in each output; the default repeats all ids of a sequence every step.
        self._delta = import_module("vllm.sampling_params").RequestOutputKind.DELTA
        llm = self.start(
            lambda: vllm.LLM(
                model=str(options.folder),
                skip_tokenizer_init=True,
                load_format=options.load_format,
                tensor_parallel_size=options.sharding.tp,
                enable_expert_parallel=options.sharding.ep > 1,
                max_model_len=options.longest,
                max_num_seqs=options.max_num_seqs,
                max_num_batched_tokens=options.max_batched_tokens,
                seed=options.seed,
            )
        )
        self._engine = llm.llm_engine
        self._describe()
        self._open: dict[str, int] = {}
        self._count = 0
        self._cached = 0  # tokens of the prompts in flight that the prefix cache held
        # As with Rose: what is loaded stays, and is not to be looked through while timing.
        gc.collect()
        gc.freeze()

    def prefill(self, prompts: list[list[int]]) -> float:
        """See Subject."""
        self._cached = 0
        try:
            seconds = time_to_first_tokens(self, prompts)
        finally:
            self.drop()
        check_cold(self._cached, prompts)
        return seconds

    def decode(self, prompts: list[list[int]], warmup: int, steps: int) -> DecodeRun:
        """See Subject."""
        return time_steps(self, prompts, warmup=warmup, steps=steps, ramp=self.ramp(prompts))

    def submit(self, prompts: list[list[int]], max_tokens: int) -> None:
        """See Stepper."""
        params = self._sampling(
            max_tokens=max_tokens,
            temperature=TEMPERATURE,
            ignore_eos=True,
            detokenize=False,
            output_kind=self._delta,
        )
        for index, prompt in enumerate(prompts):
            name = f"bench-{self._count}"
            self._count += 1
            self._open[name] = index
            self._engine.add_request(name, {"prompt_token_ids": prompt}, params)

    def step(self) -> list[int]:
        """See Stepper."""
        outputs = [one for one in self._engine.step() if one.outputs[0].token_ids]
        self._cached += sum(one.num_cached_tokens or 0 for one in outputs)
        return [self._open[one.request_id] for one in outputs]

    def drop(self) -> None:
        """See Stepper; vLLM skips what still comes of requests that were aborted."""
        self._engine.abort_request(list(self._open))
        while self._engine.has_unfinished_requests():
            self._engine.step()
        self._open.clear()

    def close(self) -> None:
        """See Subject; ends its processes, which hold the memory."""
        gc.unfreeze()
        self._engine.engine_core.shutdown()
        del self._engine
        gc.collect()

    def _describe(self) -> None:
        config = self._engine.vllm_config
        self._most = config.scheduler_config.max_num_seqs
        self._chunk = min(self._chunk, config.scheduler_config.max_num_batched_tokens)
        parts = [(getattr(config, part), names) for part, names in TOLD]
        self.tell({n: getattr(part, n) for part, names in parts for n in names if hasattr(part, n)})

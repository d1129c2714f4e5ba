"""SGLang as a subject of the measurement, through its Engine."""

import gc
import time
from collections.abc import Mapping

from rose.bench.peers import Peer, PeerOptions, check_cold, load_module
from rose.bench.results import BenchError
from rose.bench.streamed import Told, steady_steps
from rose.bench.subject import TEMPERATURE, DecodeRun, DoesNotFitError

SPARE = 6
"""Tokens of its longest sequence that it gives to no prompt."""

SELDOM = 1 << 30
"""Tokens between two words of a sequence whose steps nobody listens to."""

TOLD = (
    "chunked_prefill_size",
    "max_prefill_tokens",
    "max_total_num_tokens",
    "mem_fraction_static",
    "attention_backend",
    "moe_runner_backend",
    "disable_radix_cache",
    "disable_overlap_schedule",
)
"""Settings that it resolved itself; another release may lack some."""


class Sglang(Peer):
    """SGLang's Engine: it cannot be stepped, so that steps are times between streamed tokens.

    Raises:
        BenchError: it cannot be imported, or does not start.
    """

    def __init__(self, options: PeerOptions) -> None:
        sglang = load_module("sglang")
        super().__init__("sglang", options, spare=SPARE)
        # One more than asked for: 0.5.17 counts a prompt that it computes in chunks twice, and
        # then leaves the last sequence of a full batch waiting until another has ended.
        limit = None if options.max_num_seqs is None else options.max_num_seqs + 1
        self._engine = self.start(
            lambda: sglang.Engine(
                model_path=str(options.folder),
                skip_tokenizer_init=True,
                load_format=options.load_format,
                tp_size=options.sharding.tp,
                ep_size=options.sharding.ep,
                context_length=options.longest,
                max_running_requests=limit,
                chunked_prefill_size=options.max_batched_tokens,
                stream_interval=1,
                random_seed=options.seed,
            )
        )
        info = self._engine.get_server_info()
        self.tell({name: info[name] for name in TOLD if name in info})
        gc.collect()
        gc.freeze()

    def prefill(self, prompts: list[list[int]]) -> float:
        """See Subject."""
        begin = time.perf_counter()
        outputs = self._engine.generate(input_ids=prompts, sampling_params=_sampling(1))
        seconds = time.perf_counter() - begin
        check_cold(sum(one["meta_info"]["cached_tokens"] for one in outputs), prompts)
        return seconds

    def decode(self, prompts: list[list[int]], warmup: int, steps: int) -> DecodeRun:
        """See Subject."""
        batch, length = len(prompts), len(prompts[0])
        # The first to start must still run when the last has done all its steps.
        most = min(self.ramp(prompts) + warmup + steps + 1, self._longest - length)
        quiet = [_sampling(most, SELDOM) for _ in prompts[1:]]
        chunks = self._engine.generate(
            input_ids=prompts, sampling_params=[*quiet, _sampling(most, 1)], stream=True
        )
        told, preempted = [], 0
        for chunk in chunks:
            now, meta = time.perf_counter(), chunk["meta_info"]
            _check_finish(meta["finish_reason"])
            preempted = max(preempted, meta["num_retractions"])
            told.append(Told(now, chunk["index"], meta["completion_tokens"]))
        if preempted:
            raise DoesNotFitError(
                f"sequences among the {batch} were preempted: give the KV cache more memory, or "
                "ask for a smaller batch"
            )
        samples, contexts = steady_steps(told, batch, most=most, warmup=warmup, steps=steps)
        return DecodeRun(samples, (length + contexts[0], length + contexts[1]))

    def close(self) -> None:
        """See Subject."""
        gc.unfreeze()
        self._engine.shutdown()


def _sampling(max_tokens: int, interval: int | None = None) -> dict[str, object]:
    return {
        "max_new_tokens": max_tokens,
        "temperature": TEMPERATURE,
        "ignore_eos": True,
        "stream_interval": interval,
    }


def _check_finish(reason: Mapping[str, object] | None) -> None:
    if reason is not None and reason["type"] != "length":
        raise BenchError(f"sglang ended a sequence: {reason.get('message') or reason['type']}")

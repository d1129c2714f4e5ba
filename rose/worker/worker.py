"""One rank: its device, its share of the model, its KV cache."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from rose.config import CacheConfig, ConfigError, EngineConfig, ModelConfig
from rose.core.mapping import ParallelMapping
from rose.core.step import SchedulerOutput
from rose.decoders.decoder import PlainDecoder
from rose.kernels.cuda.nvrtc import CompileError
from rose.kernels.dispatch import Implementation, Shape, choose, only
from rose.kernels.paged_kv import LayerKV
from rose.models.gpt_oss import GptOss
from rose.models.layouts import WeightSource
from rose.models.weights import load_dummy, load_weights
from rose.progress import Progress, note
from rose.protocol import Grammar
from rose.quant import quant_scheme
from rose.worker.block_tables import BlockTables
from rose.worker.cuda_graph import CudaCapture, DecodeGraphs, capturable, decode_buckets
from rose.worker.forward_batch import BatchBuilder
from rose.worker.grammar import SlotGrammars
from rose.worker.kv_cache import allocate_kv, block_bytes
from rose.worker.largest_step import largest_step, rehearsal, scratch_cache
from rose.worker.memory import (
    CudaMemory,
    DeviceMemory,
    HostMemory,
    MemoryPlan,
    grammar_bytes,
    graph_bytes,
    memory_for,
    memory_line,
    require_room_for_weights,
)
from rose.worker.model_runner import LogitsObserver, ModelRunner
from rose.worker.sampler import Sampler, SlotParams
from rose.worker.step_result import PendingStep
from rose.worker.token_pool import TokenPool

COMPILER_THREADS = 16
"""A model has some forty kernels; with their variants for sizes, each takes up to two seconds."""

CPU_KV_BYTES = 1 << 30
"""A host's memory is not the engine's alone; `kv_cache_bytes` asks for more."""

LOG_LINES = 5
"""Of what a compiler printed, shown where it fails: the first say what is wrong."""

SMALL_HIDDEN_SIZE = 512
"""Products of models up to this width end before a second thread has woken up."""


def default_cpu_threads(model: ModelConfig) -> int:
    """Threads for a model on a CPU: one if it is small, else as many as torch has.

    Threads that wait for each other many times a millisecond stall whenever another process takes
    a core: with two busy cores, two threads decoded a model of 256 wide 25 times slower than one.
    """
    return 1 if model.hidden_size <= SMALL_HIDDEN_SIZE else torch.get_num_threads()


def _cannot_compile(error: CompileError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    shown = " | ".join(lines[: 1 + LOG_LINES])
    return (
        f"NVRTC is installed but cannot compile the kernels in CUDA C++: {shown}; reinstall NVRTC, "
        "or do without them: --kernels triton"
    )


@dataclass(frozen=True, slots=True)
class _State:
    """What the device keeps between steps."""

    kv: list[LayerKV]
    pool: TokenPool
    tables: BlockTables


class Worker:
    """Loads the model on construction; `allocate` once, then `run` steps.

    Args:
        config: of the engine.
        mapping: this rank's place.
        observer: sees logits; None: nobody does.
        memory: of the device, to be measured; None: a GPU's own, and nothing on a CPU.

    Raises:
        ConfigError: the weights do not fit.
        CheckpointError: they cannot be read.
    """

    def __init__(
        self,
        config: EngineConfig,
        mapping: ParallelMapping,
        observer: LogitsObserver | None,
        memory: DeviceMemory | None = None,
    ) -> None:
        self._config = config
        self._observer = observer
        self._device = torch.device(config.device)
        if config.device == "cpu":
            torch.set_num_threads(config.cpu_threads or default_cpu_threads(config.model))
        elif memory is None:
            memory = CudaMemory(self._device)
        self._memory = memory
        self._dtype = torch.float32 if config.dtype == "float32" else torch.bfloat16
        # Before memory is taken: here it shows if the checkpoint is not what its config says.
        source = None
        if config.load_format != "dummy":
            source = WeightSource(config.path, config.model)
        require_room_for_weights(
            memory or HostMemory(),
            config.model,
            config.quantization,
            self._dtype,
            config.dense_quantization,
        )
        # The kernels that will serve decide how weights are stored.
        remedy = "a smaller quantization or a larger device would do"
        with memory_for("the weights", remedy), self._kernels():
            self._model = GptOss(
                config.model,
                scheme=quant_scheme(config.quantization),
                mapping=mapping,
                dtype=self._dtype,
                device=self._device,
                dense_scheme=quant_scheme(config.dense_quantization),
            )
            if source is None:
                load_dummy(self._model, config.seed)
            else:
                load_weights(self._model, source, config.model)
        self._grammars = SlotGrammars(
            config.path / "tokenizer.json",
            vocab_size=config.model.vocab_size,
            eos_token_ids=config.model.eos_token_ids,
        )
        self._fused = self._device.type == "cuda" and self._capturable()
        self._captures = config.cuda_graphs and self._fused
        self._weight_bytes = sum(parameter.nbytes for parameter in self._model.parameters())
        self._step_bytes: int | None = None
        self._compiled = False
        self._runner: ModelRunner | None = None

    def _capturable(self) -> bool:
        config = self._config
        operand = torch.empty(0, dtype=self._dtype, device=self._device)
        with self._kernels():
            return capturable(config.model, config.quantization, operand, config.block_size)

    def kv_bytes(self) -> int:
        """Bytes that the KV cache may take: asked for, or measured with the weights in place.

        Raises:
            ConfigError: the largest step, or the KV of one chunk, does not fit; or a kernel does
                not compile.
        """
        config = self._config
        if config.kv_cache_bytes is not None:
            return config.kv_cache_bytes
        if self._memory is not None:
            plan = self._measure(self._memory)
            chunk = config.scheduler.chunk_size
            full, sliding = self.block_bytes(config.block_size)
            blocks = -(-chunk // config.block_size)
            windowed = scratch_cache(config).windowed_blocks(chunk)
            plan.require_kv(blocks * full + windowed * sliding, chunk)
            return plan.kv
        longest = config.longest_sequence
        blocks = config.scheduler.max_num_seqs * (longest // config.block_size + 1)
        return min(CPU_KV_BYTES, blocks * sum(self.block_bytes(config.block_size)))

    def block_bytes(self, block_size: int) -> Sequence[int]:
        """Bytes of one block over this rank's layers of each KV group."""
        return block_bytes(self._config.model, block_size, self._dtype)

    def _measure(self, memory: DeviceMemory) -> MemoryPlan:
        """Run the largest step, and see what is left."""
        config, scheduler = self._config, self._config.scheduler
        tokens = f"{scheduler.max_batched_tokens} tokens, {scheduler.max_num_seqs} of them sampled"
        remedy = "lower max_batched_tokens or max_num_seqs, or use a smaller quantization"
        with memory_for(f"a step of {tokens}", remedy):
            self._compile()
            note(f"Running a step of {tokens}, to measure what it takes")
            peak = memory.peak(self._run_largest_step)
        buckets = decode_buckets(scheduler.max_num_seqs) if self._captures else []
        self._step_bytes = peak + grammar_bytes(config.model, scheduler.max_num_seqs)
        return MemoryPlan(
            total=memory.total(),
            free=memory.free(),
            weights=self._weight_bytes,
            step=self._step_bytes,
            graphs=graph_bytes(config.model, buckets),
        )

    @torch.inference_mode()
    def _run_largest_step(self) -> None:
        with self._kernels():
            self._scratch_runner().run(largest_step(self._config)).result()

    @torch.inference_mode()
    def _compile(self) -> None:
        """Compile the kernels of steps of all sizes, many at a time; once.

        Raises:
            ConfigError: NVRTC, which was found, does not compile.
        """
        if self._compiled or not self._fused:
            return
        from rose.kernels.fused.compile_ahead import compile_ahead

        self._compiled = True
        threads = min(len(os.sched_getaffinity(0)), COMPILER_THREADS)
        try:
            with self._kernels(), compile_ahead(threads):
                self._run_rehearsal("Looking for kernels to compile")
                note(f"Compiling kernels, {threads} at a time")
        except CompileError as error:
            raise ConfigError(_cannot_compile(error)) from error

    def _rehearse(self) -> None:
        """Run steps of all sizes, so that no request is the first to use a kernel."""
        self._compile()
        self._run_rehearsal("Rehearsing")

    def _run_rehearsal(self, what: str) -> None:
        runner, steps = self._scratch_runner(), list(rehearsal(self._config))
        with Progress(what, total=len(steps), unit="steps") as progress:
            for step in steps:
                runner.run(step).result()
                progress.advance()

    def _scratch_runner(self) -> ModelRunner:
        """For steps whose results do not matter; before the KV cache is allocated."""
        cache = scratch_cache(self._config)
        state = self._make_state(cache, self._config.longest_sequence)
        return self._make_runner(state, cache, observer=None)

    @torch.inference_mode()
    def allocate(self, cache: CacheConfig, max_model_len: int) -> None:
        """Allocate the KV cache and the slots' state, and capture CUDA graphs.

        Raises:
            ConfigError: they do not fit, or a kernel does not compile.
        """
        remedy = "lower kv_cache_bytes, num_blocks, max_num_seqs or max_model_len"
        with memory_for("the KV cache and the sequences' state", remedy), self._kernels():
            self._allocate(cache, max_model_len)

    def _allocate(self, cache: CacheConfig, max_model_len: int) -> None:
        self._grammars.preload()
        if self._fused:
            self._rehearse()
        if self._memory is not None:
            self._memory.free()  # what the rehearsal held must not lie in the cache's way
        state = self._make_state(cache, max_model_len)
        self._runner = self._make_runner(state, cache, self._observer)
        before = self._memory.free() if self._memory is not None else 0
        if self._captures:
            self._runner.graphs = self._capture(state, cache)
        elif self._config.cuda_graphs and self._device.type == "cuda":
            note("No CUDA graphs: reference kernels serve here, and they wait for the GPU")
        if self._memory is not None:
            self._tell_memory(self._memory, cache, before)

    def _make_state(self, cache: CacheConfig, max_model_len: int) -> _State:
        slots = self._config.scheduler.max_num_seqs
        return _State(
            kv=allocate_kv(self._config.model, cache, self._dtype, self._device),
            pool=TokenPool(slots, max_model_len, self._device),
            tables=BlockTables(cache, slots, max_model_len, self._device),
        )

    def _make_runner(
        self, state: _State, cache: CacheConfig, observer: LogitsObserver | None
    ) -> ModelRunner:
        params = SlotParams(self._config.scheduler.max_num_seqs, self._config.model.vocab_size)
        sampler = Sampler(params, state.pool, self._device)
        return ModelRunner(
            model=self._model,
            kv=state.kv,
            builder=BatchBuilder(
                tables=state.tables,
                pool=state.pool,
                window=cache.window,
                plan_launches=self._plans_launches(state.kv[0]),
                device=self._device,
            ),
            pool=state.pool,
            params=params,
            sampler=sampler,
            decoder=PlainDecoder(sampler),
            grammars=self._grammars,
            observer=observer,
        )

    def _capture(self, state: _State, cache: CacheConfig) -> DecodeGraphs:
        return DecodeGraphs(
            model=self._model,
            kv=state.kv,
            pool=state.pool,
            tables=state.tables,
            window=cache.window,
            buckets=decode_buckets(self._config.scheduler.max_num_seqs),
            width=1,
            capture=CudaCapture(),
            device=self._device,
        )

    def _tell_memory(self, memory: DeviceMemory, cache: CacheConfig, before_graphs: int) -> None:
        """Print where the device's memory went."""
        free = memory.free()
        blocks = zip(cache.num_blocks, self.block_bytes(cache.block_size), strict=True)
        parts = {
            "weights": self._weight_bytes,
            "KV cache": sum(count * size for count, size in blocks),
            "CUDA graphs": before_graphs - free,
        }
        note(memory_line(memory.total(), free, parts, self._step_bytes))

    def _plans_launches(self, kv: LayerKV) -> bool:
        shape = Shape(head_dim=kv.key.shape[3], block_size=kv.key.shape[1])
        return choose("attention", kv.key, shape) is not Implementation.REFERENCE

    def check_grammar(self, grammar: Grammar) -> None:
        """Compile a grammar that sequences of coming steps follow.

        Raises:
            InvalidRequestError: it cannot be followed.
        """
        self._grammars.check(grammar)

    @torch.inference_mode()
    def run(self, step: SchedulerOutput) -> PendingStep:
        """Enqueue one step."""
        if self._runner is None:
            raise RuntimeError("allocate() must come before the first step")
        with self._kernels():
            return self._runner.run(step)

    def _kernels(self) -> AbstractContextManager[None]:
        """The implementations that may serve, as the user chose."""
        match self._config.kernels:
            case "reference":
                return only(Implementation.REFERENCE)
            case "triton":
                return only(Implementation.TRITON)
            case "auto":
                return nullcontext()

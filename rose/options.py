"""What a user may choose about an engine, in one frozen object.

`LLM`, `AsyncLLM`, the command line and the engine process all build the same `EngineOptions` and
call `resolve()` where the model is to run: it finds the checkpoint and the device. The options are
plain values, so they can cross to another process.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from rose.config import (
    ConfigError,
    DenseQuantization,
    Dtype,
    EngineConfig,
    Kernels,
    LoadFormat,
    ModelConfig,
    Quantization,
    SchedulerConfig,
)
from rose.protocol import SEED_LIMIT

Device = Literal["auto", "cpu", "cuda"]
QuantizationChoice = Literal["auto", "bf16", "fp8", "mxfp4"]

_MOST = {
    "block_size": 2**16,
    "chunk_size": 2**31 - 1,
    "max_num_seqs": 2**16,
    "max_batched_tokens": 2**31 - 1,
    "max_model_len": 2**31 - 1,
    "priority_aging": 2**31 - 1,
    "kv_cache_bytes": 2**48,
    "cpu_threads": 1024,
}
"""Beyond these a number is a slip of the hand, and would take the host's memory with it."""

MAX_BLOCKS = 2**28
"""KV blocks of a group; each is an entry of the block manager's tables."""


@dataclass(frozen=True, slots=True)
class _Defaults:
    """What a user who says nothing gets on one kind of device."""

    block_size: int
    max_num_seqs: int
    max_batched_tokens: int


_CPU_DEFAULTS = _Defaults(block_size=16, max_num_seqs=64, max_batched_tokens=2048)
# Of 8192 tokens each of 128 experts gets 256 on average: enough rows to be bound by arithmetic.
_GPU_DEFAULTS = _Defaults(block_size=128, max_num_seqs=256, max_batched_tokens=8192)

_DTYPE_NAMES = {"bf16": "bfloat16", "fp32": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """A user's choices; every default is what a user who says nothing gets.

    Attributes:
        model: a built-in model ("nano"), a checkpoint folder, or a Hugging Face id; for dummy
            weights also "gpt-oss-20b" or "gpt-oss-120b".
        served_name: the name that clients ask for; None: the built-in model's own ("rose-nano"),
            a folder's name without its path, or the Hugging Face id.
        quantization: how the experts are stored and multiplied: "bf16", "fp8", "mxfp4", or "auto"
            for what the checkpoint holds.
        dense_quantization: the same for the attention's projections and the head: "bf16", which is
            `dtype`, or "fp8", which is faster on a GPU and less exact.
        dtype: of activations, dense weights and the KV cache: "bfloat16" or "float32".
        device: "cpu", "cuda", or "auto" for CUDA where there is one.
        load_format: "auto" reads the checkpoint, "dummy" makes random weights of its shape.
        block_size: tokens a KV block; None: 16, on a GPU 128, which FlashAttention-3 wants.
        chunk_size: the most tokens of one sequence in a step; None: max_batched_tokens.
        max_num_seqs: sequences in a step; None: 64, on a GPU 256.
        max_batched_tokens: tokens in a step; None: 2048, on a GPU 8192.
        max_model_len: longest sequence, in tokens; None: what the model and the cache hold.
        prefix_cache: reuse the KV of prompts that begin alike.
        one_ahead: schedule the next step while the device runs this one.
        cuda_graphs: decode by CUDA graphs, captured at the start; nothing to a CPU.
        kernels: "auto": the fastest that suits device, dtype and shape; "triton": our own, never a
            third party's; "reference": plain torch.
        priority_aging: arrivals that one level of priority is worth.
        kv_cache_bytes: memory for the KV cache; None: measured.
        num_blocks: KV blocks of the full and of the sliding layers, instead of `kv_cache_bytes`.
        cpu_threads: threads that torch computes with on a CPU; None: one for a small model, which
            more would only slow down, else torch's own choice. It holds for the whole process.
        seed: of the engine's own random choices.

    Raises:
        ConfigError: a choice is unknown or out of range.
    """

    model: str
    served_name: str | None = None
    quantization: str = "auto"
    dense_quantization: str = "bf16"
    dtype: str = "bfloat16"
    device: str = "auto"
    load_format: str = "auto"
    block_size: int | None = None
    chunk_size: int | None = None
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    max_model_len: int | None = None
    prefix_cache: bool = True
    one_ahead: bool = True
    cuda_graphs: bool = True
    kernels: str = "auto"
    priority_aging: int = 256
    kv_cache_bytes: int | None = None
    num_blocks: tuple[int, int] | None = None
    cpu_threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what can be checked without the checkpoint."""
        _check_choice("quantization", self.quantization, get_args(QuantizationChoice))
        _check_choice("dense_quantization", self.dense_quantization, get_args(DenseQuantization))
        _check_choice("dtype", _DTYPE_NAMES.get(self.dtype, self.dtype), get_args(Dtype))
        _check_choice("device", self.device, get_args(Device))
        _check_choice("load_format", self.load_format, get_args(LoadFormat))
        _check_choice("kernels", self.kernels, get_args(Kernels))
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and not _is_integer(value, 1, most):
                raise ConfigError(f"{name} must be an integer from 1 to {most}; got {value!r}")
        if self.num_blocks is not None and not _are_counts(self.num_blocks):
            raise ConfigError(
                f"num_blocks must be two integers from 1 to {MAX_BLOCKS}; got {self.num_blocks!r}"
            )
        if not _is_integer(self.seed, 0, SEED_LIMIT - 1):
            raise ConfigError(f"seed must be an integer in [0, 2**63); got {self.seed!r}")
        self._scheduler(_CPU_DEFAULTS)

    def _scheduler(self, defaults: _Defaults) -> SchedulerConfig:
        budget = self.max_batched_tokens or defaults.max_batched_tokens
        # No chunk is larger than a step or a sequence, and KV space is set aside by the chunk.
        bound = min(budget, self.max_model_len or budget)
        return SchedulerConfig(
            max_num_seqs=self.max_num_seqs or min(defaults.max_num_seqs, budget),
            max_batched_tokens=budget,
            chunk_size=min(self.chunk_size or budget, max(1, bound)),
            priority_aging=self.priority_aging,
            one_ahead=self.one_ahead,
        )

    def resolve(self) -> EngineConfig:
        """Find the checkpoint and the device; downloads a Hugging Face id.

        Raises:
            ConfigError: there is no such checkpoint or device, or Rose does not know the model.
        """
        device = resolve_device(self.device)
        defaults = _CPU_DEFAULTS if device == "cpu" else _GPU_DEFAULTS
        path = _find_checkpoint(self.model, dummy=self.load_format == "dummy")
        model = ModelConfig.load(path)
        held = model.checkpoint_quantization or "bf16"
        quantization = held if self.quantization == "auto" else self.quantization
        return EngineConfig(
            model=model,
            path=path,
            served_name=self.served_name or _served_name(self.model),
            quantization=cast(Quantization, quantization),
            dense_quantization=cast(DenseQuantization, self.dense_quantization),
            dtype=cast(Dtype, _DTYPE_NAMES.get(self.dtype, self.dtype)),
            device=device,
            load_format=cast(LoadFormat, self.load_format),
            scheduler=self._scheduler(defaults),
            block_size=self.block_size or defaults.block_size,
            cuda_graphs=self.cuda_graphs,
            kernels=cast(Kernels, self.kernels),
            kv_cache_bytes=self.kv_cache_bytes,
            num_blocks=self.num_blocks,
            prefix_cache=self.prefix_cache,
            max_model_len=self.max_model_len,
            cpu_threads=self.cpu_threads,
            seed=self.seed,
        )


def _is_integer(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _are_counts(pair: tuple[int, int]) -> bool:
    return len(pair) == 2 and all(_is_integer(count, 1, MAX_BLOCKS) for count in pair)


def _check_choice(name: str, found: str, known: tuple[str, ...]) -> None:
    if found not in known:
        raise ConfigError(f"unknown {name} {found!r}; choose one of {', '.join(known)}")


def _find_checkpoint(model: str, *, dummy: bool) -> Path:
    from rose.models.hub import find_checkpoint

    return find_checkpoint(model, dummy=dummy)


def _served_name(model: str) -> str:
    from rose.models.builtin import served_name

    return served_name(model)


def resolve_device(device: str) -> Literal["cpu", "cuda"]:
    """The kind of device that a user's choice means here.

    Raises:
        ConfigError: CUDA was asked for, and there is none.
    """
    if device == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return "cpu"
    raise ConfigError(
        "device 'cuda' was asked for, but torch finds no CUDA device here; use device='cpu', or "
        "install a CUDA build of torch on a machine with an NVIDIA GPU"
    )

"""A device's memory: what it is for, how much each part takes, and what to do if it is too little.

On a GPU nothing is guessed that can be measured: once the weights are placed, the largest step is
run (`largest_step.py`), and what it held at its peak stays free for steps to come. The KV cache
gets the rest, less what CUDA graphs will take and a margin.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from rose.config import ConfigError, ModelConfig
from rose.core.mapping import ParallelMapping
from rose.models.gpt_oss import GptOss
from rose.quant import quant_scheme

# What torch says on the CPU, where a failed allocation has no type of its own.
_CPU_MESSAGES = ("can't allocate memory", "not enough memory", "size calculation overflowed")

SMALLER_QUANTIZATIONS = ("fp8", "mxfp4")
"""What may be offered instead of something larger, least loss of precision first."""

USABLE = 0.9
"""Of a device's free memory: weights that take more leave too little for steps and KV cache."""

MARGIN_BYTES = 256 << 20
MARGIN_SHARE = 0.01
"""The margin is both of these, the second of the whole device. It covers what no measurement of
one step sees: the cache's tensors, two a layer, are rounded up to 2 MiB each and have a padding
block; the allocator's pieces do not always fit each other; kernels of other shapes are loaded, and
libraries take workspaces, when they are first used."""

GRAPH_BYTES = 24 << 20
"""For each CUDA graph: its nodes and their arguments, which the driver keeps on the device."""


@contextmanager
def memory_for(what: str, remedy: str) -> Iterator[None]:
    """Turn a failed allocation into an error that says what it was for and what would do.

    Raises:
        ConfigError: the device's memory does not suffice.
    """
    try:
        yield
    except (RuntimeError, MemoryError, OverflowError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        plain = isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError)
        if plain and not any(message in lines[0] for message in _CPU_MESSAGES):
            raise
        raise ConfigError(f"no memory for {what}: {lines[0]}; {remedy}") from error


class Room(Protocol):
    """How much memory there is, in bytes."""

    def total(self) -> int:
        """All of it."""
        ...

    def free(self) -> int:
        """What could be allocated now."""
        ...


class HostMemory:
    """The Room of a Linux host; where it tells nothing, there is room for anything."""

    def __init__(self, meminfo: Path = Path("/proc/meminfo")) -> None:
        self._meminfo = meminfo

    def total(self) -> int:
        """See Room."""
        return self._read("MemTotal")

    def free(self) -> int:
        """See Room. What the page cache could give back counts."""
        return self._read("MemAvailable")

    def _read(self, name: str) -> int:
        try:
            lines = self._meminfo.read_text().splitlines()
        except OSError:
            return sys.maxsize
        found = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
        kibibytes = next(found, None)
        return sys.maxsize if kibibytes is None else int(kibibytes) * 1024


class DeviceMemory(Room, Protocol):
    """The Room of a device whose steps are measured."""

    def peak(self, work: Callable[[], None]) -> int:
        """Do some work; the most that it held at once, besides what was held before."""
        ...


class CudaMemory:
    """A GPU's DeviceMemory, by torch's allocator and the driver."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def total(self) -> int:
        """See DeviceMemory."""
        return torch.cuda.mem_get_info(self._device)[1]

    def free(self) -> int:
        """See DeviceMemory. What torch merely keeps for later is handed back first."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]

    def peak(self, work: Callable[[], None]) -> int:
        """See DeviceMemory. Counts what torch took from the driver, unused pieces included."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_reserved(self._device)
        work()
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_reserved(self._device) - before


def weight_bytes(
    model: ModelConfig, quantization: str, dtype: torch.dtype, dense_quantization: str = "bf16"
) -> int:
    """Bytes of a model's weights, without allocating any.

    Exact, but where a GPU's kernels want tiles: those pad MXFP4 scales by 0.1% of the whole.

    Raises:
        ValueError: the model's sizes do not suit the quantization.
    """
    shape_only = GptOss(
        model,
        scheme=quant_scheme(quantization),
        mapping=ParallelMapping(),
        dtype=dtype,
        device=torch.device("meta"),
        dense_scheme=quant_scheme(dense_quantization),
    )
    return sum(parameter.nbytes for parameter in shape_only.parameters())


def require_room_for_weights(
    memory: Room,
    model: ModelConfig,
    quantization: str,
    dtype: torch.dtype,
    dense_quantization: str = "bf16",
) -> None:
    """Check that a model's weights fit, before anything is allocated or read.

    Raises:
        ConfigError: they do not; the message says what would.
        ValueError: the model's sizes do not suit the quantization.
    """
    needed = weight_bytes(model, quantization, dtype, dense_quantization)
    free = memory.free()
    if needed <= free:
        return
    offers = []
    for name in SMALLER_QUANTIZATIONS:
        try:
            smaller = weight_bytes(model, name, dtype, dense_quantization)
        except ValueError:
            continue
        if smaller < needed and smaller <= USABLE * free:
            offers.append(f"quantization={name} takes {gigabytes(smaller)}")
    ranks = next((n for n in (2, 4, 8) if needed / n <= USABLE * free), None)
    if ranks is not None:
        offers.append(f"tp={ranks} would spread them over {ranks} such devices")
    if not offers:
        offers.append("a larger device, or one that nobody else uses, would do")
    raise ConfigError(
        f"the weights need {gigabytes(needed)} with quantization={quantization}, but the device "
        f"has {gigabytes(free)} free of {gigabytes(memory.total())}: {'; '.join(offers)}"
    )


def graph_bytes(model: ModelConfig, buckets: Sequence[int]) -> int:
    """What decode graphs will take, at most: they are captured after the KV cache is allocated.

    They share one pool, so the largest decides: its logits exist in the model's dtype, in float32
    and in the static copy (10 bytes each); a layer's widest tensors are rows of its experts, of
    which few exist at once.

    Args:
        model: its shape.
        buckets: tokens of the batches to capture; none: no graphs.
    """
    if not buckets:
        return 0
    tokens = max(buckets)
    expert_row = 4 * (2 * model.hidden_size + 4 * model.intermediate_size)
    attention_row = 4 * 4 * model.num_heads * model.head_dim
    row = 10 * model.vocab_size + model.experts_per_token * expert_row + attention_row
    return tokens * row + len(buckets) * GRAPH_BYTES


def grammar_bytes(model: ModelConfig, max_num_seqs: int) -> int:
    """What a step holds besides if it follows grammars: a masked copy of its float32 logits."""
    return 4 * max_num_seqs * model.vocab_size


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where a device's memory is to go, in bytes.

    Attributes:
        total: all of it.
        free: what could be allocated when the weights were placed and the largest step had run.
        weights: placed already, not part of `free`.
        step: the most that a step takes, with the sequences' state.
        graphs: the decode graphs.
    """

    total: int
    free: int
    weights: int
    step: int
    graphs: int

    @property
    def margin(self) -> int:
        """Kept for what nothing else counts."""
        return MARGIN_BYTES + int(MARGIN_SHARE * self.total)

    @property
    def kv(self) -> int:
        """The KV cache: the rest; negative where there is none."""
        return self.free - self.step - self.graphs - self.margin

    def require_kv(self, needed: int, chunk: int) -> None:
        """Check that a chunk of `chunk` tokens, which takes `needed` bytes of KV, fits.

        Raises:
            ConfigError: it does not; the message says where the memory goes.
        """
        if needed <= self.kv:
            return
        raise ConfigError(
            f"one chunk of {chunk} tokens needs {gigabytes(needed)} of KV cache, but of the "
            f"device's {gigabytes(self.total)} only {gigabytes(max(0, self.kv))} are left: the "
            f"weights take {gigabytes(self.weights)}, a step {gigabytes(self.step)}, CUDA graphs "
            f"{gigabytes(self.graphs)}, the margin {gigabytes(self.margin)}; lower "
            "max_batched_tokens or max_num_seqs, or use a smaller quantization"
        )


def memory_line(total: int, free: int, parts: Mapping[str, int], step: int | None) -> str:
    """Where a device's memory went, in one line.

    Args:
        total: all of it, in bytes.
        free: of that.
        parts: bytes by what they are for.
        step: the most that a step takes of what is free; None: not measured.
    """
    rest = total - free - sum(parts.values())
    used = ", ".join(f"{what} {gigabytes(count)}" for what, count in parts.items())
    steps = "" if step is None else f", of which a step takes up to {gigabytes(step)}"
    return (
        f"Device memory: {gigabytes(total)}: {used}, other {gigabytes(rest)}, "
        f"free {gigabytes(free)}{steps}"
    )


def gigabytes(count: int) -> str:
    """For people: "1.25 GB"."""
    return f"{count / 1e9:.2f} GB"

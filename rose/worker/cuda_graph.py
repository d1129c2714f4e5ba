"""Decoding by CUDA graphs: one a batch size, captured at the start.

A graph runs what its capture saw, on the same addresses. So a step's inputs are copied to static
memory, its logits come from static memory, and whatever depends on the step lies in tensors. A
batch is padded up to the next captured size by rows of the padding slot.

The graphs share one pool of memory: only one of them runs at a time. The largest is captured first,
so that the others fit into what it took.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rose.config import FULL, SLIDING, ModelConfig
from rose.kernels import experts
from rose.kernels.dispatch import Implementation, Shape, choose, use_triton
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LaunchPlan, LayerKV
from rose.models.gpt_oss import GptOss
from rose.progress import Progress
from rose.worker.block_tables import BlockTables
from rose.worker.forward_batch import DecodeRow, IntArray
from rose.worker.token_pool import TokenPool
from rose.worker.upload import upload_into

LARGEST_BUCKET = 256
"""Beyond it a step takes so long that its launches hide behind it."""

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Runs a function once or more, and answers what repeats it on the same tensors."""


def decode_buckets(max_num_seqs: int) -> list[int]:
    """The batch sizes to capture: padding never adds more than 8 rows, or doubles a small batch."""
    sizes = [1, 2, 4, *range(8, 33, 8), *range(48, LARGEST_BUCKET + 1, 16)]
    largest = min(max_num_seqs, LARGEST_BUCKET)
    return [size for size in sizes if size < largest] + [largest]


def capturable(model: ModelConfig, quantization: str, operand: Tensor, block_size: int) -> bool:
    """Whether a decode step can be captured: nothing in it waits for the device.

    Of attention, routing and experts only fused kernels do without: the references read numbers
    back to the host. Those of other ops do not.

    Args:
        model: its shape.
        quantization: of the experts.
        operand: of the device and dtype that the model computes in; its shape does not matter.
        block_size: of the KV cache.
    """
    shape = Shape(head_dim=model.head_dim, block_size=block_size)
    if choose("attention", operand, shape) is Implementation.REFERENCE:
        return False
    widths = (model.hidden_size, model.intermediate_size)
    if quantization == "fp8" and any(width % experts.TMA_BYTES for width in widths):
        return False
    return use_triton("routing", operand) and use_triton(experts.OP, operand)


class CudaCapture:
    """Captures into CUDA graphs with one pool of memory; a Capture.

    One stream serves all of them: cuBLAS keeps a workspace of 32 MiB for each stream that it has
    ever run on, and the warm-up leaves there what the capture then finds.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, body: Callable[[], None]) -> Callable[[], None]:
        """Warm up, so that kernels are compiled and libraries have their workspaces; capture."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            body()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            body()
        return graph.replay


@dataclass(frozen=True, slots=True)
class _Graph:
    """One batch size: where its inputs go, and what runs it.

    A graph knows addresses only: `constants` is here so that nothing else is put where it lies.
    """

    inputs: Tensor
    logits: Tensor
    constants: "_Constants"
    replay: Callable[[], None]


class DecodeGraphs:
    """Runs the model on steps in which each sequence runs `width` tokens.

    Args:
        model: to run.
        kv: its cache.
        pool: where token ids are read.
        tables: where block tables are read.
        window: of the sliding group.
        buckets: batch sizes to capture, in sequences, ascending.
        width: tokens of each sequence: one, and those that a speculative decoder proposed.
        capture: how; `CudaCapture`, or in tests a function that hands its argument back.
        device: of the model.
    """

    def __init__(
        self,
        *,
        model: GptOss,
        kv: Sequence[LayerKV],
        pool: TokenPool,
        tables: BlockTables,
        window: int,
        buckets: Sequence[int],
        width: int,
        capture: Capture,
        device: torch.device,
    ) -> None:
        self._model = model
        self._kv = kv
        self._pool = pool
        self._tables = tables
        self._windows = {FULL: None, SLIDING: window}
        self._device = device
        self.buckets = list(buckets)
        self.width = width
        largest = self.buckets[-1] * width
        self._inputs = torch.zeros(len(DecodeRow) * largest, dtype=torch.int64, device=device)
        shape = (largest, model.config.vocab_size)
        self._logits = torch.empty(shape, dtype=torch.float32, device=device)
        self._graphs: dict[int, _Graph] = {}
        with Progress("Capturing decode graphs", total=len(self.buckets), unit="graph") as progress:
            for bucket in reversed(self.buckets):
                self._graphs[bucket] = self._make(bucket, capture)
                progress.advance(1)

    def bucket_for(self, rows: int) -> int | None:
        """The batch size that runs so many rows; None if they are too many."""
        at = bisect_left(self.buckets, rows)
        return self.buckets[at] if at < len(self.buckets) else None

    def run(self, inputs: IntArray) -> tuple[Tensor, Tensor]:
        """Enqueue a step.

        Args:
            inputs: int64 [len(DecodeRow), bucket * width], from `BatchBuilder.decode_inputs`.

        Returns:
            The same on the device, and float32 logits [bucket * width, vocabulary]; both are
            overwritten by the next call.
        """
        graph = self._graphs[inputs.shape[1] // self.width]
        upload_into(graph.inputs, inputs)
        graph.replay()
        return graph.inputs, graph.logits

    def _make(self, bucket: int, capture: Capture) -> _Graph:
        tokens = bucket * self.width
        inputs = self._inputs[: len(DecodeRow) * tokens].view(len(DecodeRow), tokens)
        self._fill_with_padding(inputs)
        logits = self._logits[:tokens]
        constants = _Constants.of(bucket, self.width, self._device)

        def body() -> None:
            logits.copy_(self._forward(inputs, constants))

        return _Graph(inputs, logits, constants, capture(body))

    def _fill_with_padding(self, inputs: Tensor) -> None:
        """Make the batch that is captured valid."""
        slots = torch.full_like(inputs[0], self._tables.padding_slot)
        inputs[DecodeRow.SLOT] = slots
        inputs[DecodeRow.POOL] = inputs[DecodeRow.NEXT] = self._pool.padding_index
        inputs[DecodeRow.POSITION] = torch.arange(slots.shape[0], device=self._device) % self.width
        block_size = self._kv[0].key.shape[1]
        for group, row in ((FULL, DecodeRow.FULL), (SLIDING, DecodeRow.SLIDING)):
            first = self._tables.rows(group, slots)[:, 0].long() * block_size
            inputs[row] = first + inputs[DecodeRow.POSITION]

    def _forward(self, inputs: Tensor, constants: "_Constants") -> Tensor:
        """Logits of each token; reads nothing but tensors."""
        positions = inputs[DecodeRow.POSITION]
        slots = inputs[DecodeRow.SLOT, :: self.width]
        mappings = {FULL: inputs[DecodeRow.FULL], SLIDING: inputs[DecodeRow.SLIDING]}
        bucket = slots.shape[0]
        batch = AttentionBatch(
            query_start=constants.query_start,
            kv_len=(positions[self.width - 1 :: self.width] + 1).int(),
            query_lens=[self.width] * bucket,
            # The host does not know them; kernels that ask choose for the longest.
            kv_lens=[self._tables.longest] * bucket,
            groups=tuple(
                KVGroupBatch(mappings[group], self._tables.rows(group, slots), window)
                for group, window in self._windows.items()
            ),
            plan=constants.plan,
        )
        token_ids = self._pool.gather(inputs[DecodeRow.POOL])
        return self._model.logits(self._model(token_ids, positions, batch, self._kv))


@dataclass(frozen=True, slots=True)
class _Constants:
    """What is the same in every step of one batch size."""

    query_start: Tensor
    plan: LaunchPlan

    @classmethod
    def of(cls, bucket: int, width: int, device: torch.device) -> "_Constants":
        count = torch.arange(bucket + 1, dtype=torch.int32, device=device)
        no_tiles = torch.empty((0, 2), dtype=torch.int32, device=device)
        return cls(count * width, LaunchPlan(count[:bucket], width, no_tiles))

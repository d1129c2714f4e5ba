"""From a scheduled step to tensors: the only place that turns the scheduler's ints into them."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rose.config import FULL, SLIDING
from rose.core.step import NewSequence, SchedulerOutput
from rose.decoders.decoder import SampleRows
from rose.kernels.launch_plan import split
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LaunchPlan
from rose.worker.block_tables import BlockTables
from rose.worker.token_pool import TokenPool
from rose.worker.upload import Staging

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step's input. Row i of the host arrays is the step's sequence i.

    Attributes:
        token_ids: int64 [tokens].
        positions: int64 [tokens].
        attention: where keys and values lie.
        query_start: host int64 [sequences + 1], each sequence's first token in the batch.
        rows: the sequences that sample.
        logits_index: int64 [rows], the token whose logits each of them samples from.
        sampled_index: int64 [rows], where in the token pool the sampled id goes.
    """

    token_ids: Tensor
    positions: Tensor
    attention: AttentionBatch
    query_start: IntArray
    rows: SampleRows
    logits_index: Tensor
    sampled_index: Tensor


class BatchBuilder:
    """Keeps each slot's block tables and makes a ForwardBatch of each step.

    Args:
        tables: filled here.
        pool: filled here.
        window: of the sliding group.
        plan_launches: whether fused attention kernels may run.
        device: of the batches.
    """

    def __init__(
        self,
        *,
        tables: BlockTables,
        pool: TokenPool,
        window: int,
        plan_launches: bool,
        device: torch.device,
    ) -> None:
        self._tables = tables
        self._pool = pool
        self._device = device
        self._windows = {FULL: None, SLIDING: window}
        self._plan_launches = plan_launches

    def admit(self, new: NewSequence) -> None:
        """Give a slot to a sequence."""
        self._tables.clear(new.slot)
        self._pool.write(new.slot, new.token_ids)

    def extend(self, step: SchedulerOutput) -> None:
        """Take in the blocks that a step's sequences gained; before `build` or `decode_inputs`."""
        for s in step.sequences:
            if s.new_blocks is not None:
                self._tables.append(s.slot, s.new_blocks)
        self._tables.flush()

    def build(self, step: SchedulerOutput) -> ForwardBatch:
        """Describe a step that runs at least one sequence."""
        sequences = step.sequences
        table = np.array(
            [(s.slot, s.start, s.num_tokens, s.samples) for s in sequences], dtype=np.int64
        )
        slots, starts, counts = table[:, 0], table[:, 1], table[:, 2]
        kv_lens = starts + counts
        query_start = np.zeros(len(sequences) + 1, dtype=np.int64)
        np.cumsum(counts, out=query_start[1:])
        sampling = np.flatnonzero(table[:, 3])
        rows = SampleRows(slots[sampling], kv_lens[sampling])
        token_slots = np.repeat(slots, counts)
        positions = np.arange(query_start[-1]) + np.repeat(starts - query_start[:-1], counts)

        long: Staging[np.int64] = Staging()
        long.add(self._pool.flat_index(token_slots, positions))
        long.add(positions)
        long.add(query_start[1:][sampling] - 1)
        long.add(self._pool.flat_index(rows.slots, rows.positions))
        long.add(slots)
        for group in self._windows:
            long.add(self._tables.slot_mapping(group, token_slots, positions))
        pool_index, device_positions, logits_index, sampled_index, device_slots, *mappings = (
            long.upload(self._device)
        )
        return ForwardBatch(
            token_ids=self._pool.gather(pool_index),
            positions=device_positions,
            attention=self._attention(device_slots, counts, kv_lens, query_start, mappings),
            query_start=query_start,
            rows=rows,
            logits_index=logits_index,
            sampled_index=sampled_index,
        )

    def _attention(
        self,
        slots: Tensor,
        counts: IntArray,
        kv_lens: IntArray,
        query_start: IntArray,
        mappings: list[Tensor],
    ) -> AttentionBatch:
        longest = int(kv_lens.max())
        short: Staging[np.int32] = Staging()
        short.add(query_start.astype(np.int32))
        short.add(kv_lens.astype(np.int32))
        if self._plan_launches:
            for part in split(counts, kv_lens):
                short.add(part)
        device_query_start, device_kv_len, *plan = short.upload(self._device)
        groups = zip(mappings, self._windows.items(), strict=True)
        return AttentionBatch(
            query_start=device_query_start,
            kv_len=device_kv_len,
            query_lens=counts.tolist(),
            kv_lens=kv_lens.tolist(),
            groups=tuple(
                KVGroupBatch(mapping, self._tables.rows(group, slots, longest), window)
                for mapping, (group, window) in groups
            ),
            plan=LaunchPlan(plan[0], 1, plan[1]) if plan else None,
        )

    def decode_inputs(
        self, step: SchedulerOutput, bucket: int, width: int = 1
    ) -> tuple[IntArray, SampleRows]:
        """Describe a step in which each sequence runs `width` tokens and samples after the last.

        Args:
            step: of at most `bucket` sequences.
            bucket: sequences to pad to.
            width: tokens of each.

        Returns:
            int64 [len(DecodeRow), bucket * width], to be uploaded, and the rows that are no
            padding.
        """
        n = len(step.sequences)
        slots = np.full(bucket, self._tables.padding_slot)
        starts = np.zeros(bucket, dtype=np.int64)
        slots[:n] = [s.slot for s in step.sequences]
        starts[:n] = [s.start for s in step.sequences]
        positions = (starts[:, None] + np.arange(width)).reshape(-1)
        token_slots = np.repeat(slots, width)
        inputs = np.empty((len(DecodeRow), bucket * width), dtype=np.int64)
        inputs[DecodeRow.SLOT] = token_slots
        inputs[DecodeRow.POSITION] = positions
        inputs[DecodeRow.POOL] = self._pool.flat_index(token_slots, positions)
        inputs[DecodeRow.NEXT] = self._pool.flat_index(token_slots, positions + 1)
        inputs[DecodeRow.FULL] = self._tables.slot_mapping(FULL, token_slots, positions)
        inputs[DecodeRow.SLIDING] = self._tables.slot_mapping(SLIDING, token_slots, positions)
        return inputs, SampleRows(slots[:n], starts[:n] + width)


class DecodeRow(IntEnum):
    """What the rows of a decode step's inputs say of each token.

    POOL and NEXT are where in the token pool the token at POSITION is, and the one after it goes;
    FULL and SLIDING are slot mappings.
    """

    POOL = 0
    POSITION = 1
    SLOT = 2
    FULL = 3
    SLIDING = 4
    NEXT = 5

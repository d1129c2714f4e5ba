"""From a scheduled step to tensors: the only place that turns the scheduler's ints into them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rose.config import FULL, SLIDING, CacheConfig
from rose.core.step import NewSequence, SchedulerOutput
from rose.decoders.decoder import SampleRows
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch
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


class BlockTables:
    """Each slot's blocks in each KV group; on the host, since steps only ever append to them."""

    def __init__(self, cache: CacheConfig, max_num_seqs: int, max_model_len: int) -> None:
        self._block_size = cache.block_size
        columns = max_model_len // cache.block_size + 1
        groups = len(cache.num_blocks)
        self._blocks = np.zeros((groups, max_num_seqs, columns), dtype=np.int32)
        self._lengths = [[0] * max_num_seqs for _ in range(groups)]

    def clear(self, slot: int) -> None:
        """Forget what the slot held."""
        for lengths in self._lengths:
            lengths[slot] = 0

    def append(self, slot: int, new_blocks: tuple[tuple[int, ...], ...]) -> None:
        """Add blocks, one tuple a group, at the end of the slot's tables."""
        for group, blocks in enumerate(new_blocks):
            if blocks:
                first = self._lengths[group][slot]
                end = self._lengths[group][slot] = first + len(blocks)
                self._blocks[group, slot, first:end] = blocks

    def slot_mapping(self, group: int, slots: IntArray, positions: IntArray) -> IntArray:
        """Where in the group's cache the tokens at these positions are kept."""
        block = positions // self._block_size
        offset = positions - block * self._block_size
        blocks: IntArray = self._blocks[group, slots, block].astype(np.int64)
        return blocks * self._block_size + offset

    def rows(self, group: int, slots: IntArray, length: int) -> npt.NDArray[np.int32]:
        """The slots' tables, wide enough for `length` tokens."""
        columns = -(-length // self._block_size)
        return self._blocks[group, slots, :columns]


class BatchBuilder:
    """Keeps each slot's block tables and makes a ForwardBatch of each step."""

    def __init__(
        self,
        *,
        cache: CacheConfig,
        max_num_seqs: int,
        max_model_len: int,
        pool: TokenPool,
        device: torch.device,
    ) -> None:
        self._tables = BlockTables(cache, max_num_seqs, max_model_len)
        self._pool = pool
        self._device = device
        self._windows = {FULL: None, SLIDING: cache.window}

    def admit(self, new: NewSequence) -> None:
        """Give a slot to a sequence."""
        self._tables.clear(new.slot)
        self._pool.write(new.slot, new.token_ids)

    def build(self, step: SchedulerOutput) -> ForwardBatch:
        """Describe a step that runs at least one sequence."""
        sequences = step.sequences
        for s in sequences:
            if s.new_blocks is not None:
                self._tables.append(s.slot, s.new_blocks)
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
        for group in self._windows:
            long.add(self._tables.slot_mapping(group, token_slots, positions))
        pool_index, device_positions, logits_index, sampled_index, *mappings = long.upload(
            self._device
        )
        return ForwardBatch(
            token_ids=self._pool.gather(pool_index),
            positions=device_positions,
            attention=self._attention(slots, counts, kv_lens, query_start, mappings),
            query_start=query_start,
            rows=rows,
            logits_index=logits_index,
            sampled_index=sampled_index,
        )

    def _attention(
        self,
        slots: IntArray,
        counts: IntArray,
        kv_lens: IntArray,
        query_start: IntArray,
        mappings: list[Tensor],
    ) -> AttentionBatch:
        longest = int(kv_lens.max())
        short: Staging[np.int32] = Staging()
        short.add(query_start.astype(np.int32))
        short.add(kv_lens.astype(np.int32))
        for group in self._windows:
            short.add(self._tables.rows(group, slots, longest))
        device_query_start, device_kv_len, *tables = short.upload(self._device)
        groups = zip(mappings, tables, self._windows.values(), strict=True)
        return AttentionBatch(
            query_start=device_query_start,
            kv_len=device_kv_len,
            query_lens=counts.tolist(),
            kv_lens=kv_lens.tolist(),
            groups=tuple(KVGroupBatch(*group) for group in groups),
        )

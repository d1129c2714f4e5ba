"""Each slot's blocks in each KV group, on the host and on the device."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rose.config import CacheConfig
from rose.worker.upload import Staging

IntArray = npt.NDArray[np.int64]


class BlockTables:
    """A row of blocks a slot and group; steps only ever append to them.

    The host needs them to place new keys and values, the device to find old ones. The device's
    copy is brought up to date by what changed, which in most decode steps is nothing.

    Beyond the slots there is one more row, `padding_slot`: its sequence of one token lies in a
    block that no sequence gets (`kv_cache.allocate_kv` makes it).

    Attributes:
        padding_slot: that row.
        longest: tokens that a row has room for.
    """

    def __init__(
        self, cache: CacheConfig, max_num_seqs: int, max_model_len: int, device: torch.device
    ) -> None:
        self.padding_slot = max_num_seqs
        self._block_size = cache.block_size
        columns = max_model_len // cache.block_size + 1
        self.longest = columns * cache.block_size
        groups = len(cache.num_blocks)
        self._host = np.zeros((groups, max_num_seqs + 1, columns), dtype=np.int32)
        self._host[:, self.padding_slot, 0] = cache.num_blocks
        self._lengths = [[0] * max_num_seqs for _ in range(groups)]
        # On the CPU the two are one; a GPU's copy is written by `flush` alone.
        self._device = torch.from_numpy(self._host).to(device)
        self._changed: list[slice] = []

    def clear(self, slot: int) -> None:
        """Forget what the slot held."""
        for lengths in self._lengths:
            lengths[slot] = 0

    def append(self, slot: int, new_blocks: tuple[tuple[int, ...], ...]) -> None:
        """Add blocks, one tuple a group, at the end of the slot's tables."""
        _, slots, columns = self._host.shape
        for group, blocks in enumerate(new_blocks):
            if blocks:
                first = self._lengths[group][slot]
                end = self._lengths[group][slot] = first + len(blocks)
                self._host[group, slot, first:end] = blocks
                row = (group * slots + slot) * columns
                self._changed.append(slice(row + first, row + end))

    def flush(self) -> None:
        """Bring the device's copy up to date, in order with the work enqueued there."""
        changed, self._changed = self._changed, []
        if not changed or self._device.device.type == "cpu":
            return
        flat = self._host.reshape(-1)
        long: Staging[np.int64] = Staging()
        long.add(np.concatenate([np.arange(each.start, each.stop) for each in changed]))
        long.add(np.concatenate([flat[each] for each in changed]).astype(np.int64))
        index, blocks = long.upload(self._device.device)
        self._device.view(-1).index_copy_(0, index, blocks.int())

    def slot_mapping(self, group: int, slots: IntArray, positions: IntArray) -> IntArray:
        """Where in the group's cache the tokens at these positions are kept."""
        block = positions // self._block_size
        offset = positions - block * self._block_size
        blocks: IntArray = self._host[group, slots, block].astype(np.int64)
        return blocks * self._block_size + offset

    def rows(self, group: int, slots: Tensor, length: int | None = None) -> Tensor:
        """The device's tables of int64 [n] slots: int32 [n, blocks].

        Args:
            group: which of the KV groups.
            slots: on the device.
            length: wide enough for so many tokens; None: all there is.
        """
        columns = None if length is None else -(-length // self._block_size)
        return self._device[group, :, :columns].index_select(0, slots)

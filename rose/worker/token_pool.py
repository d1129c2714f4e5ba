"""Token ids on the device, so that a step needs no id that the host does not know yet."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rose.worker.upload import upload


class TokenPool:
    """One row of token ids a slot: written on admission, extended by each sampled token.

    One row more, all zeros, is for the padding of batches.

    Attributes:
        stride: ids a row; position p of slot s is at flat index s * stride + p.
        padding_index: flat index of the padding's token.
    """

    def __init__(self, max_num_seqs: int, max_model_len: int, device: torch.device) -> None:
        self.stride = max_model_len + 1
        # Not zeroed: rows are read only where they were written, and most pages never are.
        shape = (max_num_seqs + 1, self.stride)
        self._ids = torch.empty(shape, dtype=torch.int32, device=device)
        self._ids[max_num_seqs] = 0
        self.padding_index = max_num_seqs * self.stride
        self._flat = self._ids.view(-1)
        self._device = device

    def write(self, slot: int, token_ids: list[int]) -> None:
        """Replace what `slot` holds."""
        ids = upload(np.array(token_ids, dtype=np.int32), self._device)
        self._ids[slot, : len(token_ids)] = ids

    def gather(self, index: Tensor) -> Tensor:
        """Ids at flat indices: int64 [n] to int64 [n]."""
        return self._flat.index_select(0, index).long()

    def put(self, index: Tensor, token_ids: Tensor) -> None:
        """Store int64 [n] ids at int64 [n] flat indices, each of them its own."""
        self._flat.index_copy_(0, index, token_ids.int())

    def rows(self, slots: Tensor, length: int) -> Tensor:
        """The first `length` ids of int64 [n] slots, int32 [n, length]; unwritten ones are junk."""
        return self._ids[:, :length].index_select(0, slots)

    def flat_index(
        self, slots: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Where positions of slots lie, for `gather` and `put`."""
        return slots * self.stride + positions

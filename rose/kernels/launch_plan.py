"""How a batch is split between the fused attention kernels: plain arithmetic on the host."""

import numpy as np
import numpy.typing as npt

from rose.kernels.paged_kv import QUERY_TILE

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


def split(query_lens: IntArray, kv_lens: IntArray, width: int = 1) -> tuple[Int32Array, Int32Array]:
    """Part a batch into decode rows and tiles of prompt chunks.

    Both parts are ordered by the keys they see, most first, equal ones in the batch's order: the
    longest programs start first, so that the last to end are short ones.

    Args:
        query_lens: [sequences]; tokens that each sequence runs.
        kv_lens: [sequences]; keys of each sequence, this step's included; at least its query_len.
        width: tokens of a decode row; 1 without speculation.

    Returns:
        int32 [n]: the sequences that run exactly `width` tokens; and int32 [tiles, 2]: (sequence,
        first query) of each tile of at most QUERY_TILE queries of the others. They are
        LaunchPlan's `decode_sequences` and `tiles`.
    """
    is_decode = query_lens == width
    decode = np.flatnonzero(is_decode)
    decode = decode[np.argsort(-kv_lens[decode], kind="stable")]

    others = np.flatnonzero(~is_decode)
    counts = -(-query_lens[others] // QUERY_TILE)
    sequence = np.repeat(others, counts)
    ends = np.cumsum(counts)
    first = (np.arange(len(sequence)) - np.repeat(ends - counts, counts)) * QUERY_TILE
    unseen = np.maximum(query_lens[sequence] - first - QUERY_TILE, 0)
    order = np.argsort(unseen - kv_lens[sequence], kind="stable")
    tiles = np.stack((sequence, first), axis=1)[order]
    return decode.astype(np.int32), tiles.astype(np.int32)

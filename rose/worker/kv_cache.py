"""The paged KV cache's memory: one pair of tensors a layer."""

import torch

from rose.config import FULL, SLIDING, CacheConfig, ModelConfig
from rose.kernels.paged_kv import LayerKV


def block_bytes(model: ModelConfig, block_size: int, dtype: torch.dtype) -> tuple[int, int]:
    """Bytes of one block over all layers of groups FULL and SLIDING."""
    per_layer = 2 * block_size * model.num_kv_heads * model.head_dim * dtype.itemsize
    return (per_layer * model.layers_of_group(FULL), per_layer * model.layers_of_group(SLIDING))


def allocate_kv(
    model: ModelConfig, cache: CacheConfig, dtype: torch.dtype, device: torch.device
) -> list[LayerKV]:
    """Storage for every layer. No slot is read before it was written, but for one thing.

    Kernels that load whole blocks multiply what lies behind a sequence's end by a weight of 0,
    which is 0 only if it is a number: so a GPU's cache begins as zeros.

    There is one block more than `cache` says, the last: there the padding of batches goes.
    """
    allocate = torch.zeros if device.type == "cuda" else torch.empty
    layers = []
    for kind in model.layer_types:
        group = SLIDING if kind == "sliding_attention" else FULL
        shape = (cache.num_blocks[group] + 1, cache.block_size, model.num_kv_heads, model.head_dim)
        key = allocate(shape, dtype=dtype, device=device)
        value = allocate(shape, dtype=dtype, device=device)
        layers.append(LayerKV(key, value))
    return layers

"""Where the keys and values of a batch lie in the paged cache: what kernels are told of it."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class KVGroupBatch:
    """Where one KV group's keys and values of this batch lie.

    Attributes:
        slot_mapping: int64 [tokens]; block * block_size + offset at which each token's K and V go.
        block_tables: int32 [sequences, blocks]; only entries that a query can see are valid.
        window: keys that a query sees, its own included; None: all before it.
    """

    slot_mapping: torch.Tensor
    block_tables: torch.Tensor
    window: int | None


QUERY_TILE = 16
"""Queries of one program of the fused kernel for prompt chunks; 128 rows with 8 heads a KV head."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How fused attention kernels split a batch; made on the host, with the batch.

    Every sequence is in exactly one of the two parts.

    Attributes:
        decode_sequences: int32 [n]; indices of sequences that run exactly `width` tokens each.
        width: tokens of each of those, 1 for plain decoding.
        tiles: int32 [tiles, 2]; (sequence, first query) of each run of at most QUERY_TILE queries
            of the other sequences, those that see the most keys first.
    """

    decode_sequences: torch.Tensor
    width: int
    tiles: torch.Tensor


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """A mix of prompt chunks and decode rows, one after the other in the token dimension.

    Attributes:
        query_start: int32 [sequences + 1]; sequence i's queries are rows
            query_start[i] : query_start[i + 1].
        kv_len: int32 [sequences]; keys of each sequence, this step's included, so that its last
            query stands at position kv_len - 1.
        query_lens, kv_lens: the same on the host, for kernels that choose a launch by them.
        groups: one entry a KV group (FULL, SLIDING).
        plan: for fused kernels; None where the reference runs.
    """

    query_start: torch.Tensor
    kv_len: torch.Tensor
    query_lens: list[int]
    kv_lens: list[int]
    groups: tuple[KVGroupBatch, ...]
    plan: LaunchPlan | None = None


@dataclass(frozen=True, slots=True)
class LayerKV:
    """One layer's cache.

    Attributes:
        key, value: model dtype [blocks, block_size, kv_heads, head_dim].
    """

    key: torch.Tensor
    value: torch.Tensor

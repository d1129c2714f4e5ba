"""Merging what splits of a sequence's keys left: the second kernel of split attention.

Bound by latency: one program an output row and head reads all of that row's splits at once. About
3 us for a decode row, 64 heads and 64 splits (1 MB).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from rose.kernels.fused.interpret import round_to
from rose.kernels.fused.paged_tile import FLOOR, LOG2_E

MAX_SPLITS = 64

FEW_SPLITS = 8
"""The kernel is compiled for at most so many, and for MAX_SPLITS."""


@dataclass(frozen=True, slots=True)
class Partial:
    """Attention over parts of the keys. Query q of the kernel's program i is slot i * queries + q.

    Attributes:
        values: float32 [slots, heads, splits, head_dim]; attention over a split's keys alone,
            unwritten where the query sees none of them.
        log_mass: float32 [slots, heads, splits]; base-2 logarithm of the sum of exponentials of the
            scores, -inf where the query sees no key; unwritten for slots without a query.
    """

    values: torch.Tensor
    log_mass: torch.Tensor

    @classmethod
    def empty(cls, slots: int, heads: int, splits: int, like: torch.Tensor) -> "Partial":
        """Room for `splits` splits, on the device of `like` [..., head_dim]; none for one split."""
        shape = (slots, heads, splits) if splits > 1 else (0, heads, splits)
        values = like.new_empty((*shape, like.shape[-1]), dtype=torch.float32)
        return cls(values, like.new_empty(shape, dtype=torch.float32))


@triton.jit(
    do_not_specialize=["splits"],
    do_not_specialize_on_alignment=["query_start", "programs"],
)
def _attention_merge_kernel(
    values,
    log_mass,
    sinks,
    out,
    query_start,
    programs,
    splits,
    QUERIES: tl.constexpr,
    TILES: tl.constexpr,
    DIM: tl.constexpr,
    SPLITS: tl.constexpr,
):
    head = tl.program_id(0)
    heads = tl.num_programs(0)
    slot = tl.program_id(1)
    index = slot % QUERIES
    if TILES:
        sequence = tl.load(programs + 2 * (slot // QUERIES))
        index += tl.load(programs + 2 * (slot // QUERIES) + 1)
    else:
        sequence = tl.load(programs + slot // QUERIES)
    row = tl.load(query_start + sequence) + index
    real = row < tl.load(query_start + sequence + 1)

    split = tl.arange(0, SPLITS)
    dims = tl.arange(0, DIM)
    part = (slot.to(tl.int64) * heads + head) * splits + split
    exists = (split < splits) & real
    amount = tl.load(log_mass + part, mask=exists, other=-float("inf"))
    some = amount != -float("inf")
    parts = tl.load(values + part[:, None] * DIM + dims[None, :], mask=some[:, None], other=0.0)
    sink = tl.maximum(tl.load(sinks + head).to(tl.float32) * LOG2_E, FLOOR)
    peak = tl.maximum(tl.max(amount, 0), sink)
    share = tl.math.exp2(amount - peak)
    mass = tl.sum(share, 0) + tl.math.exp2(sink - peak)
    result = round_to(tl.sum(parts * share[:, None], 0) / mass, out.dtype.element_ty)
    tl.store(out + (row.to(tl.int64) * heads + head) * DIM + dims, result, mask=real)


def merge(
    partial: Partial,
    sinks: torch.Tensor,
    out: torch.Tensor,
    query_start: torch.Tensor,
    programs: torch.Tensor,
) -> None:
    """Write the rows of `out` that `partial` holds parts of; the sink is counted here.

    Args:
        partial: at most MAX_SPLITS splits.
        sinks: [heads].
        out: [tokens, heads, head_dim].
        query_start: int32 [sequences + 1].
        programs: what the slots belong to, LaunchPlan's `decode_sequences` or `tiles`.
    """
    slots, heads, splits = partial.log_mass.shape
    few = splits <= FEW_SPLITS
    _attention_merge_kernel[(heads, slots)](
        partial.values,
        partial.log_mass,
        sinks,
        out,
        query_start,
        programs,
        splits,
        QUERIES=slots // len(programs),
        TILES=programs.ndim == 2,
        DIM=out.shape[2],
        SPLITS=FEW_SPLITS if few else MAX_SPLITS,
        num_warps=1 if few else 4,
    )

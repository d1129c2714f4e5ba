"""Merging what parts of a sequence's keys left: the second kernel of split attention.

Bound by latency: one program an output row and head reads MAX_SPLITS of that row's parts at once,
or FEW_SPLITS where there are many rows, most of which have no more. Predicted at 2 us for a decode
row, 64 heads and 64 parts (1 MB).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from rose.kernels.fused import dependent
from rose.kernels.fused.interpret import round_to
from rose.kernels.fused.paged_tile import FLOOR, LOG2_E

MAX_SPLITS = 64
"""Parts that a sequence is cut into at most."""

FEW_SPLITS = 16

SPAN_PARTS = tl.constexpr(2 * MAX_SPLITS)
"""A sequence's first slot, and how many parts it has, are one number: slot * this + parts."""


@dataclass(frozen=True, slots=True)
class Partial:
    """Attention over parts of the keys: a slot holds one part, for some queries of one sequence.

    Attributes:
        values: float32 [slots, queries, heads, head_dim]; attention over a part's keys alone,
            unwritten where the query sees none of them.
        log_mass: float32 [slots, queries, heads]; base-2 logarithm of the sum of exponentials of
            the scores, -inf where the query sees no key; unwritten where there is no query.
    """

    values: torch.Tensor
    log_mass: torch.Tensor

    @classmethod
    def empty(cls, slots: int, queries: int, like: torch.Tensor) -> "Partial":
        """Room for so many slots, on the device of `like` [tokens, heads, head_dim]."""
        _, heads, dim = like.shape
        values = like.new_empty((slots, queries, heads, dim), dtype=torch.float32)
        return cls(values, like.new_empty((slots, queries, heads), dtype=torch.float32))


@dataclass(frozen=True, slots=True)
class Programs:
    """Whose parts are merged, and where they lie.

    Attributes:
        which: LaunchPlan's `decode_sequences` or `tiles`.
        queries: of each, at most.
        splits: parts of each, one after the other; where `spans` does not say.
        spans: int32 [n]; of each decode sequence, first slot * SPAN_PARTS + parts.
        direct: whether the decode sequences are all there are, in order.
    """

    which: torch.Tensor
    queries: int
    splits: int = 0
    spans: torch.Tensor | None = None
    direct: bool = False


@triton.jit(
    do_not_specialize=["splits"],
    do_not_specialize_on_alignment=["query_start", "programs", "spans"],
)
def _attention_merge_kernel(
    values,
    log_mass,
    sinks,
    out,
    query_start,
    programs,
    spans,
    splits,
    QUERIES: tl.constexpr,
    TILES: tl.constexpr,
    DIRECT: tl.constexpr,
    DIM: tl.constexpr,
    SPLITS: tl.constexpr,
):
    head = tl.program_id(0)
    heads = tl.num_programs(0)
    program = tl.program_id(1) // QUERIES
    query = tl.program_id(1) % QUERIES
    row = tl.program_id(1)
    real = True
    if TILES:
        sequence = tl.load(programs + 2 * program)
        row = tl.load(query_start + sequence) + tl.load(programs + 2 * program + 1) + query
        real = row < tl.load(query_start + sequence + 1)
    elif not DIRECT:
        row = tl.load(query_start + tl.load(programs + program)) + query
    sink = tl.maximum(tl.load(sinks + head).to(tl.float32) * LOG2_E, FLOOR)
    # All above is older than the kernel before, which leaves the rest.
    dependent.start()
    slot, parts = program * splits, splits
    if not TILES:
        span = tl.load(spans + program)
        slot, parts = span // SPAN_PARTS, span % SPAN_PARTS

    dims = tl.arange(0, DIM)
    peak = sink
    mass = 1.0
    total = tl.zeros([DIM], tl.float32)
    for first in tl.range(0, parts, SPLITS):
        split = first + tl.arange(0, SPLITS)
        exists = (split < parts) & real
        part = ((slot + split).to(tl.int64) * QUERIES + query) * heads + head
        at = part[:, None] * DIM + dims[None, :]
        amount = tl.load(log_mass + part, mask=exists, other=-float("inf"))
        found = tl.load(values + at, mask=exists[:, None], other=0.0)
        some = amount != -float("inf")
        found = tl.where(some[:, None], found, 0.0)
        new_peak = tl.maximum(peak, tl.max(amount, 0))
        shrink = tl.math.exp2(peak - new_peak)
        share = tl.math.exp2(amount - new_peak)
        mass = mass * shrink + tl.sum(share, 0)
        total = total * shrink + tl.sum(found * share[:, None], 0)
        peak = new_peak
    result = round_to(total / mass, out.dtype.element_ty)
    tl.store(out + (row.to(tl.int64) * heads + head) * DIM + dims, result, mask=real)


def merge(
    partial: Partial,
    sinks: torch.Tensor,
    out: torch.Tensor,
    query_start: torch.Tensor,
    programs: Programs,
    few_at_a_time: bool,
) -> None:
    """Write the rows of `out` that `partial` holds parts of; the sink is counted here.

    Args:
        partial: of at most MAX_SPLITS parts a row.
        sinks: [heads].
        out: [tokens, heads, head_dim].
        query_start: int32 [sequences + 1].
        programs: what the slots belong to.
        few_at_a_time: whether a program reads FEW_SPLITS parts at once, or MAX_SPLITS.
    """
    heads = out.shape[1]
    _attention_merge_kernel[(heads, len(programs.which) * programs.queries)](
        partial.values,
        partial.log_mass,
        sinks,
        out,
        query_start,
        programs.which,
        programs.which if programs.spans is None else programs.spans,
        programs.splits,
        QUERIES=programs.queries,
        TILES=programs.spans is None,
        DIRECT=programs.direct,
        DIM=out.shape[2],
        SPLITS=FEW_SPLITS if few_at_a_time else MAX_SPLITS,
        num_warps=1 if few_at_a_time else 4,
        **dependent.LAUNCH,
    )

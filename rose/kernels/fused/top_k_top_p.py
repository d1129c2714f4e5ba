"""Top-k and top-p of whole rows of logits, without sorting them.

What is kept is a prefix of the row's order: all logits above a threshold, and the first few of
those that equal it. The threshold is the logit at which a running sum from the best one down, of
ones (top-k) or of exp(logit - best) (top-p), reaches a target. Four launches find it, three of them
with a program for each part of `_PART` tokens:

1. coarse: sums of 16 bins, two units of the logit wide, on a grid that parts share, each from its
   own best logit down;
2. fine: sums of 16 bins, an eighth wide, in the coarse bin where the target is reached;
3. gather: the fine bin where it is reached is copied aside, for top-k with all that is above; the
   rest of the row is written;
4. select: a program a row searches the copy, by integers in the order of floats, and writes what it
   keeps of it. Top-p after top-k looks at the same copy. More than `_LIST` candidates are not
   copied; then it searches the row itself.

Sums go by parts, in one order, so a row never depends on its batch. A row without a filter is
copied. The kept set is the reference's. Only where top-p's sum comes within 1e-6 of `top_p` may
the order of float32 summation decide otherwise.

What bounds it on an H200, vocabulary 201,088. One row: latency, of launches, of L2 and of the ten
or so rounds of each search; predicted 20-25 us. 128 rows: for top-k 1 and 2 compute ~35
instructions a token, ~40 us each, for top-p alone ~70, ~75 us each; 3 computes ~55 while it moves
206 MB, 60-70 us; 4 takes ~10 us. Predicted 150-170 us with top-k, 220-240 us without; measured 28
us for one row, and for 128 305 and 382.
"""

import torch
from torch import Tensor

from rose.kernels.fused.top_k_top_p_bins import gather_candidates
from rose.kernels.fused.top_k_top_p_select import select

_PART = 4096
"""Tokens of a program of the first three launches: 50 programs a row of 201,088."""

_LANES = 1024
"""Columns of a part; 16-byte loads spread them over all threads of a program."""

_LIST = 32_768
"""The most candidates that are copied aside."""

_TILE = 1024
"""Candidates read at a time."""


def keep_top_k_top_p(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Keep the best tokens of each row; see `rose.kernels.sampling.keep_top_k_top_p`."""
    logits = logits.contiguous()
    out = torch.empty_like(logits)
    if not len(logits):
        return out
    row = (logits, top_k.contiguous(), top_p.contiguous())
    candidates = gather_candidates(*row, out, part=_PART, lanes=_LANES, capacity=_LIST)
    select(*row, candidates, out, tile=_TILE)
    return out

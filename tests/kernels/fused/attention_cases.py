"""Batches for tests of attention: a cache that is poisoned where unused, and the float64 truth."""

import numpy as np
import torch

from rose.kernels.attention import paged_attention
from rose.kernels.dispatch import Implementation, force
from rose.kernels.launch_plan import split
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LaunchPlan, LayerKV
from rose.kernels.reference_attention import ATTENTION_TOLERANCE


class AttentionCase:
    """Sequences of (query_len, kv_len); those of `width` queries are decode rows.

    Args:
        poison: what lies in slots that no query may see; with `poison_pages=False` those of pages
            that some query sees hold 0 instead, for kernels that read whole pages.
    """

    def __init__(
        self,
        lens,
        device,
        *,
        heads=4,
        kv_heads=2,
        dim=16,
        block_size=16,
        window=None,
        width=1,
        seed=0,
        poison_pages=True,
    ):
        generator = torch.Generator(device).manual_seed(seed)

        def random(*shape):
            return torch.randn(shape, generator=generator, device=device).bfloat16()

        self.lens, self.window, self.scale = lens, window, dim**-0.5
        self.query = random(sum(q for q, _ in lens), heads, dim)
        # Larger than usual scores, so that what is seen shows.
        self.query *= 3
        self.keys = [random(k, kv_heads, dim) for _, k in lens]
        self.values = [random(k, kv_heads, dim) for _, k in lens]
        self.sinks = torch.randn(heads, generator=generator, device=device) + 1
        columns = [-(-k // block_size) for _, k in lens]
        blocks = torch.randperm(sum(columns) + 1, generator=generator, device=device).int()
        tables = torch.full((len(lens), max(columns) + 2), -(2**30), device=device).int()
        shape = (len(blocks), block_size, kv_heads, dim)
        self.kv = LayerKV(*(torch.full(shape, torch.nan, device=device).bfloat16() for _ in "kv"))
        taken = 0
        for row, (queries, length) in enumerate(lens):
            # A padding row's queries may be more than its keys; those before the first see none.
            low = 0 if window is None else max(0, length - queries - window + 1)
            pages = slice(low // block_size, columns[row])
            tables[row, pages] = blocks[taken : taken + columns[row]][pages]
            taken += columns[row]
            at = torch.arange(low, length, device=device)
            where = tables[row, at // block_size].long(), at % block_size
            if not poison_pages:
                own = tables[row, pages].long()
                self.kv.key[own] = self.kv.value[own] = 0
            self.kv.key[where] = self.keys[row][low:]
            self.kv.value[where] = self.values[row][low:]
        self.batch = self._batch(tables, width)

    def _batch(self, tables, width):
        device = self.query.device
        query_lens, kv_lens = (np.array(n, dtype=np.int64) for n in zip(*self.lens, strict=True))
        starts = torch.from_numpy(np.concatenate(([0], query_lens.cumsum()))).int().to(device)
        decode, tiles = (torch.from_numpy(a).to(device) for a in split(query_lens, kv_lens, width))
        nowhere = torch.full((len(self.query),), -1, device=device)
        return AttentionBatch(
            query_start=starts,
            kv_len=torch.from_numpy(kv_lens).int().to(device),
            query_lens=query_lens.tolist(),
            kv_lens=kv_lens.tolist(),
            groups=(KVGroupBatch(nowhere, tables, self.window),),
            plan=LaunchPlan(decode, width, tiles),
        )

    def found(self, implementation=Implementation.TRITON):
        with force(implementation):
            return paged_attention(self.query, self.kv, self.batch, 0, self.sinks, self.scale)

    def truth(self):
        """float64 [tokens, heads, dim]: softmax over seen scores and the sink, by definition."""
        out = torch.zeros(self.query.shape, dtype=torch.float64, device=self.query.device)
        begin = 0
        for (queries, length), keys, values in zip(self.lens, self.keys, self.values, strict=True):
            position = torch.arange(length - queries, length, device=out.device)[:, None]
            at = torch.arange(length, device=out.device)
            hidden = at > position
            if self.window is not None:
                hidden |= at <= position - self.window
            shared = self.query.shape[1] // keys.shape[1]
            for head in range(self.query.shape[1]):
                rows = self.query[begin : begin + queries, head].double()
                scores = rows @ keys[:, head // shared].double().T * self.scale
                scores.masked_fill_(hidden, -torch.inf)
                sink = self.sinks[head].double().expand(queries, 1)
                mass = torch.cat((scores, sink), 1).softmax(1)[:, :-1]
                out[begin : begin + queries, head] = mass @ values[:, head // shared].double()
            begin += queries
        return out

    def check(self, implementation=Implementation.TRITON):
        """Compare with the truth; returns what was found."""
        found, truth = self.found(implementation), self.truth()
        assert found.dtype == self.query.dtype
        error = (found.double() - truth).abs().max()
        assert error <= ATTENTION_TOLERANCE.bfloat16 * truth.abs().max()
        return found

"""QKV's product with rotation and cache in one kernel against the two that it stands for."""

import pytest
import torch

from rose.kernels import qkv
from rose.kernels.fused import linear_bf16, qkv_bf16
from rose.kernels.fused.skinny_tiles import SkinnyTiling
from rose.kernels.paged_kv import LayerKV
from rose.kernels.rope_kv import rope_write_kv
from rose.kernels.rotary import rope_cos_sin
from tests.kernels.fused.expert_inputs import before_nan
from tests.kernels.fused.fused_checks import fused, random, same_bytes

# tokens, heads, key heads, head_dim, inner width
SHAPES = [(1, 4, 2, 16, 272), (3, 3, 1, 64, 80), (8, 2, 2, 32, 144), (9, 2, 1, 32, 48)]
if torch.cuda.is_available():
    SHAPES += [(1, 64, 8, 64, 2880), (8, 64, 8, 64, 2880), (13, 64, 8, 64, 2880)]
BLOCKS, BLOCK_SIZE = 5, 4


class Inputs:
    """Operands of both ways; the cache is NaN where nothing was written."""

    def __init__(self, shape, device, *, bias=True):
        tokens, self.heads, self.kv_heads, self.dim, width = shape
        generator = torch.Generator().manual_seed(1)
        positions = torch.randint(0, 2000, (tokens,), generator=generator)
        frequencies = 10000 ** (-2 * torch.arange(self.dim // 2) / self.dim)
        turns = rope_cos_sin(positions, frequencies, 1.25)
        self.cos, self.sin = (before_nan(each.to(device)) for each in turns)
        columns = (self.heads + 2 * self.kv_heads) * self.dim
        self.x = before_nan(random(tokens, width, device=device))
        self.weight = before_nan(random(columns, width, device=device, seed=1))
        self.bias = random(columns, device=device, seed=2) if bias else None
        self.slots = torch.randperm(BLOCKS * BLOCK_SIZE, generator=generator)[:tokens].to(device)

    def cache(self):
        shape = (BLOCKS, BLOCK_SIZE, self.kv_heads, self.dim)
        return LayerKV(*(self.x.new_full(shape, torch.nan) for _ in range(2)))

    def apart(self):
        """By a product and a kernel after it."""
        kv = self.cache()
        product = linear_bf16.linear(self.x, self.weight, self.bias)
        query = rope_write_kv(product, self.cos, self.sin, self.slots, kv, self.heads)
        return query, kv.key, kv.value

    def together(self, run=qkv.linear_qkv):
        """By one kernel."""
        kv = self.cache()
        operands = (self.x, self.weight, self.bias, self.cos, self.sin, self.slots)
        return run(*operands, kv, self.heads), kv.key, kv.value


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_bytes_as_two_kernels(shape, bias, device, monkeypatch):
    inputs = Inputs(shape, device, bias=bias)
    wanted = fused(inputs.apart)
    monkeypatch.setattr(qkv, "rope_write_kv", None)  # it is one kernel
    found = fused(inputs.together)
    assert found[0].isfinite().all()
    assert all(same_bytes(*pair) for pair in zip(found, wanted, strict=True))


@pytest.mark.parametrize("shape", [(2, 2, 1, 12, 32), (17, 2, 1, 32, 32), (2, 2, 1, 32, 40)])
def test_what_it_cannot_serve_takes_two(shape, device, monkeypatch):
    inputs = Inputs(shape, device)
    monkeypatch.setattr(qkv_bf16, "linear_qkv", None)
    query, key, _ = fused(inputs.together)
    assert query.isfinite().all()
    assert key.flatten(0, 1)[inputs.slots].isfinite().all()


def test_another_tiling(device):
    inputs = Inputs((5, 2, 2, 64, 400), device)
    tiling = SkinnyTiling(block_m=8, block_n=64, parts=4, step=64, depth=3)
    run = lambda: inputs.together(lambda *args: qkv_bf16.multiply_with(tiling, *args))  # noqa: E731
    wanted = fused(inputs.apart)
    assert all(same_bytes(*pair) for pair in zip(fused(run), wanted, strict=True))

"""Rotation and the write to the paged cache in Triton against complex numbers in float64."""

import pytest
import torch

from rose.kernels.paged_kv import LayerKV
from rose.kernels.reference import ROPE_TOLERANCE
from rose.kernels.rope_kv import rope_write_kv
from rose.kernels.rotary import rope_cos_sin
from tests.kernels.fused.fused_checks import assert_near, fused, random, same_bytes

# tokens, heads, key heads, head_dim, block_size
SHAPES = [(1, 4, 2, 8, 3), (6, 3, 3, 12, 1), (2, 64, 8, 64, 16), (5, 5, 1, 16, 4), (0, 4, 2, 8, 2)]
if torch.cuda.is_available():
    SHAPES += [(256, 64, 8, 64, 128), (8192, 64, 8, 64, 128), (131072, 64, 8, 64, 128)]


def inputs(shape, device):
    tokens, heads, kv_heads, dim, block_size = shape
    generator = torch.Generator().manual_seed(1)
    positions = torch.randint(0, 2000, (tokens,), generator=generator)
    frequencies = 10000 ** (-2 * torch.arange(dim // 2) / dim)
    cos, sin = (each.to(device) for each in rope_cos_sin(positions, frequencies, 1.25))
    qkv = random(tokens, (heads + 2 * kv_heads) * dim, device=device)
    blocks = tokens // block_size + 2
    slots = torch.randperm(blocks * block_size, generator=generator)[:tokens].to(device)
    return qkv, cos, sin, slots, (blocks, block_size, kv_heads, dim)


def write(shape, device, tensors):
    """The queries and the whole cache, NaN where nothing was written."""
    qkv, cos, sin, slots, cache_shape = tensors
    caches = (torch.full(cache_shape, torch.nan, dtype=qkv.dtype, device=device) for _ in range(2))
    kv = LayerKV(*caches)
    return rope_write_kv(qkv, cos, sin, slots, kv, shape[1]), kv.key, kv.value


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rope_write_kv(shape, device):
    tokens, heads, kv_heads, dim, _ = shape
    tensors = inputs(shape, device)
    query, key, value = fused(lambda: write(shape, device, tensors))

    qkv, cos, sin, slots, _ = tensors
    split = qkv.double().view(tokens, heads + 2 * kv_heads, dim)
    rotation = torch.complex(cos.double(), sin.double())[:, None]
    turned = torch.complex(split[..., : dim // 2], split[..., dim // 2 :]) * rotation
    turned = torch.cat((turned.real, turned.imag), -1)
    assert query.is_contiguous()
    assert_near(query, turned[:, :heads], ROPE_TOLERANCE)
    flat_key, flat_value = key.view(-1, kv_heads, dim), value.view(-1, kv_heads, dim)
    assert_near(flat_key[slots], turned[:, heads : heads + kv_heads], ROPE_TOLERANCE)
    assert torch.equal(flat_value[slots].double(), split[:, heads + kv_heads :])
    untouched = torch.ones(len(flat_key), dtype=torch.bool, device=device)
    untouched[slots] = False
    assert flat_key[untouched].isnan().all()
    assert flat_value[untouched].isnan().all()


@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_every_rounding_is_the_references(shape, device):
    tensors = inputs(shape, device)
    found = fused(lambda: write(shape, device, tensors))
    wanted = write(shape, "cpu", [each.cpu() for each in tensors[:4]] + [tensors[4]])
    assert all(same_bytes(*pair) for pair in zip(found, wanted, strict=True))


def test_a_cache_beyond_two_to_the_31_values(device):
    # 9 GB of a GPU; on a host only the pages that are written to, a few.
    shape = (1, 64, 8, 64, 128)
    qkv, cos, sin, _, _ = inputs(shape, device)
    blocks = 2**31 // (128 * 8 * 64) + 2
    kv = LayerKV(*(qkv.new_empty((blocks, 128, 8, 64)) for _ in range(2)))
    slot = blocks * 128 - 1
    slots = torch.tensor([slot], device=device)
    fused(lambda: rope_write_kv(qkv, cos, sin, slots, kv, 64))
    assert torch.equal(kv.value.view(-1, 512)[slot], qkv[0, -512:])

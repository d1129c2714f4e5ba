"""Rounding in kernels gives torch's bytes, on a GPU and in the interpreter."""

import torch
import triton
import triton.language as tl

from rose.kernels.fused.interpret import round_to, round_to_e4m3

BLOCK = 1024


@triton.jit
def round_kernel(x, bfloat16, e4m3, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < size)
    tl.store(bfloat16 + at, round_to(value, tl.bfloat16), mask=at < size)
    tl.store(e4m3 + at, round_to_e4m3(value), mask=at < size)


def values() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    exponent = torch.randint(-14, 9, (4096,), generator=generator)
    random = torch.randn(4096, generator=generator) * torch.exp2(exponent.float())
    e4m3 = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    ties = torch.cat((e4m3, (e4m3[1:] + e4m3[:-1]) / 2))
    edges = torch.tensor([1.00390625, 1.01171875, 1e-40, 1e-10, torch.nan])
    each = torch.cat((random.clamp(-448, 448), ties, edges))
    return torch.cat((each, -each))


def test_rounding_is_torchs(device):
    x = values().to(device)
    bfloat16 = torch.empty_like(x, dtype=torch.bfloat16)
    e4m3 = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    round_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, bfloat16, e4m3, x.numel(), BLOCK)
    number = ~x.isnan()
    wanted = x[number]
    assert torch.equal(bfloat16[number].view(torch.int16), wanted.bfloat16().view(torch.int16))
    codes = e4m3[number].view(torch.uint8)
    assert torch.equal(codes, wanted.to(torch.float8_e4m3fn).view(torch.uint8))
    assert bfloat16[~number].isnan().all()
    assert e4m3[~number].float().isnan().all()

"""Random experts in each storage format, and the float64 truth of their products."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rose.kernels.matrices import Fp8Matrices, Mxfp4Matrices
from rose.kernels.quantize import (
    dequantize_fp8_block,
    dequantize_mxfp4,
    quantize_fp8_block,
    quantize_mxfp4,
)
from rose.kernels.reference import SWIGLU_ALPHA, sort_by_expert
from rose.kernels.routing import Routing

LIMIT = 1.0
"""Low enough that random sums meet the clamps."""


def route_counts(
    counts: list[int], k: int, device: torch.device, *, listed: bool = False
) -> Routing:
    """A routing of sum(counts) / k tokens that gives each expert its count of rows.

    With a list of tiles, if `listed`.
    """
    flat = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    order = torch.randperm(len(flat), generator=torch.Generator().manual_seed(3))
    chosen = flat[order].view(-1, k).to(device)
    weights = torch.full(chosen.shape, 1 / k, dtype=torch.bfloat16, device=device)
    tiles = list_tiles(counts).to(device) if listed else None
    return Routing(weights, *sort_by_expert(chosen, len(counts)), tiles)


def list_tiles(counts: list[int]) -> Tensor:
    """The routing's list of tiles of 8 rows, int32 [sum(counts)]."""
    words, first = [0] * sum(counts), 0
    starts = []
    for expert, count in enumerate(counts):
        for offset in range(0, count, 8):
            starts.append(min(count - offset, 8) | expert << 4 | (first + offset) << 12)
        first += count
    words[: len(starts)] = starts
    return torch.tensor(words, dtype=torch.int32)


@dataclass(frozen=True)
class Weights:
    """One product's weights in every format, and what float64 makes of them.

    Attributes:
        bf16: [experts, parts, out, in].
        fp8, mxfp4: the same, rounded to the format; MXFP4 as published.
        bias: bfloat16 [experts, parts * out].
    """

    bf16: Tensor
    fp8: Fp8Matrices
    mxfp4: Mxfp4Matrices
    bias: Tensor

    def stored(self, name: str, expert: int) -> Tensor:
        """What a format holds of one expert, float64 [parts * out, in]."""
        if name == "fp8":
            matrix = dequantize_fp8_block(self.fp8.values[expert], self.fp8.scales[expert])
        elif name == "mxfp4":
            pair = self.mxfp4.blocks[expert], self.mxfp4.scales[expert]
            matrix = dequantize_mxfp4(*pair, torch.float32)
        else:
            matrix = self.bf16[expert]
        return matrix.double().flatten(0, 1)


def random_weights(
    experts: int, parts: int, out: int, width: int, device: torch.device, seed: int
) -> Weights:
    """Weights that keep the size of what they multiply."""
    generator = torch.Generator(device).manual_seed(seed)
    # One expert at a time: the codecs need many times a weight's size.
    each = []
    for _ in range(experts):
        value = torch.randn((parts, out, width), generator=generator, device=device) * width**-0.5
        each.append((value.bfloat16(), *quantize_fp8_block(value), *quantize_mxfp4(value)))
    bf16, values, grids, blocks, scales = (torch.stack(part) for part in zip(*each, strict=True))
    bias = torch.randn((experts, parts * out), generator=generator, device=device)
    return Weights(
        bf16,
        Fp8Matrices(values, grids),
        Mxfp4Matrices(blocks, scales, tiled=False),
        bias.bfloat16(),
    )


def sums(weights: Weights, name: str, rows: Tensor, routing: Routing, checked: Tensor) -> Tensor:
    """Products and bias of some rows.

    Args:
        weights: of all experts.
        name: of the format.
        rows: [checked, in], what the checked rows hold.
        routing: whose rows they are.
        checked: int64, their numbers.

    Returns:
        float64 [checked, parts * out].
    """
    out = weights.bias.new_zeros((len(checked), weights.bias.shape[1]), dtype=torch.float64)
    expert_of = torch.searchsorted(routing.first_row[1:], checked.int(), right=True)
    for expert in expert_of.unique().tolist():
        mine = expert_of == expert
        product = rows[mine].double() @ weights.stored(name, expert).t()
        out[mine] = product + weights.bias[expert].double()
    return out


def activated(gate_up: Tensor) -> Tensor:
    """The activation in float64, of sums rounded to bfloat16 as the op says."""
    gate, up = gate_up.bfloat16().double().chunk(2, dim=-1)
    gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)
    return gate * torch.sigmoid(SWIGLU_ALPHA * gate) * (up + 1)


def before_nan(x: Tensor) -> Tensor:
    """The same values in memory that NaN follows: a read beyond the end shows."""
    size = x.numel()
    octets = torch.full(((size + 4096) * x.itemsize,), 0xFF, dtype=torch.uint8, device=x.device)
    storage = octets.view(x.dtype)
    storage[:size] = x.flatten()
    return storage[:size].view(x.shape)

"""Codecs of the number formats: MXFP4, and FP8 e4m3 in blocks.

These functions are the definition of the stored bytes: a fused kernel must produce and read the
same ones, bit for bit.

MXFP4 (OCP Microscaling Formats, v1.0): 32 values along the last dimension share an E8M0 scale byte
s, worth 2^(s - 127); a value is an e2m1 code, two a byte, the low nibble first.

FP8 (float8_e4m3fn): a matrix has one float32 multiplier for each 128 x 128 block, activations have
one for each run of 128 along the last dimension; edges may be ragged.
"""

from functools import cache

import torch
from torch import Tensor

MXFP4_GROUP = 32
FP8_BLOCK = 128
E4M3_MAX = 448.0

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of codes 0-7; codes 8-15 are their negatives."""

E2M1_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""Where rounding goes from one code to the next."""

ACTIVATION_AMAX_FLOOR = 1e-10
"""Smaller activations share this run's scale: no division by zero, no overflow of 1 / scale."""


def ceil_div(value: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-value // divisor)


@cache
def _byte_table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """For each byte, its two e2m1 values side by side, seen as one integer [256].

    One gather of an integer then yields both values, in half the time of two.
    """
    values = torch.tensor(E2M1_VALUES, dtype=torch.float32)
    values = torch.cat((values, -values))
    byte = torch.arange(256)
    pairs = torch.stack((values[byte & 15], values[byte >> 4]), dim=-1).to(dtype)
    return pairs.view(_PAIR[dtype]).flatten().to(device)


_PAIR = {torch.float32: torch.int64, torch.bfloat16: torch.int32}


@cache
def _scale_table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The value of each E8M0 byte [256]; 255 is NaN."""
    exponent = torch.arange(256, dtype=torch.float64) - 127
    table = torch.exp2(exponent)
    table[255] = torch.nan
    return table.to(dtype).to(device)


def dequantize_mxfp4(blocks: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """MXFP4 to numbers; exact in either dtype.

    Args:
        blocks: uint8 [..., groups, 16].
        scales: uint8 [..., groups].
        dtype: bfloat16 or float32. e2m1 has one mantissa bit and E8M0 spans the exponents of
            both, so the product needs no rounding.

    Returns:
        dtype [..., groups * 32].
    """
    codes = blocks.flatten().int()
    pairs = _byte_table(dtype, blocks.device).index_select(0, codes)
    values = pairs.view(dtype).view(*scales.shape, MXFP4_GROUP)
    scale = _scale_table(dtype, scales.device).index_select(0, scales.flatten().int())
    return values.mul_(scale.view(*scales.shape, 1)).flatten(-2)


def quantize_mxfp4(value: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers to MXFP4, rounded to nearest, ties to the even code.

    The scale of a group is 2^(floor(log2(amax)) - 2), as OCP Microscaling section 6.3 gives it:
    the largest value lands in [4, 8) and saturates at 6.

    Args:
        value: float [..., n], n a multiple of 32.

    Returns:
        uint8 blocks [..., n / 32, 16] and uint8 scales [..., n / 32].

    Raises:
        ValueError: n is not a multiple of 32.
    """
    require_mxfp4_width(value.shape[-1])
    groups = value.float().reshape(*value.shape[:-1], -1, MXFP4_GROUP)
    amax = groups.abs().amax(-1)
    # frexp writes amax as m 2^e with m in [0.5, 1), so floor(log2) is e - 1.
    exponent = (torch.frexp(amax).exponent - 3).clamp(-127, 127)
    scale = _scale_table(torch.float32, value.device)[exponent + 127]
    magnitude = (groups / scale.unsqueeze(-1)).abs().contiguous()
    midpoints = torch.tensor(E2M1_MIDPOINTS, device=value.device)
    # The two differ only on a midpoint, where one of them is even.
    below = torch.bucketize(magnitude, midpoints)
    above = torch.bucketize(magnitude, midpoints, right=True)
    code = torch.where(below % 2 == 0, below, above) + 8 * torch.signbit(groups)
    blocks = code[..., 0::2] | code[..., 1::2] << 4
    return blocks.to(torch.uint8), (exponent + 127).to(torch.uint8)


def require_mxfp4_width(width: int) -> None:
    """Check that rows of this width fall into whole MXFP4 groups.

    Raises:
        ValueError: they do not.
    """
    if width % MXFP4_GROUP:
        raise ValueError(
            f"MXFP4 needs an input width that is a multiple of {MXFP4_GROUP}; got {width}. "
            "bf16 and fp8 take any width"
        )


def dequantize_fp8_block(values: Tensor, scales: Tensor) -> Tensor:
    """FP8 blocks to numbers: value times its block's scale, one float32 product.

    Args:
        values: float8_e4m3fn [..., rows, columns].
        scales: float32 [..., ceil(rows / 128), ceil(columns / 128)].

    Returns:
        float32 [..., rows, columns].
    """
    rows, columns = values.shape[-2:]
    result = _e4m3_to_float(values)
    row_scales = scales.repeat_interleave(FP8_BLOCK, dim=-2)[..., :rows, :]
    whole = columns // FP8_BLOCK
    edge = whole * FP8_BLOCK
    if whole:
        # In place on views: expanding the scales to the matrix would double the memory.
        blocks = result[..., :edge].view(*result.shape[:-1], whole, FP8_BLOCK)
        blocks.mul_(row_scales[..., :whole].unsqueeze(-1))
    if edge < columns:
        result[..., edge:].mul_(row_scales[..., whole:])
    return result


@cache
def _e4m3_table() -> Tensor:
    """The value of each e4m3 byte [256], on the CPU."""
    return torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()


def _e4m3_to_float(values: Tensor) -> Tensor:
    if values.device.type != "cpu":
        return values.float()
    # A gather takes a third of the time of torch's scalar conversion.
    codes = values.view(torch.uint8).flatten().int()
    return _e4m3_table().index_select(0, codes).view(values.shape)


def quantize_fp8_block(value: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix to FP8 with the least power-of-two scale a 128 x 128 block that does not saturate.

    A power of two moves exponents alone, so a value that has at most four significant bits, as
    every MXFP4 value has, survives bit for bit unless it falls below e4m3's subnormals. For MXFP4
    that is where the E8M0 scales inside a block span no more than 2^14.

    Args:
        value: float [..., rows, columns]; each matrix has blocks of its own.

    Returns:
        float8_e4m3fn [..., rows, columns] and float32 [..., ceil(rows / 128), ceil(columns / 128)].
    """
    *batch, rows, columns = value.shape
    block_rows, block_columns = ceil_div(rows, FP8_BLOCK), ceil_div(columns, FP8_BLOCK)
    whole = (*batch, block_rows * FP8_BLOCK, block_columns * FP8_BLOCK)
    padded = value.new_zeros(whole, dtype=torch.float32)
    padded[..., :rows, :columns] = value
    blocks = padded.view(*batch, block_rows, FP8_BLOCK, block_columns, FP8_BLOCK)
    scales = power_of_two_scale(blocks.abs().amax(dim=(-3, -1)))
    blocks.div_(scales.unsqueeze(-1).unsqueeze(-3))
    return padded[..., :rows, :columns].to(torch.float8_e4m3fn), scales


def power_of_two_scale(amax: Tensor) -> Tensor:
    """The least 2^n for which amax / 2^n <= 448; 1 where amax is 0."""
    mantissa, exponent = torch.frexp(amax)
    # 448 = 0.875 * 2^9.
    exponent = exponent - 9 + (mantissa > 0.875).int()
    # Below 2^-126 the scale itself would be subnormal; such weights may as well round.
    scale = torch.ldexp(torch.ones_like(amax), exponent.clamp(-126, 127))
    return torch.where(amax == 0, torch.ones_like(scale), scale)


def quantize_fp8_activations(x: Tensor) -> tuple[Tensor, Tensor]:
    """Activations to FP8 with scale amax / 448 for each run of 128 along a row.

    Args:
        x: float [rows, columns].

    Returns:
        float8_e4m3fn [rows, columns] and float32 [rows, ceil(columns / 128)], multipliers.
    """
    rows, columns = x.shape
    runs = ceil_div(columns, FP8_BLOCK)
    padded = x.new_zeros(rows, runs * FP8_BLOCK, dtype=torch.float32)
    padded[:, :columns] = x
    grouped = padded.view(rows, runs, FP8_BLOCK)
    amax = grouped.abs().amax(-1).clamp_min(ACTIVATION_AMAX_FLOOR)
    # By a tensor: on a GPU torch divides by a Python number through its rounded reciprocal.
    scales = amax / torch.full_like(amax, E4M3_MAX)
    grouped.div_(scales.unsqueeze(-1))
    return padded[:, :columns].to(torch.float8_e4m3fn), scales


def dequantize_fp8_activations(values: Tensor, scales: Tensor) -> Tensor:
    """FP8 activations to numbers.

    Args:
        values: float8_e4m3fn [rows, columns].
        scales: float32 [rows, ceil(columns / 128)].

    Returns:
        float32 [rows, columns].
    """
    columns = values.shape[-1]
    return _e4m3_to_float(values) * scales.repeat_interleave(FP8_BLOCK, dim=-1)[:, :columns]

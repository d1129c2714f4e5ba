"""Angles of rotary position embedding with YaRN; computed once a step, not worth fusing."""

import math

import torch
from torch import Tensor


def yarn_inverse_frequencies(
    head_dim: int,
    *,
    theta: float,
    factor: float,
    beta_fast: float,
    beta_slow: float,
    original_max_position: int,
    truncate: bool,
) -> Tensor:
    """Radians a position for each pair of dimensions (YaRN, Peng et al. 2023, section 3.2).

    Pairs that turn more than beta_fast times over the original context keep their frequency,
    those that turn less than beta_slow times are slowed down by `factor`, with a ramp between.

    Args:
        head_dim: even.
        theta: base of the frequencies.
        factor: of the context's extension; at most 1 is plain RoPE.
        beta_fast: turns above which a frequency stays.
        beta_slow: turns below which it is interpolated.
        original_max_position: tokens of context before the extension.
        truncate: round the ramp's ends to whole dimensions.

    Returns:
        float32 [head_dim / 2].
    """
    # In float32 as the models were trained: a double would differ from it at long contexts.
    period = theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if factor <= 1:
        return 1 / period

    def dimension(turns: float) -> float:
        wavelength = original_max_position / (turns * 2 * math.pi)
        return head_dim / 2 * math.log(wavelength) / math.log(theta)

    low, high = dimension(beta_fast), dimension(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low or 0.001
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    keep = 1 - ramp
    return 1 / (factor * period) * (1 - keep) + 1 / period * keep


def yarn_concentration(factor: float) -> float:
    """What cos and sin are multiplied by, so that scores keep their spread (YaRN, section 3.4)."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def rope_cos_sin(
    positions: Tensor, inverse_frequencies: Tensor, concentration: float
) -> tuple[Tensor, Tensor]:
    """The rotation of each token: float32 [tokens, head_dim / 2] twice."""
    angle = positions.float().unsqueeze(-1) * inverse_frequencies
    return angle.cos() * concentration, angle.sin() * concentration

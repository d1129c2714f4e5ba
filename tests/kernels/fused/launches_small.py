"""The small kernels at the shapes of gpt-oss, for the compiler."""

import torch

from rose.kernels.activation_quant import quantize_fp8_rows
from rose.kernels.dispatch import Implementation, force
from rose.kernels.norm import add_rms_norm, add_rms_norm_quantize, rms_norm

HIDDEN = 2880
TOKENS = (1, 256, 8192)


def _empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)


def _norms(tokens: int) -> None:
    x, weight = _empty(tokens, HIDDEN), _empty(HIDDEN)
    rms_norm(x, weight, 1e-5)
    add_rms_norm(x, x, weight, 1e-5)
    add_rms_norm_quantize(x, x, weight, 1e-5)
    quantize_fp8_rows(x)


def launches() -> None:
    """Call each wrapper as an engine would."""
    with force(Implementation.TRITON):
        for tokens in TOKENS:
            _norms(tokens)

"""Quantization schemes: how weights are stored and applied."""

from rose.quant.bf16 import Bf16Scheme
from rose.quant.fp8_block import Fp8BlockScheme
from rose.quant.mxfp4 import Mxfp4Scheme
from rose.quant.scheme import QuantScheme

_SCHEMES: dict[str, QuantScheme] = {
    scheme.name: scheme for scheme in (Bf16Scheme(), Fp8BlockScheme(), Mxfp4Scheme())
}


def quant_scheme(name: str) -> QuantScheme:
    """The scheme of this name: "bf16", "fp8" or "mxfp4".

    Raises:
        ValueError: there is none.
    """
    try:
        return _SCHEMES[name]
    except KeyError:
        known = ", ".join(_SCHEMES)
        raise ValueError(f"unknown quantization {name!r}; Rose has {known}") from None

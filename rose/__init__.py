"""Rose: an inference engine for OpenAI's gpt-oss models on NVIDIA Hopper GPUs.

The public Python API is token ids in, token ids out::

    from rose import LLM, SamplingParams

Names are loaded on first use, so that the front end can import ``rose.protocol`` on a machine
without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rose.version import __version__

if TYPE_CHECKING:
    from rose.llm import LLM, AsyncLLM
    from rose.options import EngineOptions
    from rose.protocol import FinishReason, RequestOutput, SamplingParams

_HOMES = {
    "LLM": "rose.llm",
    "AsyncLLM": "rose.llm",
    "EngineOptions": "rose.options",
    "FinishReason": "rose.protocol",
    "RequestOutput": "rose.protocol",
    "SamplingParams": "rose.protocol",
}

__all__ = [
    "LLM",
    "AsyncLLM",
    "EngineOptions",
    "FinishReason",
    "RequestOutput",
    "SamplingParams",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562).

    Raises:
        ImportError: the name needs torch, which is not installed.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rose' has no attribute {name!r}")
    if home == "rose.llm":
        from rose.requirements import require_engine

        require_engine()
    return getattr(import_module(home), name)

"""Rose: an inference engine for OpenAI's gpt-oss models on NVIDIA Hopper GPUs.

The public Python API is token ids in, token ids out::

    from rose import LLM, SamplingParams

Names are loaded on first use, so that the front end can import ``rose.protocol`` on a machine
without torch.
"""

from typing import TYPE_CHECKING

from rose.version import __version__

if TYPE_CHECKING:
    from rose.llm import LLM, AsyncLLM
    from rose.protocol import FinishReason, RequestOutput, SamplingParams

__all__ = ["LLM", "AsyncLLM", "FinishReason", "RequestOutput", "SamplingParams", "__version__"]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name in {"LLM", "AsyncLLM"}:
        import rose.llm

        return getattr(rose.llm, name)
    if name in {"FinishReason", "RequestOutput", "SamplingParams"}:
        import rose.protocol

        return getattr(rose.protocol, name)
    raise AttributeError(f"module 'rose' has no attribute {name!r}")

"""What the adapters of vLLM and SGLang share; each has a file of its own.

Both are given the checkpoint's folder (or only its config.json and random weights) and token ids,
and do without a tokenizer. docs/benchmarks.md says what was held against the releases in READ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rose.bench.machine import package_version
from rose.bench.results import BenchError, Sharding

PeerName = Literal["vllm", "sglang"]

READ = {"vllm": ("0.26.0", "0.33.0"), "sglang": ("0.5.17", "0.5.23")}
"""Releases against which the adapters were read and run."""

LEAST_CHUNK = 2048
"""Prompt tokens that a peer computes in a step unless told, at least: bounds how far the first
sequence may run ahead of the last."""

BY_CHANCE = 16
"""Tokens of a random prompt that a cache may know all the same: SGLang's works token by token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """What a peer is started with; None leaves its own default.

    Attributes:
        folder: the checkpoint.
        load_format: "auto", or "dummy" for random weights.
        longest: the model's longest sequence in tokens, or a lower one asked for.
        max_batched_tokens: tokens in a step.
    """

    folder: Path
    load_format: Literal["auto", "dummy"]
    sharding: Sharding
    longest: int
    max_num_seqs: int | None
    max_batched_tokens: int | None
    seed: int


def check_installed(name: PeerName) -> None:
    """Refuse a peer that is not there, before anything is printed; imports nothing.

    Raises:
        BenchError: it is not installed.
    """
    try:
        found = find_spec(name) is not None
    except ImportError:  # an import hook forbids it
        found = False
    if not found:
        raise BenchError(
            f"--engine {name}: {name} is not installed here; install it, best in an environment of "
            "its own beside Rose"
        )


def peer_name(name: PeerName) -> str:
    """With the installed release, as "vllm 0.26.0"."""
    return f"{name} {package_version(name) or 'of an unknown release'}"


def warn_of_release(name: PeerName) -> list[str]:
    """What a reader must know if the installed release is none of READ; else nothing."""
    # A build's own suffix, as in 0.26.0+cu129, is the same source.
    if (package_version(name) or "").split("+")[0] in READ[name]:
        return []
    return [f"{peer_name(name)}: the adapter was held against {' and '.join(READ[name])} only"]


class Peer:
    """What both share: neither tells its cache's size, so that only counts are refused.

    Attributes:
        name: with its version.
        notes: what a reader of the results must know of how it ran.
    """

    def __init__(self, name: PeerName, options: PeerOptions, *, spare: int = 0) -> None:
        self.name = peer_name(name)
        self.notes: list[str] = []
        self._sharding = options.sharding.name
        self._longest = options.longest - spare
        self._most = options.max_num_seqs
        self._chunk = min(LEAST_CHUNK, options.max_batched_tokens or LEAST_CHUNK)

    def refuse_prefill(self, tokens: int) -> str | None:
        """See Subject."""
        return self._refuse_length(tokens, 1)

    def refuse_decode(self, batch: int, context: int, steps: int) -> str | None:
        """See Subject."""
        if self._most is not None and batch > self._most:
            return f"{batch} sequences, but a step holds {self._most}: raise --max-num-seqs"
        return self._refuse_length(context, steps + 1)

    def _refuse_length(self, tokens: int, more: int) -> str | None:
        if tokens + more <= self._longest:
            return None
        return f"{tokens} tokens and {more} more exceed the longest sequence, {self._longest}"

    def ramp(self, prompts: list[list[int]]) -> int:
        """The most steps by which the first sequence may run ahead of the last."""
        return len(prompts) * (len(prompts[0]) // self._chunk + 2) + 16

    def start(self, make: Callable[[], Any]) -> Any:  # noqa: ANN401  # packages without types
        """What `make` makes.

        Raises:
            BenchError: it raised anything.
        """
        try:
            return make()
        except Exception as error:  # whatever a peer raises, it did not start
            raise BenchError(
                f"{self.name} did not start: {str(error) or type(error).__name__} (what it printed "
                "before may say more)"
            ) from error

    def tell(self, settings: Mapping[str, object]) -> None:
        """Note the settings that the peer itself resolved."""
        told = ", ".join(f"{name} {value}" for name, value in settings.items())
        self.notes.append(f"{self.name} ({self._sharding}) ran with {told}")


def check_cold(cached: int, prompts: list[list[int]]) -> None:
    """Refuse a prefill of which `cached` tokens came from a prefix cache.

    Raises:
        BenchError: those are more than chance allows.
    """
    if cached > BY_CHANCE * len(prompts):
        raise BenchError(f"{cached} prompt tokens came from the prefix cache: not a cold prefill")


def load_module(name: PeerName) -> Any:  # noqa: ANN401  # an optional package without types
    """Import a peer.

    Raises:
        BenchError: it cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise BenchError(f"--engine {name}: {name} cannot be imported here ({error})") from error

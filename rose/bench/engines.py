"""From a command line to something that can be measured: Rose, vLLM or SGLang."""

from collections.abc import Callable, Sequence
from typing import Literal

from rose.bench.peer_sglang import Sglang
from rose.bench.peer_vllm import Vllm
from rose.bench.peers import PeerName, PeerOptions, check_installed
from rose.bench.results import BenchError, Sharding
from rose.bench.subject import Subject
from rose.config import EngineConfig
from rose.options import EngineOptions

EngineName = Literal["rose", PeerName]


def check_engine(engine: EngineName, shardings: Sequence[Sharding], gpus: int) -> None:
    """Refuse what cannot run, before anything is measured or printed.

    Args:
        engine: to run them.
        shardings: asked for.
        gpus: of this machine.

    Raises:
        BenchError: the engine is not installed; or it names all shardings that cannot run, why,
            and what would do.
    """
    if engine != "rose":
        check_installed(engine)
    reasons = [(s.name, reason) for s in shardings if (reason := _refusal(engine, s, gpus))]
    if reasons:
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons)
        good = ",".join(s.name for s in shardings if _refusal(engine, s, gpus) is None)
        raise BenchError(f"--sharding {told}. These would do: {good or 'tp1'}")


def _refusal(engine: EngineName, sharding: Sharding, gpus: int) -> str | None:
    if engine == "rose":
        if sharding == Sharding():
            return None
        return "this Rose runs a model on one GPU"
    if sharding.gpus > max(1, gpus):
        return f"needs {sharding.gpus} GPUs, and this machine has {gpus}"
    if sharding.dp > 1:
        return f"data parallelism of {engine} is not driven from here"
    if sharding.ep not in (1, sharding.tp):
        return f"{engine} spreads experts over all its GPUs or none"
    return None


def start_subject(
    engine: EngineName,
    options: EngineOptions,
    config: EngineConfig,
    sharding: Sharding,
    note: Callable[[str], None],
) -> Subject:
    """Start an engine.

    Args:
        engine: which.
        options: as the user gave them; a peer gets its own defaults for what was left out.
        config: what they resolved to.
        sharding: one that `check_engine` let pass.
        note: takes lines on how it runs, for whoever reads the results.

    Raises:
        UserError: it cannot be imported, or does not start.
    """
    if engine == "rose":
        # Imported here: a peer wants to be first to set up the GPU.
        from rose.bench.own import OwnEngine

        return OwnEngine(config)
    asked = PeerOptions(
        folder=config.path,
        load_format=config.load_format,
        sharding=sharding,
        longest=options.max_model_len or config.model.max_position_embeddings,
        max_num_seqs=options.max_num_seqs,
        max_batched_tokens=options.max_batched_tokens,
        seed=options.seed,
    )
    peer = Vllm(asked) if engine == "vllm" else Sglang(asked)
    for text in peer.notes:
        note(text)
    return peer

"""The options that commands share: an engine's, and the prompts'."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import click

from rose.config import DenseQuantization, Dtype, Kernels, LoadFormat
from rose.options import Device, EngineOptions, QuantizationChoice
from rose.requirements import require_engine

Command = Callable[..., object]


def choice(literal: object) -> click.Choice[str]:
    """One of the words of a Literal."""
    return click.Choice(list(get_args(literal)))


# One parameter a field of EngineOptions, under the field's name.
_ENGINE_PARAMETERS: dict[str, Callable[[Command], Command]] = {
    "model": click.argument("model"),
    "served_name": click.option(
        "--served-name", help="Name that clients ask for.  [default: the model's own]"
    ),
    "quantization": click.option(
        "--quantization",
        type=choice(QuantizationChoice),
        help="How experts are stored and multiplied; auto: as the checkpoint has them.",
    ),
    "dense_quantization": click.option(
        "--dense-quantization",
        type=choice(DenseQuantization),
        help="The same for attention's projections and the head; bf16: as --dtype says.",
    ),
    "dtype": click.option("--dtype", type=choice(Dtype), help="Of all that is not quantised."),
    "device": click.option("--device", type=choice(Device)),
    "load_format": click.option(
        "--load-format", type=choice(LoadFormat), help="dummy: random weights of the right shape."
    ),
    "block_size": click.option(
        "--block-size", type=int, help="Tokens a KV block.  [default: 16, on a GPU 128]"
    ),
    "chunk_size": click.option(
        "--chunk-size",
        type=int,
        help="The most tokens that one sequence computes in a step.  [default: all of the step's]",
    ),
    "max_num_seqs": click.option(
        "--max-num-seqs", type=int, help="Sequences in a step.  [default: 64, on a GPU 256]"
    ),
    "max_batched_tokens": click.option(
        "--max-batched-tokens", type=int, help="Tokens in a step.  [default: 2048, on a GPU 8192]"
    ),
    "max_model_len": click.option(
        "--max-model-len", type=int, help="Longest sequence in tokens.  [default: what fits]"
    ),
    "prefix_cache": click.option("--prefix-cache/--no-prefix-cache"),
    "one_ahead": click.option(
        "--one-ahead/--no-one-ahead", help="Schedule a step while the device runs the last one."
    ),
    "cuda_graphs": click.option(
        "--cuda-graphs/--no-cuda-graphs", help="Decode by CUDA graphs, captured at the start."
    ),
    "kernels": click.option(
        "--kernels",
        type=choice(Kernels),
        help="auto: the fastest; triton: Triton's alone; reference: plain torch.",
    ),
    "priority_aging": click.option(
        "--priority-aging", type=int, help="Arrivals that one level of priority is worth."
    ),
    "kv_cache_bytes": click.option(
        "--kv-cache-bytes", type=int, help="Memory for the KV cache.  [default: measured]"
    ),
    "num_blocks": click.option(
        "--num-blocks",
        type=int,
        nargs=2,
        metavar="FULL SLIDING",
        help="KV blocks of full and sliding layers, instead of --kv-cache-bytes.",
    ),
    "cpu_threads": click.option(
        "--cpu-threads", type=int, help="Threads on a CPU.  [default: one for a small model]"
    ),
    "seed": click.option("--seed", type=int, help="Of the engine's own random choices."),
}


def engine_options(
    command: Command, default_model: str | None = None, unless: str | None = None
) -> Command:
    """Give a command MODEL and the engine's options, as one `options: EngineOptions`.

    Args:
        command: to decorate.
        default_model: MODEL, if the user names none; None: it must be named.
        unless: an option of the command's that makes it run no engine.

    Raises (when the command runs):
        UserError: an option is out of range, or this installation cannot run a model.
    """

    @functools.wraps(command)
    def run(*args: object, **values: object) -> object:
        chosen = {name: values.pop(name) for name in _ENGINE_PARAMETERS}
        given = {name: value for name, value in chosen.items() if value is not None}
        if unless is None or values[unless] is None:
            require_engine()
        options = EngineOptions(**given)  # type: ignore[arg-type]  # click checked the types
        return command(*args, options=options, **values)

    decorated: Command = run
    defaults = EngineOptions(model="")
    for name, parameter in reversed(_ENGINE_PARAMETERS.items()):
        decorated = parameter(decorated)
        option = decorated.__click_params__[-1]  # type: ignore[attr-defined]
        value = getattr(defaults, name, None)
        if name == "model":
            # A default of None would count as one for click 8.5.
            option.required = default_model is None
            if default_model is not None:
                option.default = default_model
        elif value is not None:
            option.default, option.show_default = value, True
    return decorated


def engine_arguments(options: EngineOptions) -> list[str]:
    """The command line that `engine_options` reads back as the same options."""
    words: list[str] = []
    for name in _ENGINE_PARAMETERS:
        value, flag = getattr(options, name), "--" + name.replace("_", "-")
        if name == "model" or value is None:
            continue
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, tuple):
            words += [flag, *map(str, value)]
        else:
            words += [flag, str(value)]
    return [*words, "--", options.model]


tokens_option = click.option("--tokens", metavar="IDS", help="One prompt: ids separated by commas.")
tokens_file_option = click.option(
    "--tokens-file",
    type=click.Path(path_type=Path),
    help="A JSON array of ids, or of such arrays.",
)

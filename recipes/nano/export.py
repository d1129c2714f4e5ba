"""From a training state to a checkpoint folder, and the state's own files.

    python -m recipes.nano.export STATE OUT --size nano

A checkpoint has config.json, generation_config.json and model.safetensors in the published layout
(MXFP4 experts, everything else bfloat16). An MTP head lies beside it in mtp.safetensors:

- `mtp.hidden_norm.weight`, `mtp.embedding_norm.weight` [hidden]: the RMS norms of its two inputs,
  the model's hidden state (after the final norm) and the embedding of the next token;
- `mtp.projection.weight` [hidden, 2 * hidden]: of their concatenation, hidden state first;
- `mtp.layers.0.*`: one layer under the names that `model.layers.N.*` has, with full attention;
- `mtp.norm.weight` [hidden]: the final norm, after which the model's `lm_head` predicts.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from recipes.nano.sizes import SIZES, generation_config, published_config
from recipes.nano.vocabulary import special_token_ids
from rose.kernels.quantize import quantize_mxfp4

State = Mapping[str, Tensor]

PART_BYTES = 15 << 20
"""The most that one file of a saved state holds."""

_WHOLE_MODEL = ("embed_tokens.", "layers.", "norm.")


def published_tensors(state: State) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the published layout, those of an MTP head among them, by name."""
    for name, value in state.items():
        published = _published_name(name)
        if name.endswith("experts.gate_up"):
            # Rows alternate: gate, up, gate, up.
            yield from _mxfp4(f"{published}_proj", value.transpose(1, 2).flatten(1, 2))
        elif name.endswith("experts.down"):
            yield from _mxfp4(f"{published}_proj", value)
        elif name.endswith("experts.gate_up_bias"):
            rows = value.transpose(1, 2).flatten(1)
            yield published.replace("gate_up_bias", "gate_up_proj_bias"), _bf16(rows)
        elif name.endswith("experts.down_bias"):
            yield published.replace("down_bias", "down_proj_bias"), _bf16(value)
        else:
            yield published, _bf16(value)


def _published_name(name: str) -> str:
    if name.startswith(_WHOLE_MODEL):
        return f"model.{name}"
    return name.replace("mtp.layer.", "mtp.layers.0.")


def _bf16(value: Tensor) -> Tensor:
    return value.to(torch.bfloat16).contiguous()


def _mxfp4(name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    blocks, scales = quantize_mxfp4(value)
    yield f"{name}_blocks", blocks
    yield f"{name}_scales", scales


def write_checkpoint(state: State, size: str, out: Path) -> None:
    """Write a checkpoint folder, but for its tokenizer.

    Args:
        state: the state of a TrainingModel, float32, on the CPU.
        size: a key of SIZES.
        out: the folder; made if it is missing.
    """
    out.mkdir(parents=True, exist_ok=True)
    ids = special_token_ids()
    _write_json(out / "config.json", published_config(size, ids))
    _write_json(out / "generation_config.json", generation_config(ids))
    tensors = dict(published_tensors(state))
    head = {name: value for name, value in tensors.items() if name.startswith("mtp.")}
    model = {name: value for name, value in tensors.items() if name not in head}
    # transformers wants the format named.
    save_file(model, out / "model.safetensors", metadata={"format": "pt"})
    if head:
        save_file(head, out / "mtp.safetensors", metadata={"format": "pt"})


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def save_state(state: State, folder: Path) -> None:
    """Save a training state as float16 in files small enough to carry about.

    Half precision keeps 11 bits of weights that lie far inside its range, which suffices to
    train on.
    """
    parts: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, value in state.items():
        nbytes = 2 * math.prod(value.shape)
        if filled + nbytes > PART_BYTES:
            parts.append({})
            filled = 0
        parts[-1][name] = value.to(torch.float16).contiguous()
        filled += nbytes
    for number, part in enumerate(parts):
        save_file(part, folder / f"state-{number}.safetensors")


def load_state(folder: Path) -> dict[str, Tensor]:
    """What `save_state` saved, as float32.

    Raises:
        FileNotFoundError: the folder holds no state.
    """
    files = sorted(folder.glob("state-*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no state-*.safetensors; train with --out first")
    return {name: value.float() for file in files for name, value in load_file(file).items()}


def main() -> None:
    """Write a checkpoint from a saved state."""
    parser = argparse.ArgumentParser(description="Write a checkpoint from a training state.")
    parser.add_argument("state", type=Path, help="folder with state-*.safetensors")
    parser.add_argument("out", type=Path, help="folder of the checkpoint")
    parser.add_argument("--size", choices=sorted(SIZES), default="nano")
    arguments = parser.parse_args()
    write_checkpoint(load_state(arguments.state), arguments.size, arguments.out)


if __name__ == "__main__":
    main()

"""How many tokens a step would yield with a draft: of the MTP head, and of the draft model.

    python -m recipes.nano.acceptance [MODEL] [--draft nano-draft] [--per-task 10] [--json F]

The model answers held-out prompts greedily. A step that verifies k drafted tokens yields those up
to the first that the model would not have written, and one of its own. Since drafts count only
while all before them are right, what a drafter would propose after the model's own text is all
that must be known: one pass over each finished turn gives it, with no speculation at all.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from recipes.nano.evaluate import MAX_TURN_TOKENS, engine_writer
from recipes.nano.heldout import heldout_cases
from rose.config import ModelConfig
from rose.core.mapping import ParallelMapping
from rose.kernels.paged_kv import AttentionBatch, KVGroupBatch, LayerKV
from rose.llm import LLM
from rose.models.gpt_oss import GptOss
from rose.models.hub import find_checkpoint
from rose.models.layouts import WeightSource
from rose.models.weights import load_weights
from rose.protocol import UserError
from rose.quant import quant_scheme
from rose.server.chat.harmony import HarmonyFormat
from rose.server.detokenize import TextCodec

DRAFTED = (1, 2, 3, 4)
CPU = torch.device("cpu")


def load_model(folder: Path, config: ModelConfig) -> GptOss:
    """A checkpoint as the engine loads it by default, on the CPU."""
    model = GptOss(
        config,
        scheme=quant_scheme("mxfp4"),
        mapping=ParallelMapping(),
        dtype=torch.bfloat16,
        device=CPU,
    )
    load_weights(model, WeightSource(folder, config), config)
    return model


class WholeSequence:
    """One sequence of a length that is run at once: its place in a cache of its own."""

    def __init__(self, config: ModelConfig, length: int) -> None:
        shape = (1, length, config.num_kv_heads, config.head_dim)
        self.positions = torch.arange(length)
        table = torch.zeros((1, 1), dtype=torch.int32)
        self.batch = AttentionBatch(
            query_start=torch.tensor([0, length], dtype=torch.int32),
            kv_len=torch.tensor([length], dtype=torch.int32),
            query_lens=[length],
            kv_lens=[length],
            groups=(
                KVGroupBatch(self.positions, table, None),
                KVGroupBatch(self.positions, table, config.sliding_window),
            ),
        )
        self.kv = [
            LayerKV(
                torch.empty(shape, dtype=torch.bfloat16), torch.empty(shape, dtype=torch.bfloat16)
            )
            for _ in range(config.num_layers)
        ]


def hidden_states(model: GptOss, token_ids: Tensor) -> Tensor:
    """Hidden states after the final norm, [tokens, hidden], of int64 [tokens]."""
    whole = WholeSequence(model.config, len(token_ids))
    hidden: Tensor = model(token_ids, whole.positions, whole.batch, whole.kv)
    return hidden


class MTPHead:
    """The head in a checkpoint's mtp.safetensors (`recipes.nano.export` names its tensors).

    Its layer, final norm, embedding and head are those of a gpt-oss of one layer, and are loaded
    as such.
    """

    def __init__(self, folder: Path, target: ModelConfig) -> None:
        own = load_file(folder / "mtp.safetensors")
        self._projection = own.pop("mtp.projection.weight")
        self._hidden_norm = own.pop("mtp.hidden_norm.weight")
        self._embedding_norm = own.pop("mtp.embedding_norm.weight")
        shared = load_file(folder / "model.safetensors")
        tensors = {name.replace("mtp.", "model.", 1): value for name, value in own.items()}
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = shared[name]
        config = replace(target, num_layers=1, layer_types=("full_attention",))
        with tempfile.TemporaryDirectory() as made:
            save_file(tensors, Path(made) / "model.safetensors")
            self._model = load_model(Path(made), config)

    def proposals(self, hidden: Tensor, token_ids: Tensor) -> Tensor:
        """What it predicts at each position t from the hidden state there and token t + 1.

        Args:
            hidden: [tokens, hidden], of the target model.
            token_ids: int64 [tokens].

        Returns:
            int64 [tokens - 1]: entry t is its guess of token t + 2.
        """
        model = self._model
        following = self._normalised(model.embed(token_ids[1:]), self._embedding_norm)
        both = torch.cat((self._normalised(hidden[:-1], self._hidden_norm), following), dim=-1)
        whole = WholeSequence(model.config, len(both))
        cos, sin = model.rotary(whole.positions)
        x = F.linear(both, self._projection)
        layer = model.layers[0]
        normed = layer.attention_norm(x)
        _, normed = layer(x, normed, model.norm, cos, sin, whole.batch, whole.kv[0])
        return model.logits(normed).argmax(-1)

    def _normalised(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], weight.float(), 1e-5).to(x.dtype)


def count_steps(right: Sequence[bool], drafted: int) -> int:
    """Steps that a turn takes after the one that yields its first token.

    Args:
        right: of each token after the first, whether the drafter proposes it.
        drafted: tokens that are proposed a step.
    """
    done = steps = 0
    while done < len(right):
        accepted = 0
        while accepted < drafted and right[done + accepted : done + accepted + 1] == [True]:
            accepted += 1
        done += accepted + 1
        steps += 1
    return steps


class Tally:
    """Tokens and steps of one task, by drafter and number of drafted tokens."""

    def __init__(self) -> None:
        self.tokens = 0
        self.steps: dict[str, int] = defaultdict(int)

    def add(self, name: str, right: Sequence[bool], drafted: Sequence[int]) -> None:
        """Count a turn."""
        for count in drafted:
            self.steps[f"{name} {count}"] += count_steps(right, count)

    def lengths(self) -> dict[str, float]:
        """Tokens a step."""
        return {name: self.tokens / steps for name, steps in self.steps.items() if steps}


class Drafters:
    """The target model, and whatever drafts for it."""

    def __init__(self, folder: Path, draft: Path | None) -> None:
        config = ModelConfig.load(folder)
        self._target = load_model(folder, config)
        has_head = (folder / "mtp.safetensors").is_file()
        self._head = MTPHead(folder, config) if has_head else None
        self._draft = load_model(draft, ModelConfig.load(draft)) if draft else None

    @torch.inference_mode()
    def count(self, prompt: Sequence[int], turn: Sequence[int], tally: Tally) -> None:
        """Count one turn that the target wrote."""
        if len(turn) < 2:
            return
        ids, first = torch.tensor([*prompt, *turn]), len(prompt) + 1
        tally.tokens += len(turn) - 1
        if self._head is not None:
            guesses = self._head.proposals(hidden_states(self._target, ids), ids)
            right = guesses[first - 2 : -1] == ids[first:]
            tally.add("mtp", right.tolist(), DRAFTED[:1])
        if self._draft is not None:
            guesses = self._draft.logits(hidden_states(self._draft, ids)).argmax(-1)
            right = guesses[first - 1 : -1] == ids[first:]
            tally.add("draft", right.tolist(), DRAFTED)


def measure(
    model: str, draft: str | None, per_task: int, max_tokens: int
) -> Mapping[str, Mapping[str, float]]:
    """Acceptance lengths, by row of the evaluation ("all" is the last), drafter and number."""
    cases = heldout_cases(per_task)
    folder = find_checkpoint(model)
    codec = TextCodec.load(folder)
    if codec is None:
        raise UserError(f"{folder} has no tokenizer.json, and so cannot speak Harmony")
    chat_format = HarmonyFormat(codec)
    with LLM(model, device="cpu") as llm:
        turns = engine_writer(llm, chat_format, max_tokens)(cases)
    drafters = Drafters(folder, find_checkpoint(draft) if draft else None)
    tallies: dict[str, Tally] = defaultdict(Tally)
    for case, turn in zip(cases, turns, strict=True):
        prompt = chat_format.render(case.example.conversation)
        drafters.count(prompt, turn, tallies[case.row])
    total = Tally()
    for tally in tallies.values():
        total.tokens += tally.tokens
        for name, steps in tally.steps.items():
            total.steps[name] += steps
    return {row: tally.lengths() for row, tally in {**tallies, "all": total}.items()}


def print_lengths(found: Mapping[str, Mapping[str, float]]) -> None:
    """Print them as a Markdown table."""
    names = list(found["all"])
    print("Tokens a step (1 + accepted drafts), by drafter and number of drafted tokens:\n")
    print(f"| {'task':28} | " + " | ".join(f"{name:>7}" for name in names) + " |")
    print(f"| {'-' * 28} | " + " | ".join("------:" for _ in names) + " |")
    for row, lengths in found.items():
        cells = " | ".join(f"{lengths.get(name, 0):7.2f}" for name in names)
        print(f"| {row:28} | {cells} |")


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Acceptance length of nano's drafters.")
    parser.add_argument("model", nargs="?", default="nano")
    parser.add_argument("--draft", default="nano-draft", help="the draft model; empty: none")
    parser.add_argument("--per-task", type=int, default=10, help="prompts of each row")
    parser.add_argument("--max-tokens", type=int, default=MAX_TURN_TOKENS, help="of a turn")
    parser.add_argument("--json", type=Path, help="also write what was found to this file")
    args = parser.parse_args(words)
    found = measure(args.model, args.draft or None, args.per_task, args.max_tokens)
    print_lengths(found)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"error: {error}")

"""What a token mask costs the CPU, by vocabulary and by rows of a step.

    python bench/grammar_mask.py [TOKENIZER.json ...] [--vocab-size N] [--rows 1 16 64]

Default: the embedded model's tokenizer. The rows follow one schema through a turn: thoughts, then
an object of strings, numbers and lists, at random among what the masks allow. Times are those of
the worker's own code: reading the last id, computing the masks, in threads beside the model; then
applying them to logits, on the CPU.
"""

import argparse
import os
import platform
import random
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from rose.core.step import NewSequence, ScheduledSequence, SchedulerOutput
from rose.models.builtin import builtin_checkpoint
from rose.protocol import Grammar, SamplingParams
from rose.server.chat.format import Conversation
from rose.server.grammar import chat_grammar
from rose.worker.grammar import SlotGrammars

STEPS = 120
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "email": {"type": "string", "format": "email"},
        "scores": {"type": "array", "items": {"type": "number"}, "minItems": 3},
        "notes": {"type": "array", "items": {"type": "string"}, "minItems": 20},
    },
    "required": ["name", "email", "scores", "notes"],
    "additionalProperties": False,
}
OPENING = (
    "<|channel|>analysis<|message|>Let me think.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>"
)


def prepared(path: Path, vocab_size: int) -> tuple[SlotGrammars, Grammar, list[int]]:
    """Matchers over a tokenizer, a grammar, and the ids of a turn up to its JSON."""
    tokenizer = Tokenizer.from_file(str(path))
    eos = tokenizer.token_to_id("<|return|>")
    grammars = SlotGrammars(path, vocab_size=vocab_size, eos_token_ids=(eos,))
    grammar = chat_grammar(Conversation(messages=[]), response_format=SCHEMA)
    assert grammar is not None
    begun = time.perf_counter()
    grammars.check(Grammar(source='start: "a"'))
    loaded = time.perf_counter()
    grammars.check(grammar)
    compiled = time.perf_counter()
    print(
        f"{path}: {vocab_size} ids, tokenizer read in {1e3 * (loaded - begun):.0f} ms, grammar "
        f"compiled in {1e3 * (compiled - loaded):.1f} ms"
    )
    return grammars, grammar, tokenizer.encode(OPENING).ids


def measure(
    grammars: SlotGrammars, grammar: Grammar, opening: list[int], vocab_size: int, rows: int
) -> tuple[list[float], list[float]]:
    """Seconds that each step waited for its masks, and took to apply them."""
    rng = random.Random(rows)
    for slot in range(rows):
        new = NewSequence(slot, slot, [0, *opening], 1, SamplingParams(), 0, (), grammar)
        grammars.admit(new)
    position, known = len(opening), [[opening[-1]] for _ in range(rows)]
    waits, applications = [], []
    logits = torch.zeros(rows, vocab_size)
    for _ in range(STEPS):
        sequences = [
            ScheduledSequence(slot, slot, position, 1, True, None, known[slot])
            for slot in range(rows)
        ]
        begun = time.perf_counter()
        masks = grammars.start(SchedulerOutput(0, sequences=sequences))
        assert masks is not None
        masks.wait()
        waited = time.perf_counter()
        masked, failed = masks.apply(logits)
        applied = time.perf_counter()
        assert not failed
        waits.append(waited - begun)
        applications.append(applied - waited)
        allowed = [np.flatnonzero(row) for row in masked.isfinite().numpy()]
        known = [[int(rng.choice(ids))] for ids in allowed]
        position += 1
    return waits, applications


def main() -> None:
    """Measure and print a table a tokenizer."""
    parser = argparse.ArgumentParser(description="Cost of token masks.")
    parser.add_argument("tokenizers", type=Path, nargs="*", metavar="TOKENIZER.json")
    parser.add_argument("--vocab-size", type=int, help="the model's, if it is padded")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64])
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    for path in args.tokenizers or [Path(str(builtin_checkpoint("nano"))) / "tokenizer.json"]:
        vocab_size = args.vocab_size or Tokenizer.from_file(str(path)).get_vocab_size()
        setting = prepared(path, vocab_size)
        print("| rows | us a mask, median | 99th percentile step | us to apply a row |")
        print("| ---: | ---------------: | -------------------: | ----------------: |")
        for rows in args.rows:
            waits, applications = measure(*setting, vocab_size, rows)
            worst = statistics.quantiles(waits, n=100)[-1]
            print(
                f"| {rows:4} | {1e6 * statistics.median(waits) / rows:16.0f} | "
                f"{1e3 * worst:17.2f} ms | {1e6 * statistics.median(applications) / rows:17.0f} |"
            )


if __name__ == "__main__":
    main()

"""How fast the embedded model writes: tokens a second, by sequences and threads.

    python bench/nano_decode.py [MODEL] [--tokens N] [--threads 1 2] [--sequences 1 8 32]

Each sequence reads a prompt and writes N tokens greedily, whatever they are. The time is that of
decode steps alone: prompts are read before the clock starts.
"""

import argparse
import os
import platform
import time
from collections.abc import Sequence

import torch

from rose.llm import LLM
from rose.protocol import SamplingParams

PROMPT = 128


def measure(llm: LLM, sequences: int, tokens: int) -> float:
    """Tokens a second of all sequences together, in decode steps."""
    # Prompts differ, so that none is read from the prefix cache.
    vocab = llm.info.vocab_size
    prompts = [[(7 * i + 13 * s + 1) % vocab for i in range(PROMPT)] for s in range(sequences)]
    params = SamplingParams(max_tokens=1, temperature=0, ignore_eos=True)
    llm.generate(prompts, params)  # The prompts' KV stays; what follows decodes.
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
    begun = time.perf_counter()
    llm.generate(prompts, params)
    return sequences * tokens / (time.perf_counter() - begun)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="Decode speed of the embedded model on a CPU.")
    parser.add_argument("model", nargs="?", default="nano")
    parser.add_argument("--quantization", default="auto")
    parser.add_argument("--tokens", type=int, default=100, help="tokens that a sequence writes")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8, 32])
    args = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    print(f"Python {platform.python_version()}, torch {torch.__version__}\n")
    print("| threads | " + " | ".join(f"{n:3} sequences" for n in args.sequences) + " |")
    print("| ------: | " + " | ".join("------------:" for _ in args.sequences) + " |")
    for threads in args.threads:
        print(f"| {threads:7} | " + " | ".join(_row(args, threads)) + " |", flush=True)


def _row(args: argparse.Namespace, threads: int) -> Sequence[str]:
    with LLM(args.model, quantization=args.quantization, device="cpu", cpu_threads=threads) as llm:
        measure(llm, 1, 8)
        return [f"{measure(llm, n, args.tokens):9.0f} t/s" for n in args.sequences]


if __name__ == "__main__":
    main()

"""An engine whose fused kernels are compiled for Hopper and never run; prints what it compiled.

`python -m tests.worker.rehearsed_engine QUANTIZATION FOLDER`, without TRITON_INTERPRET. Kernels
"write" zeros, so every token is 0; shapes, places and sampling are those of an engine on a GPU.
Prints two lists as JSON: kernels compiled until the engine was ready, and those compiled after.
"""

import json
import random
import sys
from pathlib import Path
from unittest import mock

import torch
import triton

from rose.kernels.dispatch import Implementation, force
from rose.llm import LLM
from rose.protocol import SamplingParams
from rose.worker.cuda_graph import DecodeGraphs, decode_buckets
from tools import sm90
from tools.make_tiny_checkpoint import Sizes, make_config

SHAPE = Sizes(layers=2, hidden=256, intermediate=256, heads=8, kv_heads=2, experts=8, vocab=512)
WAYS = [
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1, "presence_penalty": 0.5, "logit_bias": {7: 1.0}},
    {"temperature": 0, "prompt_logprobs": 2},
]
SLOTS = 24


def main() -> None:
    """Start, rehearse, capture, serve."""
    quantization, folder = sys.argv[1:]
    (Path(folder) / "config.json").write_text(json.dumps(make_config(SHAPE)))
    compiled: list[str] = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **told: compiled.append(told["repr"])
    with (
        sm90.compile_only(),
        force(Implementation.TRITON),
        mock.patch("torch.empty", torch.zeros),
        mock.patch("torch.empty_like", torch.zeros_like),
        LLM(
            folder,
            device="cpu",
            load_format="dummy",
            quantization=quantization,
            block_size=128,
            num_blocks=(200, 100),
            max_num_seqs=SLOTS,
            max_batched_tokens=2048,
        ) as llm,
    ):
        prepare(llm)
        before = len(compiled)
        serve(llm)
    sys.stdout.write(json.dumps([compiled[:before], compiled[before:]]))


@torch.inference_mode()
def prepare(llm: LLM) -> None:
    """What a worker does by itself on a GPU, with functions in the place of graphs."""
    worker = llm._engine._executor._worker
    worker._rehearse()
    runner = worker._runner

    def replayed(body):
        body()
        return body

    runner.graphs = DecodeGraphs(
        model=worker._model,
        kv=runner._kv,
        pool=runner._pool,
        tables=runner._builder._tables,
        window=worker._config.model.sliding_window,
        buckets=decode_buckets(SLOTS),
        width=1,
        capture=replayed,
        device=worker._device,
    )


def serve(llm: LLM) -> None:
    """Batches of many sizes, in chunks and mixed with decoding."""
    numbers = random.Random(0)
    for count in (1, 2, 3, 7, 24, 40):
        lengths = [int(2 ** numbers.uniform(0, 11)) for _ in range(count)]
        prompts = [[numbers.randrange(SHAPE.vocab) for _ in range(n)] for n in lengths]
        params = [
            SamplingParams(max_tokens=numbers.randrange(1, 8), ignore_eos=True, **way)
            for way in numbers.choices(WAYS, k=count)
        ]
        llm.generate(prompts, params)


if __name__ == "__main__":
    main()

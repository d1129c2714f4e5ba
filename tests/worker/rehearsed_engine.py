"""An engine whose fused kernels are compiled for Hopper and never run; prints what it compiled.

    python -m tests.worker.rehearsed_engine QUANTIZATION FOLDER [--shape gpt-oss-120b]

Products give zeros, and kernels "write" them, so every token is 0; shapes, places and sampling are
those of an engine on a GPU. Without TRITON_INTERPRET. The FOLDER gets the model's config.json.

Prints two lists as JSON: kernels compiled until the engine was ready, and those compiled after. A
published model's shape, of which two layers are enough, serves nothing: it fills TRITON_CACHE_DIR,
where an engine of that model on a GPU finds its kernels, if Triton and Python are the same release.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest import mock

import torch
import triton

from rose.kernels.cuda import nvrtc
from rose.kernels.cuda.kernel import instead_of_launching
from rose.kernels.dispatch import Implementation, force
from rose.llm import LLM
from rose.models.builtin import builtin_shape
from rose.protocol import SamplingParams
from rose.worker.cuda_graph import decode_buckets
from tests.worker.test_cuda_graph import with_graphs
from tools import sm90
from tools.make_tiny_checkpoint import Sizes, make_config

# Four of 24 experts: no power of two of tokens gives each the 24 to 40 rows of one MXFP4 tiling.
SHAPE = Sizes(layers=2, hidden=256, intermediate=256, heads=8, kv_heads=2, experts=24, vocab=512)
WAYS = [
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1, "presence_penalty": 0.5, "logit_bias": {7: 1.0}},
    {"temperature": 0, "prompt_logprobs": 2},
]
SLOTS = 24
LENGTHS = sorted(n * 2**m for m in range(9) for n in (5, 7))
"""No size that the rehearsal makes a point of."""
EMPTY = torch.empty
Cubin = Callable[[Path, Mapping[str, int]], bytes]


def main() -> None:
    """Start, rehearse, capture, serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("quantization")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=["gpt-oss-20b", "gpt-oss-120b"])
    arguments = parser.parse_args()
    (arguments.folder / "config.json").write_text(json.dumps(config_json(arguments.shape)))
    limits = {"max_num_seqs": SLOTS, "max_batched_tokens": 2048}
    if arguments.shape:
        limits = {"max_num_seqs": 256, "max_batched_tokens": 8192}
    compiled: list[str] = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **told: compiled.append(told["repr"])
    make = nvrtc.cubin if arguments.shape or nvrtc.available() else stand_in_for_nvrtc()
    with (
        sm90.compile_only(),
        instead_of_launching(lambda kernel, grid: kernel.cubin()),
        mock.patch("rose.kernels.cuda.nvrtc.cubin", telling_cubin(make, compiled)),
        force(Implementation.TRITON, Implementation.CUDA),
        mock.patch("torch.empty", zeroed),
        mock.patch("torch.empty_like", torch.zeros_like),
        mock.patch("torch.nn.functional.linear", zero_product),
        mock.patch("rose.worker.worker.load_dummy"),
        mock.patch("rose.kernels.sampling.best_tokens", first_tokens),
        LLM(
            str(arguments.folder),
            device="cpu",
            load_format="dummy",
            quantization=arguments.quantization,
            block_size=128,
            num_blocks=(200, 100),
            **limits,
        ) as llm,
    ):
        prepare(llm, limits["max_num_seqs"])
        before = len(compiled)
        if not arguments.shape:
            serve(llm)
    sys.stdout.write(json.dumps([compiled[:before], compiled[before:]]))


def config_json(shape: str | None) -> dict[str, object]:
    """Of the small model, or of two layers of a published one."""
    folder = builtin_shape(shape) if shape else None
    if folder is None:
        return make_config(SHAPE)
    config = json.loads((folder / "config.json").read_text())
    return {**config, "num_hidden_layers": 2, "layer_types": config["layer_types"][:2]}


def stand_in_for_nvrtc() -> Cubin:
    """Have NVRTC look as if it were installed; what takes the place of `nvrtc.cubin`."""
    nvrtc.available = lambda: True
    return lambda source, defines: b""


def telling_cubin(make: Cubin, compiled: list[str]) -> Cubin:
    """`make`, which adds to the list what it is asked for the first time."""

    def cubin(source: Path, defines: Mapping[str, int]) -> bytes:
        name = f"{source.name}[{dict(defines)}]"
        code = make(source, defines)
        if name not in compiled:
            compiled.append(name)
        return code

    return cubin


def zeroed(*shape: object, device: object = None, **options: object) -> torch.Tensor:
    """Zeros, whose memory is not taken before it is written; on "meta" there is none to fill."""
    make = EMPTY if str(device) == "meta" else torch.zeros
    return make(*shape, device=device, **options)


def zero_product(x: torch.Tensor, weight: torch.Tensor, bias: object = None) -> torch.Tensor:
    """The shape of x W^T."""
    return x.new_zeros((x.shape[0], weight.shape[0]))


def first_tokens(logits: torch.Tensor, n: int) -> torch.Tensor:
    """The shape of `best_tokens`; no kernel of ours finds them."""
    return torch.arange(n).expand(len(logits), n)


@torch.inference_mode()
def prepare(llm: LLM, slots: int) -> None:
    """What a worker does by itself on a GPU, with functions in the place of graphs."""
    worker = llm._engine._executor._worker
    worker._fused = True
    worker._rehearse()
    with_graphs(llm, decode_buckets(slots))


def serve(llm: LLM) -> None:
    """Steps of many sizes: one prompt alone; batches in chunks and mixed with decoding."""
    numbers = random.Random(0)
    for length in LENGTHS:
        prompt = [numbers.randrange(SHAPE.vocab) for _ in range(length)]
        llm.generate([prompt], SamplingParams(max_tokens=1))
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

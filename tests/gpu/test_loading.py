"""Loading onto a GPU, and the memory that is measured there."""

import dataclasses
import json
import threading
import time

import pytest
import torch

from rose.config import ModelConfig
from rose.core.mapping import ParallelMapping
from rose.llm import LLM
from rose.models.checkpoint import CheckpointError
from rose.models.gpt_oss import GptOss
from rose.models.layouts import WeightSource
from rose.models.placement import placements
from rose.models.streaming import Placement, Source, Streaming, stream
from rose.models.weights import load_weights
from rose.protocol import SamplingParams
from rose.quant import quant_scheme
from rose.worker.memory import CudaMemory, weight_bytes
from tests.models.checkpoint_layouts import (
    RAGGED,
    random_tensors,
    write_float,
    write_folder,
    write_openai,
    write_published,
)
from tools.make_tiny_checkpoint import Sizes, make_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

CUDA = torch.device("cuda")
BIG = Sizes(layers=1, hidden=2880, intermediate=2880, heads=64, kv_heads=8, experts=8, vocab=4096)


def load(folder, device, scheme, streaming=None):
    config = ModelConfig.load(folder)
    model = GptOss(
        config,
        scheme=quant_scheme(scheme),
        mapping=ParallelMapping(),
        dtype=torch.bfloat16,
        device=torch.device(device),
    )
    load_weights(model, WeightSource(folder, config), config, streaming)
    return model


def values(model):
    """Every weight on the CPU, experts as the numbers that they stand for."""
    found = {}
    for i, layer in enumerate(model.layers):
        for name in ("gate_up", "down"):
            weight = getattr(layer.moe, name)
            for expert in range(weight.batch[0]):
                for part in range(weight.batch[1]):
                    found[f"{i}.{name}.{expert}.{part}"] = weight.dequantize((expert, part)).cpu()
    for name, parameter in model.named_parameters():
        if ".moe.gate_up." not in name and ".moe.down." not in name:
            found[name] = parameter.detach().cpu()
    return found


@pytest.mark.parametrize("scheme", ["bf16", "fp8", "mxfp4"])
@pytest.mark.parametrize("layout", [write_published, write_openai, write_float])
def test_a_gpu_holds_what_a_cpu_holds(tmp_path, layout, scheme):
    folder = layout(tmp_path, RAGGED, shards=3)
    wanted = values(load(folder, "cpu", scheme))
    for streaming in (None, Streaming(threads=6, buffers=2, piece_bytes=5_000)):
        found = values(load(folder, "cuda", scheme, streaming))
        assert found.keys() == wanted.keys()
        different = [name for name in wanted if not torch.equal(found[name], wanted[name])]
        assert not different


def test_buffers_are_not_reused_before_they_are_placed(tmp_path):
    """Slow placements: the device lags behind readers that would overwrite what it still reads."""
    folder = write_published(tmp_path, RAGGED)
    rows = WeightSource(folder, ModelConfig.load(folder)).rows("model.embed_tokens.weight")
    whole = rows.read()
    target = torch.zeros((64, *whole.shape), dtype=whole.dtype, device=CUDA)

    def place_into(i):
        def place(tensors):
            torch.cuda._sleep(2_000_000)  # about a millisecond
            target[i].copy_(tensors[0])

        return place

    pieces = [Placement((Source(f"copy {i}", rows),), place_into(i)) for i in range(64)]
    streaming = Streaming(threads=4, buffers=3, piece_bytes=2 * whole.nbytes)
    stream(pieces, CUDA, streaming, lambda *_: None)
    assert bool((target.cpu() == whole).all())


def test_a_bad_tensor_is_named_after_all_is_loaded(tmp_path):
    tensors = random_tensors(RAGGED)
    tensors["model.layers.1.self_attn.k_proj.weight"][0, 0] = torch.inf
    folder = write_folder(tmp_path, tensors, make_config(RAGGED))
    with pytest.raises(CheckpointError, match=r"layers.1.self_attn.k_proj.weight holds values"):
        load(folder, "cuda", "mxfp4")
    assert not [t for t in threading.enumerate() if t.name.startswith("rose-load")]


def test_how_fast_a_layer_with_real_matrices_loads(tmp_path):
    folder = write_published(tmp_path, BIG)
    config = ModelConfig.load(folder)
    for scheme in ("mxfp4", "fp8", "bf16"):
        load(folder, "cuda", scheme)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        load(folder, "cuda", scheme)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        size = WeightSource(folder, config).nbytes
        print(f"{scheme}: {size / 1e9:.2f} GB, {size / seconds / 1e9:.2f} GB/s")


def test_pieces_of_a_real_layer_fit_the_ring(tmp_path):
    folder = write_published(tmp_path, BIG)
    config = ModelConfig.load(folder)
    streaming = Streaming.for_device(CUDA)
    model = load(folder, "cuda", "mxfp4")
    pieces = placements(model, WeightSource(folder, config), config, streaming.piece_bytes)
    assert max(piece.buffer_bytes for piece in pieces) <= streaming.piece_bytes


@pytest.mark.parametrize("quantization", ["bf16", "fp8", "mxfp4"])
def test_weights_are_counted_before_they_are_allocated(tmp_path, quantization):
    folder = write_published(tmp_path, BIG)
    config = ModelConfig.load(folder)
    model = load(folder, "cuda", quantization)
    found = weight_bytes(config, quantization, torch.bfloat16)
    # Tiles of fused kernels may pad.
    assert found == pytest.approx(sum(p.nbytes for p in model.parameters()), rel=2e-3)


def test_the_peak_is_what_the_work_held():
    memory = CudaMemory(CUDA)
    held = torch.empty(100 << 20, dtype=torch.uint8, device=CUDA)
    before = memory.free()

    def work():
        first = torch.empty(300 << 20, dtype=torch.uint8, device=CUDA)
        del first
        torch.empty(200 << 20, dtype=torch.uint8, device=CUDA)

    assert memory.peak(work) == pytest.approx(300 << 20, abs=16 << 20)
    assert memory.free() == pytest.approx(before, abs=16 << 20)
    assert memory.free() <= memory.total()
    del held


@pytest.mark.parametrize("quantization", ["bf16", "mxfp4"])
def test_the_heaviest_steps_fit_in_what_was_measured(tmp_path, capfd, quantization):
    """All that a step can be asked for at once, in a cache that took the rest of the device."""
    shape = make_config(dataclasses.replace(BIG, layers=4, vocab=201088))
    (tmp_path / "config.json").write_text(json.dumps(shape))
    params = SamplingParams(
        temperature=1.0, top_k=50, top_p=0.9, min_p=0.01, seed=1, max_tokens=8, min_tokens=8,
        repetition_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.1,
        logit_bias={7: 1.0}, logprobs=20, prompt_logprobs=20,
    )  # fmt: skip
    prompts = [[(7 * i + j) % 1000 + 5 for j in range(40 * i + 3)] for i in range(256)]
    options = {"load_format": "dummy", "quantization": quantization}
    with LLM(str(tmp_path), device="cuda", **options) as llm:
        free, total = torch.cuda.mem_get_info()
        results = llm.generate(prompts, params)
        peak = torch.cuda.max_memory_reserved()
    [line] = [x for x in capfd.readouterr().err.splitlines() if x.startswith("Device memory")]
    print(f"{line}; peak {peak / 1e9:.2f} of {total / 1e9:.2f} GB, free at start {free / 1e9:.2f}")
    assert all(len(result.token_ids) == 8 for result in results)
    # The cache took what there was: what stayed free is the step's, the graphs' and the margin.
    assert free < 0.15 * total

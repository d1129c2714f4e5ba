"""bench/load.py: what it writes is a checkpoint that loads, and every stage is timed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rose.config import ModelConfig
from rose.core.mapping import ParallelMapping
from rose.models.gpt_oss import GptOss
from rose.models.layouts import WeightSource
from rose.models.weights import load_weights
from rose.quant import quant_scheme
from tools.make_tiny_checkpoint import Sizes, make_config

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A two-layer cut of a three-layer shape: the folder, and what the bench printed."""
    root = tmp_path_factory.mktemp("bench")
    (root / "shape").mkdir()
    shape = make_config(Sizes(layers=3, hidden=64, intermediate=96, vocab=1024))
    (root / "shape" / "config.json").write_text(json.dumps(shape))
    words = [str(root / "new"), "--shape", str(root / "shape"), "--layers", "2", "--alone"]
    command = [sys.executable, str(BENCH / "load.py"), *words, "--device", "cpu"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return root / "new", done.stdout


def test_what_is_written_is_a_checkpoint_of_fewer_layers(run):
    folder, _ = run
    config = ModelConfig.load(folder)
    assert config.num_layers == len(config.layer_types) == 2
    model = GptOss(
        config,
        scheme=quant_scheme("mxfp4"),
        mapping=ParallelMapping(),
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
    )
    load_weights(model, WeightSource(folder, config), config)
    gate = [layer.moe.gate_up.dequantize((0, 0)) for layer in model.layers]
    assert not torch.equal(*gate)
    for name, value, std in (
        ("gate", gate[0], 64**-0.5),
        ("head", model.head.weight.values, 64**-0.5),
        ("embed", model.embed.weight, 1.0),
        ("norm", model.norm.weight - 1, 0.1),
    ):
        assert std / 2 < float(value.float().std()) < std * 2, name


def test_every_stage_is_in_the_table(run):
    _, printed = run
    rows = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("|")]
    assert rows[2:] == [
        "imports", "options, device", "weights", "largest step", "KV cache, graphs",
        "first token", "start to first token",
    ]  # fmt: skip
    assert "reading and copying alone" in printed

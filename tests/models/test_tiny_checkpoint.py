"""The stand-in model that `make serve` and the server's tests run on."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from rose.config import ModelConfig
from rose.core.mapping import ParallelMapping
from rose.models.gpt_oss import GptOss
from rose.models.layouts import WeightSource
from rose.models.weights import load_weights
from rose.quant import quant_scheme
from tools.make_tiny_checkpoint import Sizes, main, write_checkpoint

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "make_tiny_checkpoint.py"
HARMONY = (
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|constrain|>",
    "<|return|>",
    "<|call|>",
    "<|startoftext|>",
    "<|endoftext|>",
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "made" / "here"
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], timeout=200, check=True)
    return folder


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return Tokenizer.from_file(str(tiny / "tokenizer.json"))


def test_it_is_a_checkpoint_of_a_few_megabytes(tiny):
    config = ModelConfig.load(tiny)
    model = GptOss(
        config,
        scheme=quant_scheme("mxfp4"),
        mapping=ParallelMapping(),
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
    )
    load_weights(model, WeightSource(tiny, config), config)
    assert sum(path.stat().st_size for path in tiny.iterdir()) < 4e6


def test_every_text_survives_the_tokenizer(tokenizer):
    text = "héllo  wörld\n\t🦀 \x00 <|no token|>"
    ids = tokenizer.encode(text).ids
    assert len(ids) == len(text.encode())
    assert max(ids) < 256
    assert tokenizer.decode(ids) == text


def test_harmony_tokens_are_single_and_stop_the_model(tiny, tokenizer):
    ids = [tokenizer.encode(token).ids for token in HARMONY]
    assert all(len(each) == 1 for each in ids)
    assert len({each[0] for each in ids}) == len(HARMONY)
    stops = {tokenizer.token_to_id(t) for t in ("<|return|>", "<|call|>", "<|endoftext|>")}
    assert set(ModelConfig.load(tiny).eos_token_ids) == stops


def test_the_seed_decides(tiny, tmp_path):
    write_checkpoint(tmp_path / "same", Sizes())
    write_checkpoint(tmp_path / "other", Sizes(seed=1))
    first = (tiny / "model.safetensors").read_bytes()
    assert (tmp_path / "same" / "model.safetensors").read_bytes() == first
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != first


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--hidden", "65"), ("--vocab", "100"), ("--experts", "3"), ("--heads", "3")],
)
def test_sizes_that_cannot_be(tmp_path, monkeypatch, capsys, flag, value):
    monkeypatch.setattr(sys, "argv", ["make_tiny_checkpoint", str(tmp_path / "out"), flag, value])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert flag in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

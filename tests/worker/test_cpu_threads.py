"""How many threads compute a model on a CPU."""

from dataclasses import replace

import pytest
import torch

from rose.config import ConfigError, ModelConfig
from rose.llm import LLM
from rose.options import EngineOptions
from rose.worker.worker import SMALL_HIDDEN_SIZE, default_cpu_threads
from tools.make_tiny_checkpoint import Sizes, make_config, write_checkpoint


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_small_model_gets_one(two_threads):
    small = ModelConfig.from_dicts(make_config(Sizes()), {}, source="here")
    assert default_cpu_threads(replace(small, hidden_size=SMALL_HIDDEN_SIZE)) == 1
    assert default_cpu_threads(replace(small, hidden_size=SMALL_HIDDEN_SIZE + 32)) == 2


@pytest.mark.parametrize(("asked", "given"), [(None, 1), (2, 2), (3, 3)])
def test_what_the_user_asks_for_counts(two_threads, tmp_path, asked, given):
    write_checkpoint(tmp_path, Sizes(layers=2))
    with LLM(str(tmp_path), device="cpu", max_model_len=64, max_num_seqs=2, cpu_threads=asked):
        assert torch.get_num_threads() == given


def test_no_threads_are_refused():
    with pytest.raises(ConfigError, match="cpu_threads must be"):
        EngineOptions(model="x", cpu_threads=0)

"""Acceptance lengths: the counting, and the MTP head against the one that was trained."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from recipes.nano import vocabulary
from recipes.nano.acceptance import MTPHead, Tally, count_steps, hidden_states, load_model, main
from recipes.nano.export import write_checkpoint
from recipes.nano.fake_quant import ExpertRounding
from recipes.nano.model import TrainingModel
from recipes.nano.sizes import model_config
from rose.config import ModelConfig
from tools.make_tiny_checkpoint import make_tokenizer

LENGTH = 256


@pytest.fixture(scope="module")
def trained():
    """A random tiny model with an MTP head, as training has it."""
    torch.manual_seed(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "tokenizer", make_tokenizer)
        model = TrainingModel(model_config("tiny", vocabulary.special_token_ids()), mtp=True)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith(("router.weight", "lm_head.weight")):
                value.normal_(0.0, 0.3)
    return model


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """Its checkpoint."""
    folder = tmp_path_factory.mktemp("nano")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "tokenizer", make_tokenizer)
        write_checkpoint(trained.state_dict(), "tiny", folder)
    make_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@torch.inference_mode()
def test_the_head_proposes_what_the_trained_one_would(trained, folder):
    ids = torch.randint(0, 256, (LENGTH,), generator=torch.Generator().manual_seed(4))
    with ExpertRounding(trained).rounded():
        hidden = trained(ids[None], torch.zeros(1, LENGTH, dtype=torch.int32))
    wanted = trained.lm_head(hidden.mtp)[0, :-1].argmax(-1)
    config = ModelConfig.load(folder)
    states = hidden_states(load_model(folder, config), ids)
    found = MTPHead(folder, config).proposals(states, ids)
    # bfloat16 here, float32 there: near ties fall either way.
    assert (found == wanted).float().mean() > 0.9
    assert wanted.unique().numel() > 20


@pytest.mark.parametrize(
    ("right", "drafted", "steps"),
    [
        ([], 1, 0),
        ([False, False, False], 1, 3),
        ([True, True, True, True], 1, 2),
        ([True, True, True, True], 3, 1),
        ([True, True, True, True, True], 4, 1),
        ([False, True, True, False, True], 2, 3),
        ([True, False, True, False], 4, 2),
    ],
)
def test_steps(right, drafted, steps):
    assert count_steps(right, drafted) == steps


def test_a_drafter_that_is_always_right_yields_one_token_more_than_it_drafts():
    tally = Tally()
    tally.tokens = 60
    tally.add("draft", [True] * 60, (1, 2, 3, 4))
    assert tally.lengths() == {"draft 1": 2, "draft 2": 3, "draft 3": 4, "draft 4": 5}


def test_a_model_drafts_well_for_itself(folder, capsys):
    words = [str(folder), "--draft", str(folder), "--per-task", "1", "--max-tokens", "24"]
    out = folder / "found.json"
    assert main([*words, "--json", str(out)]) == 0
    [total] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| all")]
    mtp, *draft = (float(cell) for cell in total.split("|")[2:-1])
    assert 1 <= mtp < 2
    assert draft[0] > 1.8
    assert draft[3] > 4


def test_a_checkpoint_without_a_head(folder, tmp_path, capsys):
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    save_file(load_file(folder / "model.safetensors"), tmp_path / "model.safetensors")
    words = [str(tmp_path), "--draft", str(folder), "--per-task", "1", "--max-tokens", "4"]
    assert main(words) == 0
    assert "mtp" not in capsys.readouterr().out

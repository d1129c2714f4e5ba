"""The training model, its rounding, its data and what is exported, against what they stand for."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GptOssForCausalLM, Mxfp4Config

from recipes.nano import vocabulary
from recipes.nano.data import DOCUMENT, KIND, PROMPT, TOKEN, TURN, Document, Packer
from recipes.nano.export import load_state, save_state, write_checkpoint
from recipes.nano.fake_quant import ExpertRounding, expert_matrices, through_mxfp4
from recipes.nano.losses import PROMPT_WEIGHT, batch_loss, targets
from recipes.nano.model import TrainingModel, expert_weights, token_losses
from recipes.nano.optimiser import make_optimisers, orthogonalised
from recipes.nano.ranks import Ranks
from recipes.nano.schedule import learning_rate
from recipes.nano.sizes import model_config
from rose.config import ModelConfig
from rose.kernels.reference import top_experts
from rose.models.layouts import WeightSource


@pytest.fixture(scope="module", autouse=True)
def byte_tokenizer():
    """One token a byte: the shipped tokenizer is another test's business."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True) for name in vocabulary.SPECIAL_TOKENS]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "tokenizer", lambda: tokenizer)
        yield


@torch.no_grad()
def random_model() -> TrainingModel:
    """A tiny model whose parts all matter, with weights that bfloat16 holds."""
    torch.manual_seed(0)
    model = TrainingModel(model_config("tiny", vocabulary.special_token_ids()), mtp=True)
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "sinks")):
            parameter.normal_(0.0, 0.3)
        elif name.endswith("norm.weight"):
            parameter.add_(torch.randn(parameter.shape), alpha=0.1)
        elif name.endswith(("router.weight", "lm_head.weight")):
            parameter.normal_(0.0, 0.3)
        if not name.endswith(("experts.gate_up", "experts.down")):
            parameter.copy_(parameter.bfloat16())
    return model


@pytest.fixture(scope="module")
def model() -> TrainingModel:
    return random_model()


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("nano")
    write_checkpoint(model.state_dict(), "tiny", out)
    return out


DOCUMENTS = [[100, 156], [256], [3, 129, 124]]
"""Lengths of the documents in each row; some are longer than the window of 128."""


def packed_rows() -> torch.Tensor:
    rows = torch.zeros(len(DOCUMENTS), 3, 256, dtype=torch.int16)
    generator = torch.Generator().manual_seed(5)
    rows[:, TOKEN] = torch.randint(0, 256, (len(DOCUMENTS), 256), generator=generator)
    rows[:, KIND] = TURN
    for row, lengths in zip(rows, DOCUMENTS, strict=True):
        row[DOCUMENT] = torch.repeat_interleave(
            torch.arange(1, len(lengths) + 1), torch.tensor(lengths)
        )
    return rows


@torch.no_grad()
def test_packed_documents_get_the_logits_that_transformers_gives_each_alone(model, exported):
    rows = packed_rows()
    with ExpertRounding(model).rounded():
        hidden = model(rows[:, TOKEN].long(), rows[:, DOCUMENT].int())
    ours = model.lm_head(hidden.main)
    reference = GptOssForCausalLM.from_pretrained(
        exported, dtype=torch.float32, quantization_config=Mxfp4Config(dequantize=True)
    )
    reference.set_attn_implementation("eager")
    for row, lengths in enumerate(DOCUMENTS):
        start = 0
        for length in lengths:
            part = slice(start, start + length)
            theirs = reference(rows[row : row + 1, TOKEN, part].long()).logits[0]
            torch.testing.assert_close(ours[row, part], theirs, atol=1e-4, rtol=1e-4)
            start += length


def test_engine_accepts_the_exported_folder_beside_its_mtp_file(exported):
    config = ModelConfig.load(exported)
    source = WeightSource(exported, config)
    assert config.eos_token_ids == (258, 257, 264)
    assert [shard.name for shard in source.checkpoint.shards] == ["model.safetensors"]
    names = load_file(exported / "mtp.safetensors").keys()
    assert all(name.startswith("mtp.") for name in names)
    assert {n for n in names if "layers.0.self_attn.q_proj" in n} == {
        "mtp.layers.0.self_attn.q_proj.weight",
        "mtp.layers.0.self_attn.q_proj.bias",
    }
    assert json.loads((exported / "config.json").read_text())["vocab_size"] == 2560


def test_experts_are_rounded_within_and_exact_after(model):
    before = [matrix.clone() for matrix in expert_matrices(model)]
    with ExpertRounding(model).rounded():
        inside = [matrix.clone() for matrix in expert_matrices(model)]
    for exact, rounded, after in zip(before, inside, expert_matrices(model), strict=True):
        assert torch.equal(after, exact)
        assert torch.equal(rounded, through_mxfp4(exact))
        assert not torch.equal(rounded, exact)


def test_experts_are_chosen_as_the_engine_chooses_them():
    logits = torch.randn(500, 12).bfloat16().float()
    logits[:, 3] = logits[:, 8]
    weights, chosen = expert_weights(logits, 4)
    expected, experts = top_experts(logits, 4)
    assert torch.equal(chosen.sum(-1), torch.full((500,), 4))
    torch.testing.assert_close(weights.gather(1, experts), expected)


@torch.no_grad()
def test_mtp_head_sees_no_further_than_the_next_token(model):
    rows = packed_rows()[1:2]
    other = rows.clone()
    other[0, TOKEN, 102:] = (other[0, TOKEN, 102:] + 1) % 256
    a, b = (model(r[:, TOKEN].long(), r[:, DOCUMENT].int()).mtp for r in (rows, other))
    torch.testing.assert_close(a[0, :101], b[0, :101])
    assert not torch.allclose(a[0, 101], b[0, 101])


def test_targets_stay_within_a_document():
    rows = torch.zeros(1, 3, 8, dtype=torch.int16)
    rows[0, TOKEN] = torch.arange(8)
    rows[0, DOCUMENT] = torch.tensor([1, 1, 1, 1, 2, 2, 2, 0])
    rows[0, KIND] = torch.tensor([0, PROMPT, TURN, TURN, 0, PROMPT, TURN, 0])
    following = targets(rows, 1)
    assert following.tokens[0, :7].tolist() == [1, 2, 3, 4, 5, 6, 7]
    torch.testing.assert_close(
        following.weights[0], torch.tensor([PROMPT_WEIGHT, 1, 1, 0, PROMPT_WEIGHT, 1, 0, 0])
    )
    assert targets(rows, 2).weights[0].tolist() == [1, 1, 0, 0, 1, 0, 0, 0]


def test_packer_keeps_documents_whole_and_marks_their_turns():
    packer = Packer(16, pad_id=9)
    assert packer.add(Document([1, 2, 3, 4, 5], 3)) is None
    assert packer.add(Document(list(range(20, 30)), 9)) is None
    (row,) = packer.flush()
    assert row[TOKEN].tolist() == [1, 2, 3, 4, 5, *range(20, 30), 9]
    assert row[DOCUMENT].tolist() == [1] * 5 + [2] * 10 + [0]
    prompt = [PROMPT] * 8
    assert row[KIND].tolist() == [0, PROMPT, PROMPT, TURN, TURN, 0, *prompt, TURN, 0]
    with pytest.raises(ValueError, match="17 tokens; rows hold 16"):
        packer.add(Document([0] * 17, 1))


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_few_steps_on_rounded_experts_learn_a_batch(optimiser):
    model, rows = random_model(), packed_rows()[:, :, :64]
    rounding = ExpertRounding(model)
    optimisers = make_optimisers(model, optimiser, lr=3e-3, weight_decay=0.0)
    losses = []
    for _ in range(12):
        with rounding.rounded():
            loss = batch_loss(model, rows, token_losses)
            loss.total.backward()
        for each in optimisers:
            each.step()
            each.zero_grad()
        losses.append((loss.turn.item(), loss.mtp.item()))
    assert losses[-1][0] < losses[0][0] - 1
    assert losses[-1][1] < losses[0][1] - 1


def test_orthogonalised_matrices_have_singular_values_near_one():
    values = torch.linalg.svdvals(orthogonalised(torch.randn(2, 24, 40)))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_state_survives_its_files(model, tmp_path):
    save_state(model.state_dict(), tmp_path)
    state = load_state(tmp_path)
    assert state.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(state[name], value, atol=1e-6, rtol=2**-11)


def test_learning_rate_warms_up_holds_and_ends_near_zero():
    assert learning_rate(1.0, 0, 0.0) == pytest.approx(1 / 200)
    assert learning_rate(1.0, 500, 0.1) == 1.0
    assert learning_rate(1.0, 10, 0.1) == 1.0
    assert learning_rate(1.0, 5000, 1.0) == pytest.approx(0.01)


def _rank(rank: int, folder: str) -> None:
    ranks = Ranks(rank, 2, torch.device("cpu"))
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    parameter.grad = torch.full((2, 3), float(rank))
    ranks.average_gradients([parameter])
    agreed = ranks.agree(float(rank))
    ranks.close()
    torch.save((parameter.grad, agreed), f"{folder}/{rank}.pt")


@pytest.mark.slow
def test_ranks_average_their_gradients_and_agree(tmp_path):
    torch.multiprocessing.spawn(_rank, args=(str(tmp_path),), nprocs=2)
    for rank in range(2):
        gradient, agreed = torch.load(tmp_path / f"{rank}.pt")
        assert torch.equal(gradient, torch.full((2, 3), 0.5))
        assert agreed == 0.5

"""Weights from every layout into every scheme; dummy weights."""

import itertools
import json
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from rose.config import ModelConfig
from rose.convert.converter import convert_checkpoint
from rose.core.mapping import ParallelMapping
from rose.models.checkpoint import CheckpointError
from rose.models.gpt_oss import GptOss
from rose.models.layouts import WeightSource
from rose.models.streaming import Streaming
from rose.models.weights import load_dummy, load_weights
from rose.quant import quant_scheme
from rose.quant.scheme import QuantWeight
from tests.models.checkpoint_layouts import (
    RAGGED,
    SMALL,
    decode_mxfp4,
    random_tensors,
    write_float,
    write_folder,
    write_openai,
    write_published,
)
from tools.make_tiny_checkpoint import make_config


def make_model(config, scheme="bf16", dtype=torch.float32):
    return GptOss(
        config,
        scheme=quant_scheme(scheme),
        mapping=ParallelMapping(),
        dtype=dtype,
        device=torch.device("cpu"),
    )


def load(folder, scheme="bf16", dtype=torch.float32):
    config = ModelConfig.load(folder)
    model = make_model(config, scheme, dtype)
    load_weights(model, WeightSource(folder, config), config)
    return model


def placed(model):
    """Every weight by name, QuantWeights as the numbers that they stand for."""
    values = {}
    quantised = [(n, m) for n, m in model.named_modules() if isinstance(m, QuantWeight)]
    for name, module in quantised:
        for index in itertools.product(*map(range, module.batch)):
            values[f"{name}{list(index)}"] = module.dequantize(index)
    for name, parameter in model.named_parameters():
        if not any(name.startswith(f"{owner}.") for owner, _ in quantised):
            values[name] = parameter.detach()
    return values


def assert_same(model, other):
    ours, theirs = placed(model), placed(other)
    assert ours.keys() == theirs.keys()
    different = [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert not different


def expected_weights(tensors, sizes):
    """What must stand in the model, straight from the published tensors."""
    values = {
        "embed.weight": tensors["model.embed_tokens.weight"],
        "norm.weight": tensors["model.norm.weight"],
        "head.weight[]": tensors["lm_head.weight"],
    }
    for i in range(sizes.layers):
        name, layer = f"model.layers.{i}", f"layers.{i}"
        values[f"{layer}.attention_norm.weight"] = tensors[f"{name}.input_layernorm.weight"]
        values[f"{layer}.moe_norm.weight"] = tensors[f"{name}.post_attention_layernorm.weight"]
        values[f"{layer}.attention.sinks"] = tensors[f"{name}.self_attn.sinks"]
        for kind, suffix in (("weight", "weight[]"), ("bias", "bias")):
            qkv = torch.cat([tensors[f"{name}.self_attn.{p}_proj.{kind}"] for p in "qkv"])
            values[f"{layer}.attention.qkv.{suffix}"] = qkv
            values[f"{layer}.attention.output.{suffix}"] = tensors[
                f"{name}.self_attn.o_proj.{kind}"
            ]
            values[f"{layer}.moe.router.{kind}"] = tensors[f"{name}.mlp.router.{kind}"]
        experts = f"{name}.mlp.experts"
        for projection, target, parts in (("gate_up_proj", "gate_up", 2), ("down_proj", "down", 1)):
            blocks = tensors[f"{experts}.{projection}_blocks"]
            matrices = decode_mxfp4(blocks, tensors[f"{experts}.{projection}_scales"])
            for expert in range(sizes.experts):
                for part in range(parts):
                    key = f"{layer}.moe.{target}[{expert}, {part}]"
                    values[key] = matrices[expert, part::parts]
        bias = tensors[f"{experts}.gate_up_proj_bias"]
        values[f"{layer}.moe.gate_up_bias"] = torch.cat((bias[:, 0::2], bias[:, 1::2]), dim=1)
        values[f"{layer}.moe.down_bias"] = tensors[f"{experts}.down_proj_bias"]
    return {key: value.float() for key, value in values.items()}


@pytest.fixture(scope="module", params=[SMALL, RAGGED], ids=["small", "ragged"])
def sizes(request):
    return request.param


@pytest.fixture(scope="module")
def folders(sizes, tmp_path_factory):
    """The same model in every layout."""
    root = tmp_path_factory.mktemp("layouts")
    result = {
        "published": write_published(root / "published", sizes, shards=3),
        "single": write_published(root / "single", sizes),
        "float": write_float(root / "float", sizes, shards=2),
        "openai": write_openai(root / "openai", sizes, shards=3),
    }
    convert_checkpoint(result["openai"], root / "fp8", format="fp8")
    result["fp8"] = root / "fp8"
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_weight_is_where_it_belongs(folders, sizes, dtype):
    found = placed(load(folders["published"], dtype=dtype))
    expected = expected_weights(random_tensors(sizes), sizes)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name].float(), value), name


@pytest.mark.parametrize("layout", ["single", "float", "openai", "fp8"])
@pytest.mark.parametrize("scheme", ["bf16", "fp8", "mxfp4"])
def test_all_layouts_place_the_same_weights(folders, scheme, layout):
    assert_same(load(folders[layout], scheme), load(folders["published"], scheme))


def test_mxfp4_bytes_stay_as_they_are(folders, sizes):
    model = load(folders["published"], "mxfp4")
    bf16 = placed(load(folders["published"], "bf16"))
    for name, value in placed(model).items():
        assert torch.equal(value, bf16[name]), name


def test_config_of_openai_says_what_the_published_one_says(folders):
    published = ModelConfig.load(folders["published"])
    openai = ModelConfig.load(folders["openai"])
    assert openai == replace(published, eos_token_ids=())


def test_stop_ids_of_the_published_tokenizer(tmp_path):
    config = json.loads((write_openai(tmp_path, SMALL) / "config.json").read_text())
    config["vocab_size"] = 201088
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert ModelConfig.load(tmp_path).eos_token_ids == (200002, 199999, 200012)


def test_tied_embeddings(tmp_path):
    tensors = random_tensors(SMALL)
    del tensors["lm_head.weight"]
    config = {**make_config(SMALL), "tie_word_embeddings": True}
    model = load(write_folder(tmp_path, tensors, config))
    assert torch.equal(model.head.weight.values, model.embed.weight)


def test_no_attention_bias(tmp_path):
    tensors = random_tensors(SMALL)
    tensors = {k: v for k, v in tensors.items() if not ("self_attn" in k and "bias" in k)}
    config = {**make_config(SMALL), "attention_bias": False}
    model = load(write_folder(tmp_path, tensors, config))
    expected = expected_weights(random_tensors(SMALL), SMALL)
    assert torch.equal(
        model.layers[1].attention.qkv.weight.dequantize(()),
        expected["layers.1.attention.qkv.weight[]"],
    )


def test_source_memory_is_bounded_by_the_ring(folders):
    folder = folders["published"]
    config = ModelConfig.load(folder)
    model = make_model(config)
    tracemalloc.start()
    streaming = Streaming(threads=3, buffers=2, piece_bytes=20_000)
    load_weights(model, WeightSource(folder, config), config, streaming)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    qkv_rows = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    # Queries, keys and values are read together; everything else can be cut.
    largest = 2 * config.hidden_size * qkv_rows
    total = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    # The rest is headers and Python objects.
    assert peak < 2 * largest + 200_000 < total


@pytest.mark.parametrize("name", ["a", "ragged"])
def test_oracle_checkpoints(oracle_dir, name):
    model = load(oracle_dir / name)
    index = json.loads((oracle_dir / name / "model.safetensors.index.json").read_text())

    def tensor(key):
        with safe_open(oracle_dir / name / index["weight_map"][key], "pt") as file:
            return file.get_tensor(key)

    experts = "model.layers.1.mlp.experts.gate_up_proj"
    matrices = decode_mxfp4(tensor(f"{experts}_blocks"), tensor(f"{experts}_scales"))
    assert torch.equal(model.layers[1].moe.gate_up.dequantize((2, 1)), matrices[2, 1::2])
    assert torch.equal(model.head.weight.values, tensor("lm_head.weight").float())


class TestAccounting:
    @pytest.fixture
    def tensors(self):
        return random_tensors(SMALL)

    def error(self, folder: Path, tensors, config=None):
        write_folder(folder, tensors, config or make_config(SMALL))
        model_config = ModelConfig.load(folder)
        with pytest.raises(CheckpointError) as caught:
            WeightSource(folder, model_config)
        message = str(caught.value)
        assert "\n" not in message
        return message

    def test_one_error_names_everything(self, tmp_path, tensors):
        del tensors["model.layers.1.self_attn.sinks"]
        tensors["model.layers.2.self_attn.sinks"] = torch.zeros(4)
        tensors["model.norm.weight"] = torch.zeros(65)
        tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.int32)
        message = self.error(tmp_path, tensors)
        assert "1 missing: model.layers.1.self_attn.sinks" in message
        assert "1 surplus: model.layers.2.self_attn.sinks" in message
        assert "2 wrong: " in message
        assert "model.norm.weight [65], not [64]" in message
        assert "lm_head.weight I32, not BF16 or F16 or F32" in message

    def test_long_lists_are_cut(self, tmp_path, tensors):
        config = {**make_config(replace(SMALL, layers=4))}
        message = self.error(tmp_path, tensors, config)
        assert "38 missing: model.layers.2.input_layernorm.weight" in message
        assert "and 28 more" in message

    def test_expert_of_another_size(self, tmp_path, tensors):
        name = "model.layers.0.mlp.experts.down_proj_scales"
        tensors[name] = tensors[name][:, :-1].contiguous()
        assert f"1 wrong: {name} [4, 63, 3], not [4, 64, 3]" in self.error(tmp_path, tensors)

    def test_blocks_without_scales(self, tmp_path, tensors):
        name = "model.layers.0.mlp.experts.down_proj_scales"
        del tensors[name]
        assert f"1 missing: {name}" in self.error(tmp_path, tensors)

    def test_other_models(self, tmp_path):
        message = self.error(tmp_path, {"transformer.wte.weight": torch.zeros(2)})
        assert "no known layout: transformer.wte.weight" in message

    def test_fused_tensor_of_openai(self, tmp_path):
        folder = write_openai(tmp_path, SMALL)
        config = ModelConfig.load(folder)
        wrong = replace(config, num_kv_heads=1)
        with pytest.raises(CheckpointError, match=r"qkv.weight \[512, 64\], not \[384, 64\]"):
            WeightSource(folder, wrong)


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.self_attn.k_proj.bias"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers(tmp_path, name, value):
    tensors = random_tensors(SMALL)
    tensors[name][3] = value
    write_folder(tmp_path, tensors, make_config(SMALL))
    with pytest.raises(CheckpointError, match=f"{name} holds values that are no finite numbers"):
        load(tmp_path)


class TestDummy:
    @pytest.mark.parametrize("scheme", ["bf16", "fp8", "mxfp4"])
    def test_finite_and_distinct(self, tmp_path, scheme):
        config = ModelConfig.load(write_published(tmp_path, RAGGED))
        model = make_model(config, scheme)
        for parameter in model.parameters():
            parameter.data.fill_(torch.nan if parameter.is_floating_point() else 255)
        load_dummy(model, seed=3)
        values = placed(model)
        for name, value in values.items():
            assert bool(torch.isfinite(value).all()), name
        for name in ("moe.gate_up[0, 0]", "attention.qkv.weight[]", "moe.router.weight"):
            assert not torch.equal(values[f"layers.0.{name}"], values[f"layers.1.{name}"])
        assert not torch.equal(
            values["layers.0.moe.gate_up[0, 0]"], values["layers.0.moe.gate_up[1, 0]"]
        )
        assert bool((values["layers.1.moe_norm.weight"] == 1).all())
        for name in ("layers.0.moe.gate_up[1, 1]", "layers.1.moe.down[0, 0]", "head.weight[]"):
            std = float(values[name].std()) * values[name].shape[1] ** 0.5
            assert 0.5 < std < 2, name

    def test_the_seed_decides(self, tmp_path):
        config = ModelConfig.load(write_published(tmp_path, SMALL))
        one, two, three = (make_model(config) for _ in range(3))
        for model, seed in ((one, 1), (two, 1), (three, 2)):
            load_dummy(model, seed)
        assert_same(one, two)
        assert not torch.equal(one.head.weight.values, three.head.weight.values)

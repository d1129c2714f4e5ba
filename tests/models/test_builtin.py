"""Built-in models: their names, and that the wheel holds their files."""

import zipfile
from pathlib import Path

import pytest

from rose.config import HARMONY_STOP_IDS, HARMONY_VOCABULARY, ConfigError
from rose.models import builtin
from rose.models.builtin import SERVED_NAMES, builtin_checkpoint, served_name
from rose.models.hub import find_checkpoint
from rose.options import EngineOptions
from tools.make_tiny_checkpoint import Sizes, write_checkpoint

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "rose" / "assets"
FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installation whose nano is a tiny random model; the folder of it."""
    folder = tmp_path / "package" / "assets" / "nano"
    write_checkpoint(folder, Sizes(layers=2))
    monkeypatch.setattr(builtin, "files", lambda package: folder.parents[1])
    return folder


def test_a_bare_name_is_the_built_in_model(installed, tmp_path, monkeypatch):
    (tmp_path / "here" / "nano").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert find_checkpoint("nano") == installed
    assert find_checkpoint("./nano") == Path("nano")
    assert builtin_checkpoint("nanometre") is None


def test_it_is_served_under_its_own_name(installed):
    assert EngineOptions(model="nano", device="cpu").resolve().served_name == "rose-nano"
    renamed = EngineOptions(model="nano", served_name="mine", device="cpu").resolve()
    assert renamed.served_name == "mine"
    assert served_name("org/model") == "org/model"


def test_a_folder_is_served_under_its_own_name(tmp_path, monkeypatch):
    folder = tmp_path / "gpt-oss-20b"
    write_checkpoint(folder, Sizes(layers=2))
    resolved = EngineOptions(model=f"{folder}/", device="cpu").resolve()
    assert resolved.served_name == "gpt-oss-20b"
    monkeypatch.chdir(folder)
    assert served_name(".") == "gpt-oss-20b"
    assert served_name("..") == tmp_path.name
    (tmp_path / "latest").symlink_to(folder)
    assert served_name("../latest") == "latest"
    assert served_name("gpt-oss-20b") == "gpt-oss-20b"


def test_files_that_an_installation_lacks(installed):
    with pytest.raises(ConfigError, match="nano-draft comes with Rose, but this installation"):
        find_checkpoint("nano-draft")


@pytest.mark.parametrize(("name", "layers", "experts"), [("20b", 24, 32), ("120b", 36, 128)])
def test_the_large_models_by_name_are_for_random_weights_alone(name, layers, experts):
    model = f"gpt-oss-{name}"
    options = EngineOptions(model=model, load_format="dummy", device="cpu")
    resolved = options.resolve()
    assert (resolved.served_name, resolved.quantization) == (model, "mxfp4")
    shape = resolved.model
    assert (shape.num_layers, shape.num_experts) == (layers, experts)
    assert (shape.hidden_size, shape.vocab_size) == (2880, HARMONY_VOCABULARY)
    assert shape.eos_token_ids == HARMONY_STOP_IDS
    with pytest.raises(ConfigError, match=f"name openai/{model} to download"):
        find_checkpoint(model)


def test_a_folder_goes_before_a_shape(tmp_path, monkeypatch):
    (tmp_path / "gpt-oss-20b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_checkpoint("gpt-oss-20b") == Path("gpt-oss-20b")
    assert find_checkpoint("gpt-oss-20b", dummy=True) == Path("gpt-oss-20b")


@pytest.mark.parametrize("name", SERVED_NAMES)
def test_what_ships_is_whole_and_small(name):
    folder = ASSETS / name
    found = {path.name for path in folder.iterdir()}
    assert found >= FILES
    assert ("mtp.safetensors" in found) == (name == "nano")
    assert builtin_checkpoint(name) == folder
    sizes = [path.stat().st_size for path in ASSETS.rglob("*") if path.is_file()]
    assert sum(sizes) <= 15.5e6


def test_the_wheel_holds_them(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel")
    [made] = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(made) as archive:
        packed = archive.namelist()
    for folder in ("rose/assets/", "rose/bench/data/"):
        found = (ROOT / folder).rglob("*")
        laid = {str(path.relative_to(ROOT)) for path in found if path.is_file()}
        assert laid
        assert {name for name in packed if name.startswith(folder)} == laid

"""What both adapters share, and how they are chosen."""

import sys

import pytest
from click.testing import CliRunner

from rose.bench import machine, peers
from rose.bench.engines import check_engine, start_subject
from rose.bench.results import BenchError, Sharding, load
from rose.cli import main
from rose.options import EngineOptions
from tests.bench.peer_stand_ins import SglangEngine, VllmLLM, install_sglang, install_vllm

NANO = ["nano", "--device", "cpu", "--load-format", "dummy"]


@pytest.fixture
def installed(monkeypatch):
    install_vllm(monkeypatch)
    install_sglang(monkeypatch)
    versions = {"vllm": "0.26.0+cu129", "sglang": "0.5.99"}
    monkeypatch.setattr(peers, "package_version", versions.get)


def rose(*words):
    return CliRunner().invoke(main, ["bench", *map(str, words)])


def fails(*words, **options):
    raise RuntimeError("Engine core initialization failed.")


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_peer_that_is_not_installed_leaves_no_table(monkeypatch, tmp_path, name):
    monkeypatch.setitem(sys.modules, name, None)
    made = rose("decode", *NANO, "--engine", name, "--out", tmp_path / "r.json")
    assert made.exit_code == 1
    assert made.stdout == ""
    assert f"--engine {name}: {name} is not installed here" in made.stderr
    assert "Traceback" not in made.output
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(("name", "kind"), [("vllm", VllmLLM), ("sglang", SglangEngine)])
def test_a_peer_that_does_not_start_leaves_no_table(installed, monkeypatch, name, kind):
    monkeypatch.setattr(kind, "__init__", fails)
    made = rose("prefill", *NANO, "--engine", name)
    assert made.exit_code == 1
    assert made.stdout == ""
    assert "did not start: Engine core initialization failed." in made.stderr


def test_a_peer_that_cannot_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    asked = EngineOptions(model="nano", device="cpu")
    with pytest.raises(BenchError, match="vllm cannot be imported here"):
        start_subject("vllm", asked, asked.resolve(), Sharding(), note=pytest.fail)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_peer_from_the_command_line(installed, tmp_path, engine):
    out = tmp_path / "r.json"
    words = ["--context", 40, "--batch", "4,1", "--steps", 8, "--warmup", 2, "--engine", engine]
    made = rose("decode", *NANO, *words, "--out", out)
    assert made.exit_code == 0, made.output
    assert [cell.batch for cell in load(out).cells] == [4, 1]
    notes = load(out).notes
    assert any(f"{engine} 0." in note and "(tp1) ran with" in note for note in notes)
    unread = "sglang 0.5.99: the adapter was held against 0.5.17 and 0.5.23 only"
    assert (unread in notes) == (engine == "sglang")
    assert not any("vllm" in note and "held against" in note for note in notes)


def test_an_older_result_stays_until_there_is_a_cell(installed, monkeypatch, tmp_path):
    out = tmp_path / "r.json"
    assert rose("prefill", *NANO, "--input", 8, "--engine", "vllm", "--out", out).exit_code == 0
    before = out.read_bytes()
    monkeypatch.setattr(VllmLLM, "__init__", fails)
    made = rose("prefill", *NANO, "--input", 8, "--engine", "vllm", "--out", out)
    assert made.exit_code == 1
    assert out.read_bytes() == before


def test_shardings_that_cannot_run_are_named_all_at_once():
    wanted = [Sharding(), Sharding(tp=2), Sharding(tp=2, ep=2)]
    with pytest.raises(BenchError) as error:
        check_engine("rose", wanted, gpus=8)
    text = str(error.value)
    assert "tp2: this Rose runs a model on one GPU; ep2tp2:" in text
    assert text.endswith("These would do: tp1")
    check_engine("rose", [Sharding()], gpus=0)


def test_shardings_of_a_peer(installed):
    check_engine("vllm", [Sharding(), Sharding(tp=2), Sharding(tp=2, ep=2)], gpus=2)
    with pytest.raises(BenchError, match=r"tp4: needs 4 GPUs, and this machine has 2\. These.*tp2"):
        check_engine("vllm", [Sharding(tp=2), Sharding(tp=4)], gpus=2)
    with pytest.raises(BenchError, match="dp2: data parallelism of sglang is not driven"):
        check_engine("sglang", [Sharding(dp=2)], gpus=8)
    with pytest.raises(BenchError, match="ep2tp4: vllm spreads experts over all its GPUs or none"):
        check_engine("vllm", [Sharding(tp=4, ep=2)], gpus=8)


def test_versions_of_packages():
    assert machine.package_version("click")
    assert machine.package_version("no-such-distribution") is None

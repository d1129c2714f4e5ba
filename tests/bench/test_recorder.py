"""Result files: whole at any time, partial unless finished, of one version; and the machine."""

import contextlib
import json
import subprocess

import msgspec
import pytest

from rose.bench import machine
from rose.bench.machine import detect_machine, detect_software
from rose.bench.recorder import Recorder, new_result
from rose.bench.results import (
    BenchError,
    EngineCell,
    Machine,
    Sharding,
    SkippedCell,
    load,
    median,
    save,
    usd_per_million_tokens,
)


def cell(batch=1, seconds=0.5):
    return EngineCell(
        phase="decode",
        model="nano",
        quantization="mxfp4",
        sharding=Sharding(ep=2, tp=2),
        batch=batch,
        tokens=8192,
        samples=[seconds, seconds * 2],
    )


def test_a_command_line_that_is_no_text_is_kept_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["rose", "bench", "--out", "a\udcff.json"])
    path = tmp_path / "r.json"
    with Recorder(new_result(flags={"trace": "b\udcff"}), path) as recorder:
        recorder.add(cell())
    assert load(path).command == "rose bench --out 'a?.json'"
    assert load(path).flags == {"trace": "b?"}


def test_the_file_holds_every_cell_as_it_comes_and_is_partial_until_the_end(tmp_path):
    path = tmp_path / "r.json"
    with Recorder(new_result(flags={"seed": "0"}, notes=["dummy weights"]), path) as recorder:
        assert not path.exists()
        recorder.add(cell())
        assert load(path).partial
        assert load(path).cells == [cell()]
        recorder.skip(
            SkippedCell(
                phase="decode", model="nano", sharding=Sharding(), batch=9, tokens=1, reason="big"
            )
        )
        for _ in range(2):
            recorder.note("hot")
        found = load(path)
        assert found.partial
        assert found.skipped[0].reason == "big"
    done = load(path)
    assert not done.partial
    assert done.notes == ["dummy weights", "hot"]
    assert done == recorder.result
    assert [item.name for item in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_file_keeps_its_cells_and_is_marked(tmp_path, error):
    path = tmp_path / "r.json"
    with contextlib.suppress(error), Recorder(new_result(flags={}), path) as recorder:
        recorder.add(cell(1))
        raise error
    assert load(path).partial
    assert load(path).cells == [cell(1)]


def test_an_older_file_stays_until_there_is_something_better(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("older")
    with contextlib.suppress(RuntimeError), Recorder(new_result(flags={}), path):
        raise RuntimeError("the engine did not start")
    assert path.read_text() == "older"
    with Recorder(new_result(flags={}), path):
        pass
    assert not load(path).partial


def test_what_is_no_result_file(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(BenchError, match="No such file"):
        load(path)
    path.write_text('{"version": 1}')
    with pytest.raises(BenchError, match="not a result of rose bench"):
        load(path)
    save(msgspec.structs.replace(new_result(flags={}), version=99), path)
    with pytest.raises(BenchError, match="version 99 of the format; this Rose reads 1"):
        load(path)


def test_medians_and_costs():
    assert median([3.0, 1.0, 2.0, 10.0]) == 2.5
    # 1000 tokens in 3.6 s on two GPUs at $3 an hour: 0.6 cents, $6 a million.
    assert usd_per_million_tokens(3.6, 1000, gpus=2, usd_per_gpu_hour=3.0) == pytest.approx(6.0)


def test_this_machine():
    here = detect_machine()
    assert here.cores >= 1
    assert here.memory_bytes > 2**28
    assert here.cpu


def test_gpus_are_those_that_the_driver_lists(monkeypatch):
    listed = "NVIDIA H200, 143771, 580.95, GPU-a\nNVIDIA H200, 143771, 580.95, GPU-b\n"
    monkeypatch.setattr(machine, "_output", lambda *command: listed)
    here = detect_machine()
    assert (here.gpu, here.gpus, here.driver) == ("NVIDIA H200", 2, "580.95")
    assert here.gpu_memory_bytes == 143771 * 2**20
    assert here.gpu_uuids == ["GPU-a", "GPU-b"]
    monkeypatch.setattr(machine, "_output", lambda *command: None)
    assert (detect_machine().gpu, detect_machine().gpus) == (None, 0)


def test_other_gpus_are_told_by_what_is_known():
    def host(*uuids, gpu="NVIDIA H200"):
        return Machine(cpu="x", cores=1, memory_bytes=1, gpu=gpu, gpu_uuids=list(uuids))

    assert host("GPU-a").has_other_gpus(host("GPU-b"))
    assert host("GPU-a", "GPU-b").has_other_gpus(host("GPU-a", "GPU-c"))
    assert not host("GPU-a").has_other_gpus(host("GPU-a"))
    assert not host("GPU-a").has_other_gpus(host("GPU-b", "GPU-a"))
    assert not host("GPU-a").has_other_gpus(host())
    assert not host().has_other_gpus(host())
    assert not host("GPU-a").has_other_gpus(host("GPU-b", gpu="NVIDIA H100"))  # worse than that


def test_files_from_before_uuids_were_recorded_load(tmp_path):
    path = tmp_path / "old.json"
    save(new_result(flags={}), path)
    content = json.loads(path.read_text())
    del content["machine"]["gpu_uuids"]
    path.write_text(json.dumps(content))
    assert load(path).machine.gpu_uuids == []


def test_the_commit_of_a_checkout(tmp_path):
    assert machine._commit(tmp_path) is None

    def git(*words):
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "file").write_text("1")
    git("init")
    git("add", "file")
    git("commit", "-m", "one")
    clean = machine._commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "file").write_text("2")
    assert machine._commit(tmp_path) == f"{clean} (modified)"


def test_the_software_names_what_was_measured():
    assert detect_software().engine.startswith("rose ")
    other = detect_software("vllm 1.2.3")
    assert other.engine == "vllm 1.2.3"
    assert "torch" in other.packages

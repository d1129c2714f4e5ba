"""The wheel holds the sources, which are compiled where it is installed."""

import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_the_wheel_holds_the_sources(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel")
    [made] = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(made) as archive:
        packed = {name for name in archive.namelist() if name.endswith((".cu", ".cuh"))}
    folder = ROOT / "rose/kernels/cuda"
    laid = {str(file.relative_to(ROOT)) for file in folder.iterdir() if ".cu" in file.suffix}
    assert packed == laid

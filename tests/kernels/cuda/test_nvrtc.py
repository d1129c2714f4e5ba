"""Compiling and the cache. Where NVRTC is not installed, a compiler that is none stands for it."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest

pytest.importorskip("triton", reason="Triton has no build for this platform")

from rose.kernels.cuda import nvrtc
from tests.kernels.cuda.sources import ADD, ROOT, SOURCES

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.available(), reason="needs cuda-bindings with NVRTC, as torch's CUDA 13 builds have"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rose_cuda"


@pytest.fixture
def compiled(monkeypatch):
    """What is compiled: NVRTC's place is taken."""
    asked = []

    def compile_(texts, options):
        asked.append((dict(texts), options))
        sleep(0.05)  # others come meanwhile
        return repr((texts, options)).encode()

    monkeypatch.setattr(nvrtc, "_compile", compile_)
    monkeypatch.setattr(nvrtc, "_version", lambda: (13, 0))
    return asked


@pytest.fixture
def source(tmp_path):
    """A copy of the small kernel, to change."""
    for file in (ADD, ADD.with_suffix(".cuh")):
        (tmp_path / file.name).write_text(file.read_text())
    return tmp_path / ADD.name


def test_the_source_comes_with_its_includes_and_defines(folder, compiled):
    nvrtc.cubin(ADD, {"SCALE": 3, "A": -1})
    [(texts, options)] = compiled
    assert list(texts) == ["add.cu", "add.cuh"]
    assert options[-2:] == ["-DA=-1", "-DSCALE=3"]


def test_what_is_compiled_is_kept(folder, compiled):
    first = nvrtc.cubin(ADD, {"SCALE": 3})
    assert nvrtc.cubin(ADD, {"SCALE": 3}) == first
    assert len(compiled) == 1
    [file] = folder.iterdir()
    assert file.read_bytes() == first


def test_whatever_changes_the_code_is_compiled_again(folder, compiled, source, monkeypatch):
    def codes():
        return {nvrtc.cubin(source, {}), nvrtc.cubin(source, {"SCALE": 2})}

    codes()
    source.with_suffix(".cuh").write_text("// nothing is waited for\n")
    codes()
    source.write_text(source.read_text() + "// the same, but for this\n")
    codes()
    monkeypatch.setattr(nvrtc, "_version", lambda: (13, 1))
    codes()
    assert len(compiled) == len(list(folder.iterdir())) == 8


def test_the_place_of_a_source_changes_nothing(folder, compiled, source):
    assert nvrtc.cubin(source, {}) == nvrtc.cubin(ADD, {})
    assert len(compiled) == 1


def test_threads_wait_for_the_one_that_compiles(folder, compiled):
    with ThreadPoolExecutor(8) as executor:
        codes = list(executor.map(lambda n: nvrtc.cubin(ADD, {"SCALE": n % 2}), range(8)))
    assert len(set(codes)) == len(compiled) == 2


def test_a_failed_compilation_leaves_nothing(folder, compiled, monkeypatch):
    def fails(texts, options):
        raise nvrtc.CompileError("no")

    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "_compile", fails)
        with pytest.raises(nvrtc.CompileError):
            nvrtc.cubin(ADD, {})
    assert not folder.exists()
    assert nvrtc.cubin(ADD, {})


def test_a_folder_that_takes_nothing(folder, compiled):
    folder.parent.mkdir()
    folder.write_text("no folder")  # root may write into any folder
    assert nvrtc.cubin(ADD, {}) == nvrtc.cubin(ADD, {})
    assert len(compiled) == 1


def test_other_users_may_read_what_is_kept(folder, compiled):
    before = os.umask(0o022)
    try:
        nvrtc.cubin(ADD, {})
    finally:
        os.umask(before)
    [file] = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o644


def test_no_bindings_no_kernels():
    # In a process of its own: modules that are imported stay.
    program = (
        "import sys; sys.modules['cuda'] = None\n"
        "from rose.kernels.cuda import kernel, nvrtc; print(nvrtc.available())"
    )
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed == "False\n"


@needs_nvrtc
@pytest.mark.parametrize("file", [ADD, *SOURCES], ids=lambda file: file.name)
def test_nvrtc_makes_a_cubin(folder, file):
    assert nvrtc.cubin(file, {}).startswith(b"\x7fELF")


@needs_nvrtc
def test_an_error_says_where(folder, source):
    source.write_text('#include "add.cuh"\n#include "lost.cuh"\n')
    with pytest.raises(nvrtc.CompileError, match=r'add\.cu\(2\).*"lost\.cuh"'):
        nvrtc.cubin(source, {})
    source.write_text('#include "add.cuh"\n')
    source.with_suffix(".cuh").write_text("#error too small\n")
    with pytest.raises(nvrtc.CompileError, match=r"(?s)-DSCALE=0:.*add\.cuh\(1\).*too small"):
        nvrtc.cubin(source, {"SCALE": 0})


@needs_nvrtc
def test_processes_that_start_at_once(folder):
    program = (
        "import sys; from pathlib import Path; from rose.kernels.cuda import nvrtc\n"
        "print(len(nvrtc.cubin(Path(sys.argv[1]), {})))"
    )
    command = [sys.executable, "-c", program, str(ADD)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    sizes = {int(process.communicate()[0]) for process in started}
    [file] = folder.iterdir()
    assert sizes == {file.stat().st_size}

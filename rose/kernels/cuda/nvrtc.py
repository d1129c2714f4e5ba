"""CUDA C++ to a cubin for Hopper, by NVRTC, kept on disk beside Triton's compiled kernels."""

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

OPTIONS = ("--gpu-architecture=sm_90a", "--std=c++17")

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class CompileError(RuntimeError):
    """A source does not compile; the message holds what NVRTC printed."""


@cache
def available() -> bool:
    """Whether NVRTC is installed with its Python bindings, and Triton, beside whose cache ours is.

    torch's builds for CUDA 13 bring all three. A GPU is not needed.
    """
    try:
        import triton  # noqa: F401

        _version()
    except (ImportError, OSError, RuntimeError):  # no package, or one without its library
        return False
    return True


def cubin(source: Path, defines: Mapping[str, int]) -> bytes:
    """The compiled source, from the cache or by compiling it, which may take a minute.

    Threads that ask for the same wait for the one that compiles. NVRTC lets go of Python's lock.

    Args:
        source: a `.cu` file; what it includes lies in its folder.
        defines: macros by name.

    Raises:
        CompileError: NVRTC does not take the source.
        ImportError: there are no bindings; `available` tells before.
    """
    texts = _texts(source)
    options = [*OPTIONS, *(f"-D{name}={value}" for name, value in sorted(defines.items()))]
    key = json.dumps([_version(), options, texts])
    digest = hashlib.sha256(key.encode()).hexdigest()
    file = _folder() / f"{source.stem}-{digest[:32]}.cubin"
    with _lock_of(file):
        if (code := _read(file)) is None:
            code = _compile(texts, options)
            _write(file, code)
        return code


def _texts(source: Path) -> dict[str, str]:
    """The source by its name, and then what it includes, by theirs."""
    texts: dict[str, str] = {}
    names = [source.name]
    while names:
        name = names.pop()
        file = source.with_name(name)
        # NVRTC tells best, and with the line, which include is not there.
        if name not in texts and (file.is_file() or not texts):
            texts[name] = file.read_text()
            names += _INCLUDE.findall(texts[name])
    return texts


def _folder() -> Path:
    """Inside Triton's: one setting moves both, and one archive holds both."""
    import triton

    return Path(triton.knobs.cache.dir) / "rose_cuda"


_locks: dict[Path, Lock] = {}


def _lock_of(file: Path) -> Lock:
    return _locks.setdefault(file, Lock())  # one step of the interpreter: all threads get the same


_unwritten: dict[Path, bytes] = {}
"""What the folder does not take: it may be on a full disk, or belong to another user."""


def _read(file: Path) -> bytes | None:
    if file in _unwritten:
        return _unwritten[file]
    try:
        return file.read_bytes()
    except OSError:  # not there, or not for this user
        return None


def _write(file: Path, code: bytes) -> None:
    """All at once: other processes may compile the same, or look for it, at this moment."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            # Unlike a temporary file, one that other users may read, if they may read others here.
            temporary = Path(folder) / file.name
            temporary.write_bytes(code)
            temporary.replace(file)
    except OSError:
        _unwritten[file] = code


@cache
def _version() -> tuple[int, int]:
    from cuda.bindings import nvrtc

    major, minor = _checked(nvrtc.nvrtcVersion())
    return major, minor


def _compile(texts: Mapping[str, str], options: list[str]) -> bytes:
    from cuda.bindings import nvrtc

    (name, text), *headers = ((name.encode(), text.encode()) for name, text in texts.items())
    names, contents = [name for name, _ in headers], [text for _, text in headers]
    program = _checked(nvrtc.nvrtcCreateProgram(text, name, len(headers), contents, names))
    try:
        flags = [option.encode() for option in options]
        [status] = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            wanted = " ".join(options)
            raise CompileError(f"{name.decode()} does not compile with {wanted}:\n{_log(program)}")
        code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return bytes(code)


def _log(program: Any) -> str:  # noqa: ANN401
    from cuda.bindings import nvrtc

    text = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, text))
    return text.rstrip(b"\0").decode(errors="replace")


def _checked(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """What a call gave besides its status."""
    status, *values = answer
    if status.value:
        raise RuntimeError(f"NVRTC failed: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)

"""The few functions of NVIDIA's driver that load and launch a kernel, through ctypes.

Its structures, those of cuda.h, are filled in where they lie, which keeps launches cheap.
"""

import ctypes
from functools import cache

_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
_PROGRAMMATIC_STREAM_SERIALIZATION = 6


class DriverError(RuntimeError):
    """The driver refused a call."""


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: an id, and a union of 64 bytes of which this is one member."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig: sizes of grid and block, bytes of shared memory, the stream."""

    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


def launch_config(threads: int, shared: int, dependent: bool) -> LaunchConfig:
    """Of a block in one dimension; the grid and the stream are left to each launch.

    Args:
        threads: of a block.
        shared: bytes of dynamic shared memory of a block.
        dependent: whether it may start before the kernel before it has ended.
    """
    config = LaunchConfig(block_x=threads, block_y=1, block_z=1, shared=shared)
    if dependent:
        attribute = LaunchAttribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
        config.attributes = ctypes.pointer(attribute)
        config.attribute_count = 1
    return config


@cache
def libcuda() -> ctypes.CDLL:
    """The driver.

    Raises:
        OSError: it is not installed.
    """
    loaded = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.c_void_p
    loaded.cuModuleLoadData.argtypes = [pointer, ctypes.c_char_p]
    loaded.cuModuleGetFunction.argtypes = [pointer, pointer, ctypes.c_char_p]
    loaded.cuFuncSetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int]
    loaded.cuLaunchKernelEx.argtypes = [pointer, pointer, pointer, pointer]
    return loaded


def load_function(code: bytes, name: str, shared: int) -> int:
    """A kernel in the current context, which it stays in until the process ends.

    Args:
        code: a cubin.
        name: of the kernel.
        shared: bytes of dynamic shared memory of a block.

    Raises:
        DriverError: the cubin is for another GPU, has no such kernel, or needs more than there is.
    """
    driver = libcuda()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuModuleLoadData(ctypes.byref(module), code), f"load {name}")
    found = driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
    check(found, f"find {name} in its cubin")
    attribute = _MAX_DYNAMIC_SHARED_SIZE_BYTES
    raised = driver.cuFuncSetAttribute(function, attribute, shared)
    check(raised, f"give {name} {shared} bytes of dynamic shared memory")
    assert function.value is not None
    return function.value


def check(status: int, what: str) -> None:
    """Raise DriverError if a call did not succeed; `what` is what was tried."""
    if status == 0:
        return
    text = ctypes.c_char_p()
    libcuda().cuGetErrorString(status, ctypes.byref(text))
    reason = (text.value or b"unknown").decode()
    raise DriverError(f"The driver could not {what}: {reason} (error {status})")

"""Launches, as a driver that is none sees them."""

import ctypes
import struct

import pytest
import torch

from rose.kernels.cuda import driver
from rose.kernels.cuda.driver import LaunchAttribute, LaunchConfig
from rose.kernels.cuda.kernel import Kernel, instead_of_launching
from tests.kernels.cuda.sources import ADD


class RecordingDriver:
    """Reads a launch as the driver does: from addresses."""

    def __init__(self, layout):
        self.layout = layout
        self.launches = []
        self.loaded = []
        self.status = 0

    def cuLaunchKernelEx(self, config, function, parameters, extra):  # noqa: N802
        config = LaunchConfig.from_address(config)
        values = [
            kind.from_address(address).value
            for kind, address in zip(self.layout, parameters, strict=True)
        ]
        self.launches.append((function, config, values))
        grid = (config.grid_x, config.grid_y, config.grid_z)
        self.last = {"grid": grid, "stream": config.stream, "values": values, "extra": extra}
        return self.status

    def cuGetErrorString(self, status, text):  # noqa: N802
        text._obj.value = b"invalid argument"

    def load(self, code, name, shared):
        self.loaded.append((code, name, shared))
        return 100 + len(self.loaded)


LAYOUT = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_float, ctypes.c_longlong]


@pytest.fixture
def recorder(monkeypatch):
    recorder = RecordingDriver(LAYOUT)
    recorder.device = 0
    monkeypatch.setattr(driver, "libcuda", lambda: recorder)
    monkeypatch.setattr(driver, "load_function", recorder.load)
    monkeypatch.setattr(Kernel, "cubin", lambda self: b"code")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: recorder.device)
    stream_of = {0: 7, 1: 8}.__getitem__
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", stream_of, raising=False)
    return recorder


def make(**options):
    return Kernel(ADD, "add", "PiPfq", threads=96, shared=2048, **options)


def test_what_the_driver_sees(recorder):
    kernel, x = make(), torch.zeros(4)
    for n in (-5, 6):
        kernel.launch((n + 10, 2, 3), x, n, 0, 0.5, 1 << 40)
        assert recorder.last == {
            "grid": (n + 10, 2, 3),
            "stream": 7,
            "values": [x.data_ptr(), n, None, 0.5, 1 << 40],
            "extra": None,
        }
    config = recorder.launches[0][1]
    assert (config.block_x, config.block_y, config.block_z) == (96, 1, 1)
    assert (config.shared, config.attribute_count) == (2048, 0)


def test_dependent_launch(recorder):
    kernel = make(dependent=True)
    kernel.launch((1, 1, 1), 0, 0, 0, 0.0, 0)
    config = recorder.launches[0][1]
    assert config.attribute_count == 1
    # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, allowed.
    assert (config.attributes[0].id, config.attributes[0].value) == (6, 1)


def test_loaded_once_a_device(recorder):
    kernel = make()
    for device in (0, 1, 0, 1):
        recorder.device = device
        kernel.launch((1, 1, 1), 0, 0, 0, 0.0, 0)
    assert recorder.loaded == [(b"code", "add", 2048)] * 2
    assert [function for function, _, _ in recorder.launches] == [101, 102, 101, 102]


@pytest.mark.parametrize("wrong", [(0, 1 << 31, 0, 0.0, 0), (0, 0), (0, 0.5, 0, 0.0, 0)])
def test_arguments_that_do_not_fit(recorder, wrong):
    with pytest.raises(struct.error):
        make().launch((1, 1, 1), *wrong)
    assert not recorder.launches


def test_what_the_driver_refuses(recorder):
    recorder.status = 1
    with pytest.raises(driver.DriverError, match=r"launch add .*\(0, 1, 1\): invalid argument"):
        make().launch((0, 1, 1), 0, 0, 0, 0.0, 0)


def test_instead_of_launching(recorder):
    outer, inner, kernel = [], [], make()
    with instead_of_launching(lambda *launch: outer.append(launch)):
        with instead_of_launching(lambda *launch: inner.append(launch)):
            kernel.launch((1, 2, 3), 0, 0, 0, 0.0, 0)
        kernel.launch((4, 5, 6), 0, 0, 0, 0.0, 0)
    assert inner == [(kernel, (1, 2, 3))]
    assert outer == [(kernel, (4, 5, 6))]
    assert not recorder.loaded
    kernel.launch((1, 1, 1), 0, 0, 0, 0.0, 0)
    assert len(recorder.launches) == 1


def test_structures_are_laid_out_like_those_of_cuda_h():
    assert (ctypes.sizeof(LaunchConfig), ctypes.sizeof(LaunchAttribute)) == (56, 72)
    assert (LaunchConfig.stream.offset, LaunchConfig.attributes.offset) == (32, 40)
    assert LaunchAttribute.value.offset == 8

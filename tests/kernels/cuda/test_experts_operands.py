"""What the experts' kernel in CUDA C++ asks of its GPU and its operands, without a GPU."""

import pytest
import torch

from rose.kernels.cuda import experts_mxfp4, nvrtc
from rose.kernels.matrices import Mxfp4Matrices
from tests.kernels.fused.expert_inputs import route_counts

WIDTH = 64


class Recorder:
    """Stands for a kernel."""

    def launch(self, grid, *arguments):
        self.x = arguments[0]


def test_the_current_gpu_decides(monkeypatch):
    monkeypatch.setattr(nvrtc, "available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(experts_mxfp4, "_is_hopper", [False, True].__getitem__)
    for device in (0, 1, 0):
        monkeypatch.setattr(torch.cuda, "current_device", lambda device=device: device)
        assert experts_mxfp4.available() == (device == 1)


@pytest.mark.parametrize("ahead", [0, 1, 8])
def test_rows_start_where_16_bytes_do(ahead, monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(experts_mxfp4, "_DOWN", recorder)
    x = torch.randn(2 * WIDTH + ahead).bfloat16()[ahead:].view(2, WIDTH)
    blocks = torch.zeros(1, 1, WIDTH, WIDTH // 32, 16, dtype=torch.uint8)
    weight = Mxfp4Matrices(blocks, torch.zeros(1, 1, 1, WIDTH, 4, dtype=torch.uint8), tiled=True)
    routing = route_counts([2], 1, torch.device("cpu"))
    experts_mxfp4.down(x, routing, weight, torch.zeros(1, WIDTH).bfloat16())
    assert torch.equal(recorder.x, x)
    assert recorder.x.data_ptr() % 16 == 0
    assert (recorder.x is x) == (ahead != 1)

"""Launches on a GPU."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from rose.kernels.cuda.driver import DriverError
from rose.kernels.cuda.kernel import Kernel
from tests.kernels.cuda.sources import ADD
from tests.kernels.cuda.test_nvrtc import needs_nvrtc


def hopper():
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper(), reason="needs an NVIDIA Hopper GPU"),
    needs_nvrtc,
]

THREADS = 128


def make(shared=4 * THREADS, dependent=False, **defines):
    return Kernel(
        ADD, "add", "PPfi", threads=THREADS, shared=shared, dependent=dependent, defines=defines
    )


def add(kernel, x, y, bias):
    kernel.launch((-(-x.numel() // THREADS), 1, 1), x, y, bias, x.numel())


def random(n):
    return torch.randint(-1000, 1000, (n,), device="cuda").float()


@pytest.mark.parametrize("n", [1, 127, 128, 129, 1_000_003])
def test_plain(n):
    x = random(n)
    y = torch.full((n + 1,), torch.nan, device="cuda")
    add(make(SCALE=3), x, y, 0.5)
    assert torch.equal(y[:n], x * 3 + 0.5)
    assert y[n].isnan()


def test_as_much_shared_memory_as_there_is():
    x = random(1000)
    y = torch.empty_like(x)
    add(make(shared=232448), x, y, 1.0)
    assert torch.equal(y, x + 1)


def test_more_shared_memory_than_there_is():
    x = random(10)
    with pytest.raises(DriverError, match="give add 232452 bytes of dynamic shared memory"):
        add(make(shared=232452), x, x, 1.0)


def test_a_kernel_that_is_not_there():
    with pytest.raises(DriverError, match="find subtract in its cubin"):
        Kernel(ADD, "subtract", "", threads=1).launch((1, 1, 1))


def test_on_the_current_stream():
    kernel, x = make(), random(1 << 20)
    y = torch.zeros_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # on another stream the sum would come before
        x.add_(1)
        add(kernel, x, y, 1.0)
    stream.synchronize()
    assert torch.equal(y, x + 1)


def chain(kernel, x, buffers):
    """Each launch reads all that the one before wrote."""
    for source, target in zip([x, *buffers], buffers, strict=False):
        add(kernel, source, target, 1.0)


@pytest.mark.parametrize("dependent", [False, True])
def test_one_after_another(dependent):
    kernel, x = make(dependent=dependent), random(1 << 22)
    for _ in range(20):
        buffers = [torch.zeros_like(x) for _ in range(4)]
        chain(kernel, x, buffers)
        assert torch.equal(buffers[-1], x + 4)


@pytest.mark.parametrize("dependent", [False, True])
def test_under_graph_capture(dependent):
    kernel, x = make(dependent=dependent), random(1 << 22)
    buffers = [torch.zeros_like(x) for _ in range(4)]
    chain(kernel, x, buffers)  # loads it
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(kernel, x, buffers)
    for n in range(10):
        x.fill_(n)
        for buffer in buffers:
            buffer.zero_()
        graph.replay()
        assert torch.equal(buffers[-1], x + 4)


def test_dependent_on_a_kernel_of_torch():
    kernel, x = make(dependent=True), random(1 << 22)
    for n in range(20):
        y = torch.zeros_like(x)
        add(kernel, x.mul_(0).add_(n), y, 1.0)
        assert torch.equal(y, torch.full_like(x, n + 1))

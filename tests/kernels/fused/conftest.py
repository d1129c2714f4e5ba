"""Fused kernels run on a GPU if there is one, else in Triton's interpreter."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

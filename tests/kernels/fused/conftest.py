"""Fused kernels run on a GPU if there is one, else in Triton's interpreter."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from triton.runtime import interpreter

_patch_tensor = interpreter._patch_lang_tensor


def _patch_tensor_and_index(tensor, scope):
    """Loops over bounds read from memory: NumPy 2.4 makes no int of an array of one element."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = _patch_tensor_and_index


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

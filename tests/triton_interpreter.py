"""Importing this mends Triton's interpreter (3.6): NumPy 2.4 makes no int of a one-element array.

Kernels loop up to bounds that they read from memory.
"""

from triton.runtime import interpreter

_patch_tensor = interpreter._patch_lang_tensor


def _patch_tensor_and_index(tensor, scope):
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = _patch_tensor_and_index

"""What a converted checkpoint holds, read with the official reader and a codec of its own."""

import json

import torch
from safetensors.torch import load_file

from tests.models.checkpoint_layouts import SMALL, decode_mxfp4, random_tensors, write_folder
from tools.make_tiny_checkpoint import make_config

GATE_UP = "model.layers.1.mlp.experts.gate_up_proj"


def read_all(folder):
    """All tensors, by the official reader."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = {name: load_file(folder / name) for name in set(index["weight_map"].values())}
    tensors = {name: files[file][name] for name, file in index["weight_map"].items()}
    assert sum(map(len, files.values())) == len(tensors)
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors.values())
    return tensors


def decode_fp8(values, scales):
    rows, columns = values.shape[-2:]
    grid = scales.repeat_interleave(128, -2).repeat_interleave(128, -1)
    return values.float() * grid[..., :rows, :columns]


def assert_holds(folder, tensors, *, exact=True):
    """The folder holds this model: the same bytes, and experts with the same values."""
    found = read_all(folder)
    for name, value in tensors.items():
        if name.endswith("_blocks"):
            base = name.removesuffix("_blocks")
            matrices = decode_mxfp4(value, tensors[f"{base}_scales"])
            parts = 2 if "gate_up" in name else 1
            expected = torch.stack([matrices[:, p::parts] for p in range(parts)], dim=1)
            values, scales = found.pop(base), found.pop(f"{base}_scale_inv")
            assert values.dtype == torch.float8_e4m3fn
            assert scales.dtype == torch.float32
            if exact:
                assert torch.equal(decode_fp8(values, scales), expected), name
        elif not name.endswith("_scales"):
            assert torch.equal(found.pop(name), value), name
    assert not found


def write_wide(folder):
    """A model whose scales inside one 128 x 128 block span more than e4m3 does."""
    tensors = random_tensors(SMALL)
    blocks, scales = tensors[f"{GATE_UP}_blocks"], tensors[f"{GATE_UP}_scales"]
    # Expert 2, gate 5 (row 10): 32 weights of 0.5 * 2^-24 below a largest of 6 * 2^0.
    scales[2] = 127
    scales[2, 10, 1] = 103
    blocks[2] = 0x77
    blocks[2, 10, 1] = 0x11
    # Gate 6: values that e4m3 rounds, not to zero: 1.5 * 2^-17 and 2^-17, in steps of 2^-15.
    scales[2, 12, 0] = 110
    blocks[2, 12, 0] = 0x32
    return write_folder(folder, tensors, make_config(SMALL)), tensors

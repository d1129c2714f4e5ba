"""The table of implementations."""

import pytest
import torch

from rose.kernels import dispatch
from rose.kernels.cuda import experts_mxfp4
from rose.kernels.dispatch import BFLOAT16_OPS, TABLE, Implementation, Shape, choose, force

FA3, TRITON, REFERENCE = Implementation.FA3, Implementation.TRITON, Implementation.REFERENCE


@pytest.mark.parametrize(
    ("head_dim", "block_size", "chunks", "others"),
    [
        (64, 128, FA3, TRITON),
        (64, 384, FA3, FA3),
        (64, 16, TRITON, TRITON),
        (32, 128, TRITON, TRITON),
        (16, 16, TRITON, TRITON),
        (64, 24, REFERENCE, REFERENCE),
        (64, 8, REFERENCE, REFERENCE),
        (8, 16, REFERENCE, REFERENCE),
        (80, 16, REFERENCE, REFERENCE),
    ],
)
def test_who_serves_attention_where_everything_is_installed(
    head_dim, block_size, chunks, others, monkeypatch
):
    """Chunks in full layers; and others: decode rows, and all that sees a window only."""
    monkeypatch.setattr(dispatch, "_installed", lambda _: True)

    def first(**kind):
        shape = Shape(head_dim, block_size, **kind)
        rules = (rule for rule in TABLE if rule.op in ("attention", "*") and rule.accepts(shape))
        return next(rules).implementation

    assert first(chunks=True) is chunks
    assert {first(), first(windowed=True), first(windowed=True, chunks=True)} == {others}


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("chunks", [False, True])
def test_fa3_serves_all_where_triton_may_not(windowed, chunks, monkeypatch):
    monkeypatch.setattr(dispatch, "_installed", lambda _: True)
    operand = torch.empty(0, dtype=torch.bfloat16)
    with force(FA3):
        assert choose("attention", operand, Shape(64, 128, windowed, chunks)) is FA3


def test_the_reference_serves_what_a_chosen_implementation_cannot():
    operand = torch.empty(0, dtype=torch.bfloat16)
    with force(Implementation.TRITON):
        assert choose("attention", operand, Shape(64, 128)) is Implementation.TRITON
        assert choose("attention", operand, Shape(80, 128)) is Implementation.REFERENCE
    with force(Implementation.FA3):
        assert choose("attention", operand, Shape(64, 24)) is Implementation.REFERENCE


@pytest.mark.parametrize(
    ("shape", "serves"),
    [
        (Shape(rows=32_768, experts=128, widths=(2880, 2880)), True),
        (Shape(rows=40 * 32, experts=32, widths=(2880, 2880)), True),
        (Shape(rows=40 * 32 - 1, experts=32, widths=(2880, 2880)), False),
        (Shape(rows=32_768, experts=32, widths=(2880, 1440)), False),
        (Shape(rows=2**20, experts=1024, widths=(64, 64)), False),
        (Shape(), False),
    ],
)
@pytest.mark.parametrize("available", [True, False])
def test_cuda_serves_many_rows_of_packed_experts(shape, serves, available, monkeypatch):
    monkeypatch.setattr(experts_mxfp4, "available", lambda: available)
    operand = torch.empty(0, dtype=torch.bfloat16)
    wanted = Implementation.CUDA if serves and available else TRITON
    with force(TRITON, Implementation.CUDA):
        assert choose("experts", operand, shape) is wanted
    with force(TRITON):
        assert choose("experts", operand, shape) is TRITON


@pytest.mark.parametrize("op", sorted(BFLOAT16_OPS))
def test_kernels_of_bfloat16_alone_are_not_forced_on_float32(op):
    with force(Implementation.TRITON):
        assert choose(op, torch.empty(0, dtype=torch.bfloat16)) is Implementation.TRITON
        assert choose(op, torch.empty(0)) is Implementation.REFERENCE

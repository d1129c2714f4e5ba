"""The table of implementations."""

import pytest
import torch

from rose.kernels import dispatch
from rose.kernels.dispatch import BFLOAT16_OPS, TABLE, Implementation, Shape, choose, force


@pytest.mark.parametrize(
    ("head_dim", "block_size", "wanted"),
    [
        (64, 128, Implementation.FA3),
        (64, 16, Implementation.TRITON),
        (32, 128, Implementation.TRITON),
        (16, 16, Implementation.TRITON),
        (64, 24, Implementation.REFERENCE),
        (64, 8, Implementation.REFERENCE),
        (8, 16, Implementation.REFERENCE),
        (80, 16, Implementation.REFERENCE),
    ],
)
def test_who_serves_attention_where_everything_is_installed(
    head_dim, block_size, wanted, monkeypatch
):
    monkeypatch.setattr(dispatch, "_installed", lambda _: True)
    shape = Shape(head_dim=head_dim, block_size=block_size)
    rules = (rule for rule in TABLE if rule.op in ("attention", "*") and rule.accepts(shape))
    assert next(rules).implementation is wanted


def test_the_reference_serves_what_a_chosen_implementation_cannot():
    operand = torch.empty(0, dtype=torch.bfloat16)
    with force(Implementation.TRITON):
        assert choose("attention", operand, Shape(64, 128)) is Implementation.TRITON
        assert choose("attention", operand, Shape(80, 128)) is Implementation.REFERENCE
    with force(Implementation.FA3):
        assert choose("attention", operand, Shape(64, 24)) is Implementation.REFERENCE


@pytest.mark.parametrize("op", sorted(BFLOAT16_OPS))
def test_kernels_of_bfloat16_alone_are_not_forced_on_float32(op):
    with force(Implementation.TRITON):
        assert choose(op, torch.empty(0, dtype=torch.bfloat16)) is Implementation.TRITON
        assert choose(op, torch.empty(0)) is Implementation.REFERENCE

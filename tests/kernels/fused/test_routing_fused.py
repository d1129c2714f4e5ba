"""Routing and combination in Triton: the reference's choice, order and sum."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rose.kernels.reference import COMBINE_TOLERANCE
from rose.kernels.routing import Routing, combine, route
from tests.kernels.fused.fused_checks import assert_near, fused, random, same_bytes

ROWS = ("row_of", "token_of_row", "tokens_per_expert", "first_row")
# One block and several, tiles that experts and tokens fill and do not.
SHAPES = [
    (0, 32, 4),
    (1, 6, 1),
    (1, 128, 4),
    (8, 32, 4),
    (9, 8, 8),
    (64, 33, 3),
    (65, 32, 4),
    (97, 256, 8),
    (200, 128, 4),
]
if torch.cuda.is_available():
    SHAPES += [(t, e, 4) for t in (256, 4096, 4097, 16384, 131072) for e in (32, 128)]
    SHAPES += [(8192, 256, 8)]


def fields(routing: Routing) -> list[torch.Tensor]:
    return [getattr(routing, field.name) for field in dataclasses.fields(routing)]


def fused_route(logits, k) -> Routing:
    return Routing(*fused(lambda: fields(route(logits, k))))


def assert_same_rows(found: Routing, wanted: Routing):
    for name in ROWS:
        assert same_bytes(getattr(found, name), getattr(wanted, name)), name


def assert_consistent(routing: Routing):
    """Whatever was chosen: every pair has a row, and it lies with its expert's rows."""
    pairs = routing.token_of_row.numel()
    assert routing.row_of.flatten().sort().values.tolist() == list(range(pairs))
    tokens = torch.arange(routing.row_of.shape[0], device=routing.row_of.device)
    owner = routing.token_of_row[routing.row_of.long()]
    assert torch.equal(owner, tokens[:, None].expand_as(owner).int())
    assert routing.first_row[0] == 0
    assert torch.equal(routing.first_row.diff(), routing.tokens_per_expert)
    assert routing.first_row[-1] == pairs


@pytest.mark.parametrize(("tokens", "experts", "k"), SHAPES)
def test_choice_and_order_are_the_references(tokens, experts, k, device):
    logits = random(tokens, experts, device=device)
    found = fused_route(logits, k)
    assert_same_rows(found, route(logits.cpu(), k))
    best = logits.double().sort(dim=-1, descending=True, stable=True).values[:, :k]
    assert_near(found.weights, best.softmax(-1), COMBINE_TOLERANCE)


@pytest.mark.parametrize("tokens", [3, 70])
def test_equal_logits_go_to_the_lower_expert(tokens, device):
    # Zeros of both signs, which are equal, and below them -1.
    generator = torch.Generator().manual_seed(0)
    levels = torch.tensor([0.0, -0.0, -1.0], dtype=torch.bfloat16)
    logits = levels[torch.randint(0, 3, (tokens, 32), generator=generator)]
    assert_same_rows(fused_route(logits.to(device), 4), route(logits, 4))


@pytest.mark.parametrize("tokens", [5, 70])
def test_one_expert_gets_a_row_of_every_token(tokens, device):
    logits = random(tokens, 16, device=device)
    logits[:, 11] = 50
    found = fused_route(logits, 2)
    assert_same_rows(found, route(logits.cpu(), 2))
    assert found.tokens_per_expert[11] == tokens


@pytest.mark.filterwarnings("ignore:.*NaN.*:RuntimeWarning", "ignore:invalid:RuntimeWarning")
@pytest.mark.parametrize("tokens", [4, 70])
def test_logits_that_are_not_numbers_stay_in_bounds(tokens, device):
    logits = random(tokens, 12, device=device)
    logits[0] = torch.nan
    logits[1, 3:] = -torch.inf
    logits[2, ::2] = torch.inf
    logits.view(torch.int16)[3, 5] = -1  # NaN with its sign set
    found, wanted = fused_route(logits, 4), route(logits.cpu(), 4)
    assert_consistent(found)
    assert_same_rows(found, wanted)
    assert torch.equal(found.weights.isnan().cpu(), wanted.weights.isnan())


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_shape_and_any_ties(data):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    experts = data.draw(st.integers(1, 40))
    k = data.draw(st.integers(1, min(experts, 8)))
    tokens = data.draw(st.integers(1, 80))
    levels = data.draw(st.integers(1, 5))
    seed = data.draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-levels, levels, (tokens, experts), generator=generator).bfloat16()
    found = fused_route(logits.to(device), k)
    assert_consistent(found)
    assert_same_rows(found, route(logits, k))


COMBINE_SHAPES = [(0, 4, 64), (1, 1, 1), (1, 4, 2880), (5, 3, 1025), (3, 8, 96)]
if torch.cuda.is_available():
    COMBINE_SHAPES += [(256, 4, 2880), (8192, 4, 2880), (65536, 4, 2880)]


@pytest.mark.parametrize(("tokens", "k", "width"), COMBINE_SHAPES)
def test_combine(tokens, k, width, device):
    routing = route(random(tokens, 16, device=device, seed=3), k)
    rows = random(tokens * k, width, device=device)
    residual = random(tokens, width, device=device, seed=4)
    (found,) = fused(lambda: combine(rows, routing))
    chosen = rows[routing.row_of.long()].double()
    assert_near(found, (chosen * routing.weights.double()[..., None]).sum(1), COMBINE_TOLERANCE)
    # Products are exact and the order is the same, so is every rounding.
    assert same_bytes(found, combine(rows, routing))
    (added,) = fused(lambda: combine(rows, routing, residual))
    assert same_bytes(added, residual + found)

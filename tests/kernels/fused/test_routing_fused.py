"""Routing and combination in Triton: the reference's choice, order and sum."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rose.kernels.dispatch import Implementation, only
from rose.kernels.fused import router, routing
from rose.kernels.norm import add_rms_norm, rms_norm
from rose.kernels.reference import COMBINE_TOLERANCE, NORM_TOLERANCE
from rose.kernels.routing import Routing, combine, combine_norm, route, route_linear
from tests.kernels.fused.expert_inputs import list_tiles
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
    values = (getattr(routing, field.name) for field in dataclasses.fields(routing))
    return [value for value in values if value is not None]


def fused_route(logits, k) -> Routing:
    return Routing(*fused(lambda: fields(route(logits, k))))


def assert_same_rows(found: Routing, wanted: Routing):
    for name in ROWS:
        assert same_bytes(getattr(found, name), getattr(wanted, name)), name
    if found.tiles is not None:
        assert same_bytes(found.tiles, list_tiles(wanted.tokens_per_expert.tolist()))


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


@pytest.mark.parametrize("tokens", [30, 40, 70])
def test_tiles_are_listed_up_to_so_many_rows(tokens, monkeypatch, device):
    monkeypatch.setattr(routing, "MOST_LISTED", 160)
    # All choose the same expert, and one or more others.
    logits = random(tokens, 9, device=device)
    logits[:, 4] = 50
    found = fused_route(logits, 4)
    assert_same_rows(found, route(logits.cpu(), 4))
    assert (found.tiles is None) == (tokens > 40)


@pytest.mark.parametrize("tokens", [3, 40])
def test_no_list_is_made_of_more_experts_than_its_words_hold(tokens, device):
    logits = random(tokens, 300, device=device)
    found = fused_route(logits, 4)
    assert_same_rows(found, route(logits.cpu(), 4))
    assert found.tiles is None


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


@pytest.mark.parametrize("one_program", [16, 64])
@pytest.mark.parametrize("tokens", [16, 17, 33, 64])
def test_one_program_or_two_launches_route_alike(tokens, one_program, device):
    logits = random(tokens, 32, device=device)
    found = fused(lambda: routing.route(logits, 4, one_program))
    assert len(found) == 6
    assert_same_rows(Routing(*found), route(logits.cpu(), 4))


ROUTER_SHAPES = [
    (0, 8, 64, 2),
    (1, 32, 2880, 4),
    (2, 6, 160, 2),
    (3, 32, 100, 4),
    (8, 12, 2880, 4),
    (9, 33, 2056, 3),
    (16, 9, 5000, 8),
]
if torch.cuda.is_available():
    ROUTER_SHAPES += [(tokens, 128, 2880, 4) for tokens in (2, 5, 8, 16)]
    ROUTER_SHAPES += [(16, 256, 2880, 8)]


def router_inputs(tokens, experts, width, device):
    arrivals = torch.zeros(1, dtype=torch.int32, device=device)
    weight = random(experts, width, device=device, seed=1, scale=width**-0.5)
    return random(tokens, width, device=device), weight, random(experts, device=device), arrivals


def fused_router(x, weight, bias, k, arrivals) -> Routing:
    found = Routing(*fused(lambda: fields(route_linear(x, weight, bias, k, arrivals))))
    assert arrivals.item() == 0
    return found


@pytest.mark.parametrize(("tokens", "experts", "width", "k"), ROUTER_SHAPES)
def test_the_router_chooses_by_sums_rounded_once(tokens, experts, width, k, device):
    # Sums of small integers are exact in any order, so one rounding tells all; many are equal.
    *parts, arrivals = router_inputs(tokens, experts, width, device)
    x, weight, bias = (part.mul(2.0).round().clamp(-3, 3) for part in parts)
    weight[:, ::2] = x[:1, ::2] if tokens else 0
    found = fused_router(x, weight, bias, k, arrivals)
    logits = torch.addmm(bias.double(), x.double(), weight.double().t()).bfloat16()
    assert_same_rows(found, route(logits.cpu(), k))
    best = logits.double().sort(dim=-1, descending=True, stable=True).values[:, :k]
    assert_near(found.weights, best.softmax(-1), COMBINE_TOLERANCE)


@pytest.mark.parametrize(("tokens", "experts", "width", "k"), ROUTER_SHAPES)
def test_the_router_weighs_as_exact_sums_do(tokens, experts, width, k, device):
    x, weight, bias, arrivals = router_inputs(tokens, experts, width, device)
    found = fused_router(x, weight, bias, k, arrivals)
    assert_consistent(found)
    logits = torch.addmm(bias.double(), x.double(), weight.double().t())
    best = logits.sort(dim=-1, descending=True).values[:, :k].softmax(-1)
    # Half a bit of bfloat16 at logits of up to 8.
    assert (found.weights.double() - best).abs().le(2**-5).all()


def test_a_token_is_routed_alike_alone_and_in_company(device):
    x, weight, bias, arrivals = router_inputs(router.FEW, 16, 2880, device)
    together = fused_router(x, weight, bias, 4, arrivals)
    for token in (0, 6, 15):
        alone = fused_router(x[token : token + 1], weight, bias, 4, arrivals)
        assert same_bytes(alone.weights[0], together.weights[token])
        owners = torch.searchsorted(together.first_row, together.row_of[token], right=True) - 1
        assert owners.sort().values.tolist() == alone.tokens_per_expert.nonzero().flatten().tolist()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("tokens", [1, 7, 16])
def test_a_graph_replays_the_router(tokens, device):
    """The last to arrive sees what all wrote, whoever it is, and leaves the counter at zero."""
    x, weight, bias, arrivals = router_inputs(tokens, 128, 2880, device)
    wanted = fields(fused_router(x, weight, bias, 4, arrivals))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [fields(route_linear(x, weight, bias, 4, arrivals)) for _ in range(20)]
    for _ in range(50):
        for each in found:
            for field in each:
                field.zero_()
        graph.replay()
        route_linear(x, weight, bias, 4, arrivals)  # between replays, on the same stream
        for each in found:
            assert all(same_bytes(*pair) for pair in zip(each, wanted, strict=True))
    assert arrivals.item() == 0


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


@pytest.mark.parametrize(("tokens", "k", "width"), COMBINE_SHAPES)
def test_combination_addition_and_norm_in_one(tokens, k, width, device):
    routing = route(random(tokens, 16, device=device, seed=3), k)
    rows = random(tokens * k, width, device=device)
    residual = random(tokens, width, device=device, seed=4)
    weight = random(width, device=device, seed=5, scale=0.1) + 1
    total, normed = fused(lambda: combine_norm(rows, routing, residual, weight, 1e-5))
    assert same_bytes(total, combine(rows, routing, residual))
    wide = total.double()
    truth = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    assert_near(normed, truth, NORM_TOLERANCE)
    with only(Implementation.REFERENCE):
        wanted = combine_norm(rows, routing, residual, weight, 1e-5)
        assert same_bytes(wanted[1], rms_norm(total, weight, 1e-5))
    assert same_bytes(total, wanted[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_combination_that_starts_early_reads_its_own_routing(device):
    """In a graph, where kernels come before others end: a replay finds the last one's routing."""
    layers, tokens, k, width, experts = 8, 2, 4, 2880, 32
    weight = random(width, device=device, seed=5, scale=0.1) + 1
    logits = torch.stack([random(tokens, experts, device=device, seed=n) for n in range(layers)])
    computed = [random(tokens * k, width, device=device, seed=9 + n) for n in range(layers)]

    def step() -> list[tuple[torch.Tensor, torch.Tensor]]:
        found = []
        for each, half in zip(logits, computed, strict=True):
            routing = route(each, k)
            rows, _ = add_rms_norm(half, half, weight, 1e-5)  # the kernel between
            found.append(combine_norm(rows, routing, half[:tokens], weight, 1e-5))
        return found

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for _ in range(50):
        logits.copy_(logits.roll(1, 0))
        with only(Implementation.REFERENCE):
            wanted = step()
        graph.replay()
        for (total, normed), (true_total, true_normed) in zip(found, wanted, strict=True):
            assert same_bytes(total, true_total)
            assert_near(normed, true_normed.double(), NORM_TOLERANCE)

"""Each reference op against float64 arithmetic written out here."""

import math

import pytest
import torch

from rose.kernels.norm import rms_norm
from rose.kernels.paged_kv import LayerKV
from rose.kernels.reference import (
    COMBINE_TOLERANCE,
    NORM_TOLERANCE,
    ROPE_TOLERANCE,
    SWIGLU_TOLERANCE,
    Tolerance,
)
from rose.kernels.rope_kv import rope_write_kv
from rose.kernels.rotary import rope_cos_sin, yarn_concentration, yarn_inverse_frequencies
from rose.kernels.routing import combine, route
from rose.kernels.swiglu import swiglu

DTYPES = [torch.float32, torch.bfloat16]
GPT_OSS_YARN = {
    "theta": 150000.0,
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position": 4096,
    "truncate": False,
}


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(found, truth, tolerance: Tolerance):
    bound = tolerance.float32 if found.dtype == torch.float32 else tolerance.bfloat16
    assert found.shape == truth.shape
    assert found.isfinite().all()
    if truth.numel():
        assert (found.double() - truth).abs().max() <= bound * truth.abs().max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 288), (7, 65), (0, 32)])
def test_rms_norm(shape, dtype):
    x, weight = random(*shape, dtype=dtype) * 3, 1 + 0.1 * random(shape[1], seed=1).to(dtype)
    wide = x.double()
    truth = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    found = rms_norm(x, weight, 1e-5)
    assert found.dtype == dtype
    assert_near(found, truth, NORM_TOLERANCE)


def test_rms_norm_applies_the_weight_before_rounding():
    x, weight = random(64, 64, dtype=torch.bfloat16), random(64, seed=1, dtype=torch.bfloat16)
    wide = x.double()
    scale = 1 / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    once = (wide * scale * weight.double()).to(torch.bfloat16)
    twice = (wide * scale).to(torch.bfloat16) * weight
    found = rms_norm(x, weight, 1e-5)
    assert (found != once).sum() <= 2  # float32 and float64 may fall on two sides of a midpoint
    assert (twice != once).sum() > 100


def test_yarn_frequencies_of_gpt_oss():
    # The numbers of the model card: the ramp runs from 8.0928 to 17.3980, not rounded.
    found = yarn_inverse_frequencies(64, **GPT_OSS_YARN).double()
    for pair in range(32):
        plain = 150000.0 ** (-2 * pair / 64)
        ramp = min(max((pair - 8.0928) / (17.3980 - 8.0928), 0), 1)
        assert found[pair] == pytest.approx(plain * (1 - ramp) + plain / 32 * ramp, rel=1e-4)
    assert yarn_concentration(32.0) == pytest.approx(1.346574, abs=1e-6)


def test_yarn_truncate_rounds_the_ramp_outwards():
    found = yarn_inverse_frequencies(64, **{**GPT_OSS_YARN, "truncate": True}).double()
    plain = [150000.0 ** (-2 * pair / 64) for pair in range(32)]
    assert found[8] == pytest.approx(plain[8], rel=1e-6)
    ramp = 1 / (18 - 8)
    assert found[9] == pytest.approx(plain[9] * (1 - ramp) + plain[9] / 32 * ramp, rel=1e-5)
    assert found[18] == pytest.approx(plain[18] / 32, rel=1e-6)


def test_factor_one_is_plain_rope():
    found = yarn_inverse_frequencies(8, **{**GPT_OSS_YARN, "factor": 1.0}).tolist()
    assert found == pytest.approx([150000.0 ** (-2 * pair / 8) for pair in range(4)], rel=1e-6)
    assert yarn_concentration(1.0) == 1


def test_a_ramp_of_no_width_divides_by_nothing():
    options = {**GPT_OSS_YARN, "beta_fast": 2.0, "beta_slow": 2.0}
    assert yarn_inverse_frequencies(64, **options).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (3, 3), (5, 1)])
@pytest.mark.parametrize("tokens", [1, 6])
def test_rope_write_kv(dtype, heads, kv_heads, tokens):
    dim, block_size, blocks = 8, 3, 5
    positions = torch.tensor([0, 1, 130, 4095, 17, 9][:tokens])
    frequencies = yarn_inverse_frequencies(dim, **GPT_OSS_YARN)
    cos, sin = rope_cos_sin(positions, frequencies, 1.25)
    angle = positions.double()[:, None] * frequencies.double()
    rotation = torch.polar(torch.full_like(angle, 1.25), angle)
    qkv = random(tokens, (heads + 2 * kv_heads) * dim, dtype=dtype)
    slots = torch.tensor([14, 0, 5, 7, 3, 11][:tokens])
    shape = (blocks, block_size, kv_heads, dim)
    kv = LayerKV(*(torch.full(shape, torch.nan, dtype=dtype) for _ in range(2)))

    query = rope_write_kv(qkv, cos, sin, slots, kv, heads)

    split = qkv.double().view(tokens, -1, dim)
    half = dim // 2
    turned = torch.complex(split[..., :half], split[..., half:]) * rotation[:, None]
    turned = torch.cat((turned.real, turned.imag), -1)
    # float32 angles of thousands of radians are off by a few 1e-4; see Rotary.
    tolerance = Tolerance(5e-4, ROPE_TOLERANCE.bfloat16)
    assert query.dtype == dtype
    assert_near(query, turned[:, :heads], tolerance)
    key, value = kv.key.view(-1, kv_heads, dim), kv.value.view(-1, kv_heads, dim)
    assert_near(key[slots], turned[:, heads : heads + kv_heads], tolerance)
    assert torch.equal(value[slots].double(), split[:, heads + kv_heads :])
    untouched = torch.ones(blocks * block_size, dtype=torch.bool)
    untouched[slots] = False
    assert key[untouched].isnan().all()
    assert value[untouched].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "experts", "k"), [(1, 4, 2), (9, 5, 1), (6, 3, 3), (40, 32, 4)])
def test_route(dtype, tokens, experts, k):
    logits = random(tokens, experts, dtype=dtype)
    routing = route(logits, k)
    pairs = []
    for token in range(tokens):
        scores = logits[token].double().tolist()
        best = sorted(range(experts), key=lambda e: (-scores[e], e))[:k]
        pairs += [(expert, token, choice) for choice, expert in enumerate(best)]
        total = sum(math.exp(scores[e]) for e in best)
        wanted = torch.tensor([math.exp(scores[e]) / total for e in best], dtype=torch.float64)
        assert_near(routing.weights[token], wanted, Tolerance(1e-6, 2**-8))
    pairs.sort()
    assert routing.token_of_row.tolist() == [token for _, token, _ in pairs]
    for row, (_, token, choice) in enumerate(pairs):
        assert routing.row_of[token, choice] == row
    counts = [sum(e == expert for e, _, _ in pairs) for expert in range(experts)]
    assert routing.tokens_per_expert.tolist() == counts
    assert routing.first_row.tolist() == [sum(counts[:expert]) for expert in range(experts + 1)]
    rows = (routing.row_of, routing.token_of_row, routing.tokens_per_expert, routing.first_row)
    assert {each.dtype for each in rows} == {torch.int32}


def test_equal_logits_go_to_the_lower_expert():
    logits = torch.zeros(3, 64, dtype=torch.bfloat16)
    logits[1, 63] = 1
    routing = route(logits, 4)
    assert routing.tokens_per_expert.nonzero().flatten().tolist() == [0, 1, 2, 3, 63]
    assert routing.tokens_per_expert[:4].tolist() == [3, 3, 3, 2]


def test_weights_are_rounded_to_the_routers_dtype():
    assert route(random(5, 8, dtype=torch.bfloat16), 4).weights.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "k"), [(1, 1), (1, 4), (11, 3)])
def test_combine(dtype, tokens, k):
    routing = route(random(tokens, 6, seed=3, dtype=dtype), k)
    rows = random(tokens * k, 33, dtype=dtype)
    truth = torch.zeros(tokens, 33, dtype=torch.float64)
    for token in range(tokens):
        for choice in range(k):
            row = rows[routing.row_of[token, choice]].double()
            truth[token] += routing.weights[token, choice].double() * row
    found = combine(rows, routing)
    assert found.dtype == dtype
    assert_near(found, truth, COMBINE_TOLERANCE)
    residual = random(tokens, 33, seed=4, dtype=dtype)
    assert torch.equal(combine(rows, routing, residual), residual + found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 2), (5, 66), (0, 8)])
def test_swiglu(dtype, shape):
    x = random(*shape, dtype=dtype) * 6
    gate, up = x.double().chunk(2, -1)
    gate, up = gate.clamp(max=7), up.clamp(-7, 7)
    truth = gate / (1 + torch.exp(-1.702 * gate)) * (up + 1)
    found = swiglu(x, 7.0)
    assert found.dtype == dtype
    assert_near(found, truth, SWIGLU_TOLERANCE)


def test_swiglu_clamps_the_gate_from_above_alone():
    x = torch.tensor([[100.0, -100.0, 1.0, 2.0, -100.0, 100.0]])
    gate_up = torch.stack((x[0, :3], x[0, 3:])).flatten().view(1, 6)
    found = swiglu(gate_up, 7.0)[0]
    top = 7 / (1 + math.exp(-1.702 * 7))
    one = 1 / (1 + math.exp(-1.702))
    assert found.tolist() == pytest.approx([top * 3, 0.0, one * 8], abs=1e-6)

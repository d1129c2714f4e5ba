"""Tiles of experts: every row and column belongs to exactly one program, however rows fall."""

import itertools

import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from rose.kernels.fused.expert_tiles import Tiling, TilingTable, find_listed_tile, find_tile
from tests.kernels.fused.expert_inputs import list_tiles

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
COLUMNS = 100
BLOCK_N = 64
NOTHING = -1


@triton.jit
def record_tiles(
    counts,
    first_row,
    listed,
    out,
    experts: tl.constexpr,
    padded: tl.constexpr,
    columns: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    group: tl.constexpr,
):
    if listed is None:
        expert, start, rows, column = find_tile(
            counts, first_row, experts, padded, columns, block_m, block_n, group
        )
    else:
        expert, start, rows, column = find_listed_tile(listed, experts, columns, block_n)
    if expert >= experts:
        return
    at = out + tl.program_id(0) * 4
    tl.store(at, expert)
    tl.store(at + 1, start)
    tl.store(at + 2, rows)
    tl.store(at + 3, column)


def wanted_tiles(counts, block_m):
    tiles, first = [], 0
    for expert, count in enumerate(counts):
        for offset in range(0, count, block_m):
            rows = min(count - offset, block_m)
            tiles += [(expert, first + offset, rows, c) for c in range(0, COLUMNS, BLOCK_N)]
        first += count
    return tiles


COUNTS = st.lists(st.one_of(st.just(0), st.integers(0, 70)), min_size=1, max_size=9)


def assert_every_tile_has_one_program(counts, block_m, group, *, listed):
    rows, experts = sum(counts), len(counts)
    tiling = Tiling(block_m, BLOCK_N, group, warps=4, stages=1)
    programs = tiling.programs(rows, experts, COLUMNS)
    assert (programs == 0) == (rows == 0)
    if not rows:
        return
    first_row = torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32, device=DEVICE)
    out = torch.full((programs, 4), NOTHING, dtype=torch.int64, device=DEVICE)
    record_tiles[(programs,)](
        torch.tensor(counts, dtype=torch.int32, device=DEVICE),
        first_row,
        list_tiles(counts).to(DEVICE) if listed else None,
        out,
        experts,
        triton.next_power_of_2(experts),
        COLUMNS,
        block_m,
        BLOCK_N,
        group,
    )
    found = [tuple(tile) for tile in out.tolist() if tile[0] != NOTHING]
    assert sorted(found) == sorted(wanted_tiles(counts, block_m))


@settings(deadline=None, max_examples=25)
@given(counts=COUNTS, block_m=st.sampled_from([8, 16, 32]), group=st.sampled_from([1, 2, 8]))
def test_every_tile_has_one_program(counts, block_m, group):
    assert_every_tile_has_one_program(counts, block_m, group, listed=False)


@settings(deadline=None, max_examples=25)
@given(counts=COUNTS)
def test_every_tile_of_a_list_has_one_program(counts):
    assert_every_tile_has_one_program(counts, block_m=8, group=1, listed=True)


def test_a_table_chooses_by_rows_an_expert():
    small, middle, large = (Tiling(16, 64, 1, 4, n) for n in (1, 2, 3))
    table = TilingTable(((0.5, small), (8, middle)), large)
    assert [table.choose(rows, 4) for rows in (1, 2, 3, 32, 33)] == [
        small,
        small,
        middle,
        middle,
        large,
    ]

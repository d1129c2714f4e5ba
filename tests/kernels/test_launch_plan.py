"""The split of a batch between the fused attention kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rose.kernels.launch_plan import split
from rose.kernels.paged_kv import QUERY_TILE

SEQUENCES = st.lists(st.tuples(st.integers(1, 70), st.integers(0, 200)), max_size=12)


def plan(lens, width=1):
    array = np.array(lens, dtype=np.int64).reshape(-1, 2)
    return split(array[:, 0], array[:, 1], width)


@given(SEQUENCES, st.integers(1, 4))
def test_every_query_is_in_exactly_one_part(lens, width):
    lens = [(queries, queries + before) for queries, before in lens]
    decode, tiles = plan(lens, width)
    covered = [(s, q) for s in decode.tolist() for q in range(width)]
    for sequence, first in tiles.tolist():
        assert lens[sequence][0] != width
        last = min(first + QUERY_TILE, lens[sequence][0])
        assert first < last
        covered += [(sequence, query) for query in range(first, last)]
    assert sorted(covered) == [(s, q) for s, (n, _) in enumerate(lens) for q in range(n)]


@given(SEQUENCES, st.integers(1, 4))
def test_those_that_see_most_keys_come_first(lens, width):
    lens = [(queries, queries + before) for queries, before in lens]
    decode, tiles = plan(lens, width)
    keys = [lens[s][1] for s in decode]
    assert keys == sorted(keys, reverse=True)
    seen = [lens[s][1] - lens[s][0] + min(q + QUERY_TILE, lens[s][0]) for s, q in tiles]
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize("lens", [[], [(1, 5)], [(QUERY_TILE + 1, 40)]])
def test_shapes_and_types_do_not_depend_on_what_is_there(lens):
    decode, tiles = plan(lens)
    assert decode.dtype == tiles.dtype == np.int32
    assert decode.ndim == 1
    assert tiles.shape[1:] == (2,)


def test_a_mixed_batch():
    decode, tiles = plan([(1, 9), (20, 30), (1, 50), (3, 3)])
    assert decode.tolist() == [2, 0]
    assert tiles.tolist() == [[1, 16], [1, 0], [3, 0]]

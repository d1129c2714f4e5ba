import random

import pytest

from rose.config import FULL, SLIDING, CacheConfig
from rose.core.block_manager import BlockManager, BlockTable
from rose.core.block_pool import IntegrityError


def make(block_size=4, num_blocks=(32, 32), window=8, prefix_cache=True):
    return BlockManager(CacheConfig(block_size, num_blocks, window, prefix_cache))


def run_prompt(manager, ids, chunk=None):
    """Admit and compute a prompt; every block is registered that can be."""
    table = BlockTable()
    prefix = manager.find_prefix(table, ids)
    chunk = chunk or len(ids)
    first = min(chunk, len(ids) - prefix)
    assert manager.admit(table, prefix, first, (0, 0)) is not None
    position = prefix + first
    while position < len(ids):
        count = min(chunk, len(ids) - position)
        assert manager.grow(table, ids, position, count) is not None
        position += count
    manager.register(table, ids, len(ids))
    return table


def naive_prefix(manager, table, ids):
    """The definition of a reusable prefix, word for word."""
    size, window = manager.block_size, manager.window
    manager._extend_digests(table, ids, (len(ids) - 1) // size)
    full, sliding = (
        [pool.find(digest) is not None for digest in table.digests] for pool in manager.pools
    )
    for blocks in range((len(ids) - 1) // size, 0, -1):
        tokens = blocks * size
        needed = {p // size for p in range(max(0, tokens - window + 1), tokens)}
        if all(full[:blocks]) and all(sliding[i] for i in needed):
            return tokens
    return 0


def test_prefix_leaves_the_last_token_to_compute():
    manager = make()
    ids = list(range(8))
    manager.free(run_prompt(manager, ids))
    assert manager.find_prefix(BlockTable(), ids) == 4
    assert manager.find_prefix(BlockTable(), [*ids, 9]) == 8
    assert manager.find_prefix(BlockTable(), [*ids[:7], 99, 9]) == 4
    assert manager.find_prefix(BlockTable(), [99, *ids]) == 0


def test_same_ids_behind_another_prefix_do_not_match():
    manager = make()
    manager.free(run_prompt(manager, [0, 1, 2, 3, 4, 5, 6, 7]))
    assert manager.find_prefix(BlockTable(), [4, 5, 6, 7, 8]) == 0
    assert manager.find_prefix(BlockTable(), [9, 1, 2, 3, 4, 5, 6, 7, 8]) == 0


def test_prefix_cache_off_finds_nothing():
    manager = make(prefix_cache=False)
    manager.free(run_prompt(manager, list(range(16))))
    assert manager.find_prefix(BlockTable(), list(range(17))) == 0


@pytest.mark.parametrize(
    ("window", "visible"),
    # Blocks of 4, a prefix of 16 tokens: the query at 16 sees positions 16 - window + 1 to 16.
    [(1, 0), (2, 1), (5, 1), (6, 2), (9, 2), (10, 3), (13, 3), (14, 4), (17, 4), (50, 4)],
)
def test_hybrid_match_needs_exactly_the_sliding_blocks_in_the_window(window, visible):
    ids = list(range(16))
    for lost in range(4):
        manager = make(window=window)
        table = run_prompt(manager, ids, chunk=16)
        digest = table.digests[lost]
        sliding = manager.pools[SLIDING]
        assert sliding.find(digest) is not None
        manager.free(table)
        # Evict by hand the one block.
        block = sliding._block_of.pop(digest)
        sliding._digests[block] = None
        del sliding._cached[block]
        sliding._blank.append(block)
        probe = BlockTable()
        found = manager.find_prefix(probe, [*ids, 99])
        assert found == naive_prefix(manager, BlockTable(), [*ids, 99])
        assert (found == 16) == (lost < 4 - visible)


def test_hybrid_match_needs_every_full_block():
    manager = make(window=2)
    ids = list(range(16))
    table = run_prompt(manager, ids)
    manager.free(table)
    full = manager.pools[FULL]
    block = full._block_of.pop(table.digests[1])
    full._digests[block] = None
    del full._cached[block]
    full._blank.append(block)
    assert manager.find_prefix(BlockTable(), [*ids, 99]) == 4


def test_admission_shares_blocks_and_leaves_placeholders_before_the_window():
    manager = make(window=5)
    ids = list(range(16))
    first = run_prompt(manager, ids, chunk=16)
    table = BlockTable()
    assert manager.find_prefix(table, [*ids, 99]) == 16
    tables = manager.admit(table, 16, 1, (0, 0))
    assert tables is not None
    assert tables[FULL][:4] == tuple(first.groups[FULL])
    assert tables[SLIDING][:3] == (0, 0, 0)
    assert tables[SLIDING][3] == first.groups[SLIDING][3]
    assert manager.pools[FULL].ref_count(tables[FULL][0]) == 2
    manager.check_integrity([first, table])
    manager.free(first)
    manager.check_integrity([table])


def test_admission_that_does_not_fit_changes_nothing():
    manager = make(num_blocks=(4, 4))
    ids = list(range(12))
    manager.free(run_prompt(manager, ids))
    table = BlockTable()
    prefix = manager.find_prefix(table, [*ids, 1, 2])
    assert prefix == 12
    assert manager.admit(table, prefix, 2, (1, 0)) is None
    assert table.groups == ([], [])
    manager.check_integrity([])
    assert manager.find_prefix(table, [*ids, 1, 2]) == 12
    assert manager.admit(table, prefix, 2, (0, 0)) is not None
    manager.check_integrity([table])


@pytest.mark.parametrize(
    ("length", "prefix", "first", "chunk", "wanted"),
    [
        (4, 0, 4, 16, (0, 0)),
        (40, 0, 40, 40, (0, 0)),
        # 8 of 40 tokens run: 8 more blocks; a chunk of 8 never holds more than 5 sliding ones.
        (40, 0, 8, 8, (8, 3)),
        (12, 0, 8, 8, (1, 1)),
        # From position 16 the window begins in block 2: blocks 2 and 3 are shared.
        (40, 16, 8, 8, (4, 1)),
        # The budget cut the first chunk; later ones are larger.
        (40, 0, 2, 16, (9, 6)),
    ],
)
def test_blocks_still_to_come(length, prefix, first, chunk, wanted):
    assert make().still_to_come(length, prefix, first, chunk) == wanted


def test_growth_that_does_not_fit_changes_nothing():
    manager = make(num_blocks=(3, 8))
    table = run_prompt(manager, list(range(12)))
    before = (list(table.groups[FULL]), list(table.groups[SLIDING]), table.num_released)
    assert manager.grow(table, list(range(12)), 12, 1) is None
    assert (table.groups[FULL], table.groups[SLIDING], table.num_released) == before
    manager.check_integrity([table])


def test_sliding_group_holds_no_more_than_the_window_needs():
    manager = make(block_size=4, num_blocks=(64, 4), window=8)
    ids = list(range(200))
    table = BlockTable()
    assert manager.admit(table, 0, 1, (0, 0)) is not None
    for start in range(1, 200):
        if start % 4 == 0:
            assert manager.grow(table, ids, start, 1) is not None
        # The query at `start` sees positions start - 7 to start.
        assert table.num_released <= max(0, start - 7) // 4
        assert len(table.held(SLIDING)) <= 3
        manager.check_integrity([table])


def test_blocks_that_left_the_window_stay_reusable_until_evicted():
    manager = make(block_size=4, num_blocks=(64, 8), window=4)
    ids = list(range(24))
    table = run_prompt(manager, ids, chunk=4)
    assert table.num_released == 4
    assert manager.find_prefix(BlockTable(), [*ids[:8], 99]) == 8
    other = run_prompt(manager, list(range(100, 124)), chunk=4)
    assert manager.find_prefix(BlockTable(), [*ids[:8], 99]) == 0
    assert manager.find_prefix(BlockTable(), [*ids, 99]) == 24
    manager.check_integrity([table, other])


def test_a_freed_prefix_is_evicted_from_its_tail():
    manager = make(num_blocks=(4, 8), window=2)
    ids = list(range(16))
    manager.free(run_prompt(manager, ids))
    lengths = []
    for count in range(1, 5):
        table = BlockTable()
        assert manager.admit(table, 0, 4 * count, (0, 0)) is not None
        manager.free(table)
        lengths.append(manager.find_prefix(BlockTable(), [*ids, 99]))
    assert lengths == [12, 8, 4, 0]


def test_blocks_with_unknown_ids_are_not_registered():
    manager = make()
    table = BlockTable()
    ids = [1, 2, 3, 4, 5, 6, 7]
    assert manager.admit(table, 0, 8, (0, 0)) is not None
    manager.register(table, ids, 8)  # the id at position 7 is pending
    assert table.num_registered == 1
    manager.register(table, [*ids, 8], 7)  # position 7 is not computed
    assert table.num_registered == 1
    manager.register(table, [*ids, 8], 8)
    assert table.num_registered == 2


def test_sharing_what_is_gone_is_an_error():
    manager = make()
    table = BlockTable()
    manager._extend_digests(table, list(range(8)), 2)
    with pytest.raises(IntegrityError, match="no longer in the cache"):
        manager.admit(table, 8, 1, (0, 0))


@pytest.mark.parametrize("seed", range(8))
def test_random_operations(seed):
    rng = random.Random(seed)
    size, window = rng.choice([1, 2, 3, 4, 8]), rng.randint(1, 20)
    manager = make(size, (rng.randint(10, 40), rng.randint(24, 60)), window)
    live: dict[BlockTable, tuple[list[int], int]] = {}
    refused = reused = 0
    for _ in range(2500):
        action = rng.random()
        if action < 0.3:
            stem = [rng.randrange(2)] * rng.randrange(6 * size + 1)
            ids = stem + [rng.randrange(2) for _ in range(rng.randint(1, 3 * size))]
            table = BlockTable()
            prefix = manager.find_prefix(table, ids)
            assert prefix == naive_prefix(manager, BlockTable(), ids)
            count = rng.randint(1, len(ids) - prefix)
            free = [pool.num_free for pool in manager.pools]
            reserve = (rng.randrange(4), rng.randrange(4))
            tables = manager.admit(table, prefix, count, reserve)
            if tables is None:
                refused += 1
                assert free == [pool.num_free for pool in manager.pools]
            else:
                reused += prefix > 0
                live[table] = (ids, prefix + count)
                assert all(p.num_free >= r for p, r in zip(manager.pools, reserve, strict=True))
        elif live and action < 0.85:
            table = rng.choice(list(live))
            ids, start = live[table]
            count = rng.randint(1, 2 * size)
            known = ids + [rng.randrange(2) for _ in range(max(0, start - len(ids)))]
            released = table.num_released
            new = manager.grow(table, known, start, count)
            refused += new is None
            if new is not None:
                first_seen = max(0, start - window + 1) // size
                assert table.num_released == max(released, first_seen)
                live[table] = (known, start + count)
        elif live:
            table = rng.choice(list(live))
            del live[table]
            manager.free(table)
        manager.check_integrity(live)
    assert refused > 20
    assert reused > 20
    for table in live:
        manager.free(table)
    manager.check_integrity([])
    assert manager.num_used() == (0, 0)

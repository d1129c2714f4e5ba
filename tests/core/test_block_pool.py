import pytest

from rose.core.block_pool import BlockPool, IntegrityError


def test_blocks_without_content_go_first_then_the_longest_unused():
    pool = BlockPool(4)
    a, b, c = pool.allocate(3)
    for block, name in ((a, b"a"), (b, b"b"), (c, b"c")):
        pool.register(block, name)
    for block in (b, c, a):
        pool.release(block)
    assert pool.num_free == 4
    assert pool.allocate(3) == [3, b, c]
    assert pool.find(b"b") is None
    assert pool.find(b"c") is None
    assert pool.find(b"a") == a


def test_a_block_found_again_is_no_longer_evictable():
    pool = BlockPool(2)
    a, b = pool.allocate(2)
    pool.register(a, b"a")
    pool.register(b, b"b")
    pool.release(a)
    pool.release(b)
    pool.acquire(a)
    assert pool.num_free == 1
    assert pool.allocate(1) == [b]
    assert pool.ref_count(a) == 1
    pool.check_integrity([1, 1])


def test_shared_block_is_free_after_its_last_release():
    pool = BlockPool(1)
    (a,) = pool.allocate(1)
    pool.register(a, b"a")
    pool.acquire(a)
    pool.release(a)
    assert pool.num_free == 0
    pool.release(a)
    assert pool.num_free == 1
    with pytest.raises(IntegrityError, match="released more often"):
        pool.release(a)


def test_second_block_with_the_same_content_stays_anonymous():
    pool = BlockPool(2)
    a, b = pool.allocate(2)
    pool.register(a, b"same")
    pool.register(b, b"same")
    pool.release(b)
    pool.release(a)
    assert pool.find(b"same") == a
    assert pool.allocate(1) == [b]
    pool.check_integrity([0, 1] if b == 1 else [1, 0])


def test_more_blocks_than_free_is_an_error():
    with pytest.raises(IntegrityError, match="3 blocks asked for; 2 are free"):
        BlockPool(2).allocate(3)


def test_integrity_check_sees_a_leak_and_a_missing_reference():
    pool = BlockPool(2)
    pool.allocate(1)
    with pytest.raises(IntegrityError, match="references"):
        pool.check_integrity([0, 0])
    with pytest.raises(IntegrityError, match="references"):
        pool.check_integrity([2, 0])
    pool.check_integrity([1, 0])

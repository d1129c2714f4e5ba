"""Which KV blocks hold which tokens: block tables, prefix reuse, sliding windows.

Every sequence has a block table in each KV group. Both tables have an entry for every block of
the sequence; in the sliding group, entries that left the window are placeholders: their blocks
were given back, and attention never reads them.

Content is known by a chain of digests, one a full block: each covers the block's ids and the
digest before it, so equal digests mean equal prefixes. Steps run in the order in which they were
enqueued; a block may therefore be shared as soon as the step that fills it is enqueued.
"""

from array import array
from collections.abc import Iterable
from hashlib import blake2b

from rose.config import FULL, SLIDING, CacheConfig
from rose.core.block_pool import BlockPool, IntegrityError

PLACEHOLDER = 0
"""Table entry for a block that left the window; never read, so any valid id would do."""

DIGEST_BYTES = 32


class BlockTable:
    """The blocks of one sequence.

    Attributes:
        groups: block ids by KV group, in the order of positions; equally many in each.
        num_released: in the sliding group, how many leading entries are placeholders.
        digests: of the leading full blocks, as far as anyone asked. They depend on token ids
            alone and survive preemption.
        num_registered: how many leading blocks are registered under their digests.
    """

    __slots__ = ("digests", "groups", "num_registered", "num_released")

    def __init__(self) -> None:
        self.groups: tuple[list[int], list[int]] = ([], [])
        self.num_released = 0
        self.digests: list[bytes] = []
        self.num_registered = 0

    def held(self, group: int) -> list[int]:
        """The entries of one group that are no placeholders."""
        return self.groups[SLIDING][self.num_released :] if group == SLIDING else self.groups[FULL]


class BlockManager:
    """Gives blocks to sequences and takes them back, in both KV groups."""

    def __init__(self, cache: CacheConfig) -> None:
        self._cache = cache
        self.block_size = cache.block_size
        self.window = cache.window
        self.prefix_cache = cache.prefix_cache
        self.pools = (BlockPool(cache.num_blocks[FULL]), BlockPool(cache.num_blocks[SLIDING]))

    def num_used(self) -> tuple[int, ...]:
        """Blocks that sequences use, by group."""
        return tuple(pool.num_blocks - pool.num_free for pool in self.pools)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks `num_tokens` tokens fill, the last perhaps in part."""
        return -(-num_tokens // self.block_size)

    def _first_visible(self, position: int) -> int:
        """Index of the first block that a sliding layer's query at `position` can see."""
        return max(0, position - self.window + 1) // self.block_size

    def find_prefix(self, table: BlockTable, token_ids: list[int]) -> int:
        """The longest prefix whose KV is at hand, in tokens: a multiple of the block size.

        At most len(token_ids) - 1, since the last token must run to yield logits. A prefix of P
        tokens needs every block before P in the full group; in the sliding group only those that
        the next token, at P, can see.
        """
        if not self.prefix_cache:
            return 0
        limit = (len(token_ids) - 1) // self.block_size
        found = self._full_matches(table, token_ids, limit)
        find = self.pools[SLIDING].find
        # A block that is missing in the window of some prefix is in the window of every shorter
        # prefix that still contains it: the next candidate ends before it.
        while found:
            first = self._first_visible(found * self.block_size)
            seen = range(found - 1, first - 1, -1)
            missing = next((i for i in seen if find(table.digests[i]) is None), None)
            if missing is None:
                break
            found = missing
        return found * self.block_size

    def _full_matches(self, table: BlockTable, token_ids: list[int], limit: int) -> int:
        find = self.pools[FULL].find
        for index in range(limit):
            if index == len(table.digests):
                self._extend_digests(table, token_ids, index + 1)
            if find(table.digests[index]) is None:
                return index
        return limit

    def _extend_digests(self, table: BlockTable, token_ids: list[int], num_blocks: int) -> None:
        digests, size = table.digests, self.block_size
        for index in range(len(digests), num_blocks):
            ids = array("Q", token_ids[index * size : (index + 1) * size])
            parent = digests[-1] if digests else b""
            # Not Python's hash(): a client could then craft prompts that pass for another's.
            digests.append(blake2b(parent + ids.tobytes(), digest_size=DIGEST_BYTES).digest())

    def still_to_come(
        self, length: int, prefix: int, num_tokens: int, chunk_size: int
    ) -> tuple[int, int]:
        """Blocks that a sequence will need beyond its first step, until all its tokens ran.

        Args:
            length: all tokens of the sequence.
            prefix: tokens taken from the prefix cache.
            num_tokens: tokens of its first step.
            chunk_size: the most tokens of any later step.

        Returns:
            By group; in the sliding group, what it holds at most less what the first step takes.
        """
        end = self.blocks_for(prefix + num_tokens)
        full = self.blocks_for(length) - end
        held = end - self._first_visible(prefix)
        most = self._cache.windowed_blocks(min(chunk_size, length - prefix))
        return full, min(full, max(0, most - held))

    def admit(
        self, table: BlockTable, prefix: int, num_tokens: int, reserve: tuple[int, int]
    ) -> tuple[tuple[int, ...], ...] | None:
        """Fill an empty table for the first step of a sequence.

        Args:
            table: empty but for digests.
            prefix: what `find_prefix` returned just now, or 0.
            num_tokens: tokens that the step runs from position `prefix`.
            reserve: blocks that must stay free afterwards, by group.

        Returns:
            The whole table of each group, or None if the blocks do not fit (nothing changed).
        """
        num_shared = prefix // self.block_size
        first = (0, self._first_visible(prefix))
        new = self.blocks_for(prefix + num_tokens) - num_shared
        shared: list[list[int]] = []
        for group, pool in enumerate(self.pools):
            blocks = [self._found(pool, d) for d in table.digests[first[group] : num_shared]]
            revived = sum(pool.ref_count(block) == 0 for block in blocks)
            if pool.num_free - revived - new < reserve[group]:
                return None
            shared.append(blocks)
        for group, pool in enumerate(self.pools):
            for block in shared[group]:
                pool.acquire(block)
            placeholders = [PLACEHOLDER] * first[group]
            table.groups[group].extend([*placeholders, *shared[group], *pool.allocate(new)])
        table.num_released = first[SLIDING]
        table.num_registered = num_shared
        return tuple(table.groups[FULL]), tuple(table.groups[SLIDING])

    @staticmethod
    def _found(pool: BlockPool, digest: bytes) -> int:
        block = pool.find(digest)
        if block is None:
            raise IntegrityError("a prefix is to be shared that is no longer in the cache")
        return block

    def grow(
        self, table: BlockTable, token_ids: list[int], start: int, num_tokens: int
    ) -> tuple[tuple[int, ...], ...] | None:
        """Give a sequence the blocks to run `num_tokens` tokens from position `start`.

        Sliding blocks that no query from `start` on can see are given back first; they stay in
        the prefix cache until their memory is needed.

        Args:
            table: covers the positions before `start`, which earlier steps computed.
            token_ids: ids known so far; perhaps not all of those before `start`.
            start: first position of the step.
            num_tokens: tokens of the step.

        Returns:
            New blocks by group, or None if they do not fit (then no block changed hands).
        """
        self.register(table, token_ids, start)
        full, sliding = self.pools
        entries = table.groups[SLIDING]
        needed = self.blocks_for(start + num_tokens) - len(entries)
        first = self._first_visible(start)
        leaving = entries[table.num_released : first]
        freed = sum(sliding.ref_count(block) == 1 for block in leaving)
        if needed > full.num_free or needed > sliding.num_free + freed:
            return None
        for block in leaving:
            sliding.release(block)
        entries[table.num_released : first] = [PLACEHOLDER] * len(leaving)
        table.num_released = max(table.num_released, first)
        new = (full.allocate(needed), sliding.allocate(needed))
        table.groups[FULL].extend(new[FULL])
        entries.extend(new[SLIDING])
        return tuple(new[FULL]), tuple(new[SLIDING])

    def register(self, table: BlockTable, token_ids: list[int], num_computed: int) -> None:
        """Make full blocks findable whose ids are known and whose KV enqueued steps compute."""
        num_blocks = min(len(token_ids), num_computed) // self.block_size
        if not self.prefix_cache or num_blocks <= table.num_registered:
            return
        self._extend_digests(table, token_ids, num_blocks)
        digests, start = table.digests, table.num_registered
        for index in range(start, num_blocks):
            self.pools[FULL].register(table.groups[FULL][index], digests[index])
        for index in range(max(start, table.num_released), num_blocks):
            self.pools[SLIDING].register(table.groups[SLIDING][index], digests[index])
        table.num_registered = num_blocks

    def free(self, table: BlockTable) -> None:
        """Give all blocks back, the last first: so a prefix is evicted from its tail."""
        for group, pool in enumerate(self.pools):
            for block in reversed(table.held(group)):
                pool.release(block)
            table.groups[group].clear()
        table.num_released = 0
        table.num_registered = 0

    def check_integrity(self, tables: Iterable[BlockTable]) -> None:
        """Compare the pools with each other and with the tables of all live sequences.

        Raises:
            IntegrityError: a count, a free list or a digest is wrong.
        """
        uses = [[0] * pool.num_blocks for pool in self.pools]
        for table in tables:
            if len(table.groups[FULL]) != len(table.groups[SLIDING]):
                raise IntegrityError("a sequence's tables differ in length")
            for group, count in enumerate(uses):
                for block in table.held(group):
                    count[block] += 1
        for pool, count in zip(self.pools, uses, strict=True):
            pool.check_integrity(count)

"""The physical blocks of one KV group: reference counts, reuse by content, eviction."""

from collections import OrderedDict
from collections.abc import Sequence


class IntegrityError(AssertionError):
    """The books of the block manager or the scheduler contradict themselves: a bug in Rose."""


class BlockPool:
    """Blocks [0, num_blocks), each free or used by one or more block tables.

    A free block may still hold content that was registered under its digest. Such blocks are
    allocated last, the longest unused first, and lose their content only then.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        self._digests: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._blank = list(range(num_blocks - 1, -1, -1))  # a stack of free blocks without content
        self._cached: OrderedDict[int, None] = OrderedDict()  # free, with content, oldest first

    @property
    def num_free(self) -> int:
        """Blocks that no table uses."""
        return len(self._blank) + len(self._cached)

    def ref_count(self, block: int) -> int:
        """How many tables use a block."""
        return self._ref_counts[block]

    def find(self, digest: bytes) -> int | None:
        """The block that holds this content, used or free; None if there is none."""
        return self._block_of.get(digest)

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one reference.

        Raises:
            IntegrityError: there are fewer; callers check `num_free` first.
        """
        if count > self.num_free:
            raise IntegrityError(f"{count} blocks asked for; {self.num_free} are free")
        return [self._allocate_one() for _ in range(count)]

    def _allocate_one(self) -> int:
        if self._blank:
            block = self._blank.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            digest = self._digests[block]
            if digest is not None:
                del self._block_of[digest]
                self._digests[block] = None
        self._ref_counts[block] = 1
        return block

    def acquire(self, block: int) -> None:
        """Add a reference to a block that `find` returned."""
        if self._ref_counts[block] == 0:
            del self._cached[block]
        self._ref_counts[block] += 1

    def release(self, block: int) -> None:
        """Drop a reference; the last one frees the block, and its content stays findable.

        Raises:
            IntegrityError: the block is free already.
        """
        count = self._ref_counts[block] - 1
        if count < 0:
            raise IntegrityError(f"block {block} was released more often than acquired")
        self._ref_counts[block] = count
        if count == 0:
            if self._digests[block] is None:
                self._blank.append(block)
            else:
                self._cached[block] = None

    def register(self, block: int, digest: bytes) -> None:
        """Make a used block findable; a no-op if another block holds the same content."""
        if digest not in self._block_of and self._digests[block] is None:
            self._block_of[digest] = block
            self._digests[block] = digest

    def check_integrity(self, uses: Sequence[int]) -> None:
        """Compare the books with each other, and reference counts with `uses` of each block.

        Raises:
            IntegrityError: they differ.
        """
        if self._ref_counts != list(uses):
            wrong = [b for b in range(self.num_blocks) if self._ref_counts[b] != uses[b]]
            raise IntegrityError(
                f"blocks {wrong[:8]} have {[self._ref_counts[b] for b in wrong[:8]]} references; "
                f"tables use them {[uses[b] for b in wrong[:8]]} times"
            )
        free = sorted([*self._blank, *self._cached])
        unused = [block for block, count in enumerate(self._ref_counts) if count == 0]
        if free != unused:
            raise IntegrityError(
                f"the free lists hold {free}; the blocks without uses are {unused}"
            )
        hashed = {d: block for block, d in enumerate(self._digests) if d is not None}
        if hashed != self._block_of:
            raise IntegrityError("digests by block and blocks by digest disagree")
        if any(self._digests[block] is not None for block in self._blank):
            raise IntegrityError("a block with content is among those without")
        if any(self._digests[block] is None for block in self._cached):
            raise IntegrityError("a block without content is among those with content")

"""Responses that are kept in memory, within bounds."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rose.server.auth import NOBODY
from rose.server.responses.items import Item, size_of


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How much is kept.

    Attributes:
        max_responses: at most so many.
        max_bytes: of all together, about.
        ttl_s: seconds that a response is kept after it ended.
    """

    max_responses: int = 10_000
    max_bytes: int = 256 * 2**20
    ttl_s: float = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response that has ended.

    Attributes:
        body: the response object, as JSON.
        input_items: all that the model was given, of the responses that it continues too.
        output: what it wrote.
        background: whether it ran in the background.
        owner: whose it is; to others it does not exist.
    """

    body: bytes
    input_items: Sequence[Item]
    output: Sequence[Item]
    background: bool
    owner: str = NOBODY

    def size(self) -> int:
        """About how many bytes it takes, alone: items that others share are counted again."""
        items = sum(map(size_of, self.input_items)) + sum(map(size_of, self.output))
        return len(self.body) + items


class ResponseStore:
    """Keeps responses by id. The oldest go first when there are too many.

    Args:
        limits: how much is kept.
        now: a clock, in seconds.
    """

    def __init__(
        self, limits: StoreLimits | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits or StoreLimits()
        self._now = now
        # (when it was stored, its size, the response), oldest first
        self._kept: OrderedDict[str, tuple[float, int, StoredResponse]] = OrderedDict()
        # what the model wrote, by id, with its owner
        self._items: dict[str, tuple[str, Item]] = {}
        self._bytes = 0

    def put(self, response_id: str, response: StoredResponse) -> None:
        """Keep a response, unless it is too large by itself."""
        self.delete(response_id, response.owner)
        size = response.size()
        self._kept[response_id] = (self._now(), size, response)
        self._bytes += size
        self._items.update({item.id: (response.owner, item) for item in response.output if item.id})
        self._drop_old()

    def get(self, response_id: str, owner: str = NOBODY) -> StoredResponse | None:
        """A response; None: this owner has none of this id, or no longer."""
        self._drop_old()
        entry = self._kept.get(response_id)
        return entry[2] if entry and entry[2].owner == owner else None

    def item(self, item_id: str, owner: str = NOBODY) -> Item | None:
        """An item that the model wrote in a response of this owner that is kept."""
        self._drop_old()
        item_owner, item = self._items.get(item_id, (None, None))
        return item if item_owner == owner else None

    def delete(self, response_id: str, owner: str = NOBODY) -> bool:
        """Forget a response; whether this owner had it."""
        if self.get(response_id, owner) is None:
            return False
        self._forget(self._kept.pop(response_id))
        return True

    def _drop_old(self) -> None:
        limits = self._limits
        while self._kept:
            stored_at, _, _ = next(iter(self._kept.values()))
            fits = len(self._kept) <= limits.max_responses and self._bytes <= limits.max_bytes
            if fits and self._now() - stored_at < limits.ttl_s:
                return
            self._forget(self._kept.popitem(last=False)[1])

    def _forget(self, entry: tuple[float, int, StoredResponse]) -> None:
        _, size, response = entry
        self._bytes -= size
        for item in response.output:
            self._items.pop(item.id or "", None)

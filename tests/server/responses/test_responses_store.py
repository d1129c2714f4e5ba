"""The store's bounds and its time to live."""

from rose.server.responses.items import InputText, MessageItem
from rose.server.responses.store import ResponseStore, StoredResponse, StoreLimits


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def response(text: str = "") -> StoredResponse:
    items = [MessageItem(role="user", content=[InputText(text)])]
    return StoredResponse(body=b"{}", input_items=items, output=[], background=False)


def kept(store: ResponseStore, *names: str) -> list[str]:
    return [name for name in names if store.get(name) is not None]


def test_the_oldest_go_when_there_are_too_many():
    store = ResponseStore(StoreLimits(max_responses=2))
    for name in "abc":
        store.put(name, response())
    assert kept(store, *"abc") == ["b", "c"]


def test_the_oldest_go_when_they_are_too_large_together():
    size = response("x" * 1000).size()
    store = ResponseStore(StoreLimits(max_bytes=2 * size))
    for name in "abc":
        store.put(name, response("x" * 1000))
    assert kept(store, *"abc") == ["b", "c"]
    store.put("d", response("x" * 100_000))
    assert kept(store, *"abcd") == [], "larger than all that the store may hold"
    store.put("e", response("x" * 1000))
    assert kept(store, "e") == ["e"]


def test_each_goes_when_its_time_is_over():
    clock = Clock()
    store = ResponseStore(StoreLimits(ttl_s=10), now=clock)
    store.put("a", response())
    clock.now += 6
    store.put("b", response())
    clock.now += 4
    assert kept(store, "a", "b") == ["b"]
    clock.now += 6
    assert kept(store, "a", "b") == []


def test_deleting_makes_room():
    size = response("x" * 1000).size()
    store = ResponseStore(StoreLimits(max_bytes=2 * size))
    store.put("a", response("x" * 1000))
    store.put("b", response("x" * 1000))
    assert store.delete("b")
    assert not store.delete("b")
    store.put("c", response("x" * 1000))
    assert kept(store, *"abc") == ["a", "c"]


def test_storing_again_replaces():
    store = ResponseStore(StoreLimits(max_responses=2))
    store.put("a", response())
    store.put("b", response())
    store.put("a", response("new"))
    assert store.get("a").input_items[0].content == [InputText("new")]
    assert kept(store, "a", "b") == ["a", "b"]


def test_items_go_with_their_response():
    said = MessageItem(id="msg_1", role="assistant", content="x")
    store = ResponseStore(StoreLimits(max_responses=1))
    store.put("a", StoredResponse(b"{}", [], [said], background=False))
    assert store.item("msg_1") == said
    assert store.item("msg_2") is None
    store.put("b", response())
    assert store.item("msg_1") is None

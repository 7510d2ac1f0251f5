"""One change of a state is encoded once for all who are shown the same, however many they are."""

from types import SimpleNamespace

import cbor2
import pytest

from batonpass.authority.fence import Fence
from batonpass.simserver.players import topics as module
from batonpass.simserver.players.sights import Sights
from batonpass.simserver.players.topics import TopicKey, Topics, TopicWatcher


def encoded_for(watchers: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], list[bytes]]:
    """What is encoded when one entity changes, and the frames that its watchers are told."""
    topics = Topics(Sights(object(), lambda what: None))
    topics.show("alpha.one", "robot", "", Fence(1, 0), 1, {"at": [1, 2]})
    frames: list[bytes] = []

    def tell(frame: bytes) -> bool:
        frames.append(frame)
        return True

    for _ in range(watchers):
        watcher = TopicWatcher(tell)
        topics.begin(topics.watch(TopicKey("pattern", "alpha.*", 1, ""), watcher), watcher, 0)
    topics.tell(1)
    encoded: list[object] = []

    def dumps(value: object) -> bytes:
        encoded.append(value)
        return cbor2.dumps(value)

    frames.clear()
    topics.stepped("alpha.one", 2, {"at": [1, 3]})
    with monkeypatch.context() as patched:
        patched.setattr(module, "cbor2", SimpleNamespace(dumps=dumps))
        topics.tell(2)
    return encoded, frames


def test_a_change_is_encoded_once_for_all_who_watch_it(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, (frame,) = encoded_for(1, monkeypatch)
    together, frames = encoded_for(200, monkeypatch)
    assert together == alone
    assert len(frames) == 200
    # The same bytes, not equal ones.
    assert {id(each) for each in frames} == {id(frames[0])}
    assert frames[0] == frame

"""What waits for one client of a door: nothing is left out to make room, and a client that takes nothing is cut off."""

from collections import deque
from typing import Any

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import given, settings

from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door_connection import MAX_WAITING, DoorConnection, DoorWaiting
from tests.budget import examples


class SlowPeer:
    """A connection whose peer takes as many messages as it is allowed to."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self._kept: deque[bytes] = deque()
        self._allowed = 0
        self._news = trio.Event()

    def allow(self, messages: int) -> None:
        self._allowed += messages
        self._news.set()

    def send_now(self, data: str | bytes) -> bool:
        assert not self._kept, "`flush` comes before the next call"
        assert isinstance(data, bytes)
        if self._allowed:
            self._allowed -= 1
            self.taken.append(data)
            return True
        self._kept.append(data)
        return False

    async def flush(self) -> None:
        while self._kept:
            while not self._allowed:
                self._news = trio.Event()
                await self._news.wait()
            self._allowed -= 1
            self.taken.append(self._kept.popleft())


def connection(peer: SlowPeer) -> DoorConnection:
    return DoorConnection("alpha.ada", peer, lambda message: message, lambda: None)


told = st.tuples(st.just("tell"), st.sampled_from([None, "a", "b"]))
steps = st.lists(
    st.one_of(told, st.tuples(st.just("frame"), st.none()), st.tuples(st.just("allow"), st.integers(1, 3)))
)


@given(steps)
@settings(max_examples=examples(200))
def test_what_is_told_comes_in_order_and_only_the_latest_word_about_one_thing_takes_its_place(
    happened: list[tuple[str, Any]],
) -> None:
    peer, sent, frames = SlowPeer(), [], set()

    async def play() -> None:
        mine = connection(peer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mine.serve)
            for number, (kind, value) in enumerate(happened):
                data = f"{number} {value}".encode()
                if kind == "tell":
                    mine.tell(data, value)
                    sent.append((data, value))
                elif kind == "frame":
                    if mine.tell_frame(data):
                        frames.add(data)
                else:
                    peer.allow(value)
                await trio.testing.wait_all_tasks_blocked()
            peer.allow(1000)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(play)
    got = [data for data in peer.taken if data not in frames]
    # Each that may not be replaced came, and each that was replaced has a later one about the same.
    assert [data for data, about in sent if about is None] == [data for data in got if data.endswith(b"None")]
    for about in ("a", "b"):
        mine = [data for data, value in sent if value == about]
        came = [data for data in got if data.decode().endswith(f" {about}")]
        assert came == sorted(came, key=mine.index)
        assert came[-1:] == mine[-1:]
    assert frames <= set(peer.taken)


@pytest.mark.parametrize("size_bytes", [1, 200_000], ids=["many", "large"])
async def test_a_client_that_takes_nothing_is_cut_off_with_a_reason_and_what_was_told_before_is_not_touched(
    size_bytes: int,
) -> None:
    peer = SlowPeer()
    mine = DoorConnection("alpha.ada", peer, bytes, bounds=DoorWaiting(MAX_WAITING, 1_000_000))
    for _ in range(MAX_WAITING + 2):
        mine.tell(bytes(size_bytes))
    assert not mine.is_ready
    # Once it takes again what had begun, it is told why, and nothing of the rest.
    peer.allow(1)
    with pytest.raises(DoorRefused, match="wait for this client") as refused:
        await mine.serve()
    assert refused.value.code == "too_slow"
    assert len(peer.taken) == 1


async def test_a_frame_is_sent_to_those_only_who_have_taken_the_last_word(
    autojump_clock: trio.testing.MockClock,
) -> None:
    peer, caught_up = SlowPeer(), []
    mine = DoorConnection("", peer, bytes, lambda: caught_up.append(True))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.serve)
        peer.allow(1)
        assert mine.tell_frame(b"1")
        mine.tell(b"2")
        assert not mine.tell_frame(b"3")
        peer.allow(1)
        await trio.testing.wait_all_tasks_blocked()
        assert caught_up == [True]
        peer.allow(1)
        assert mine.tell_frame(b"4")
        nursery.cancel_scope.cancel()
    assert peer.taken == [b"1", b"2", b"4"]

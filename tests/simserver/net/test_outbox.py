"""The outbox: what is alone leaves at once, what is sent together leaves together, and nothing is overtaken."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
import trio.testing

from batonpass.authority.wire import batch as letters
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import KeyAhead, OwnerRequest, Parcel, decode_link_untrusted
from batonpass.crypto import base64url
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.simserver.net import outbox as module
from batonpass.simserver.net.outbox import Outbox
from batonpass.simserver.net.peer_addresses import PeerAddresses
from tests.simserver.ports import TrioClock

HERE, THERE = Sealer.without_log("alpha.s1", Identity.generate()), Sealer.without_log("alpha.s2", Identity.generate())
WHERE = ("127.0.0.1", 7)


class Place:
    """One outbox, what it posts, and a directory that may have to be asked first."""

    def __init__(self) -> None:
        self.posted: list[bytes] = []
        self.counts: Counter[str] = Counter()
        self.at_hand: PublicIdentity | None = THERE.identity.public
        self.looked_up = 0
        self.peer_addresses = PeerAddresses()
        self.peer_addresses.heard_from("alpha.s2", WHERE)
        self.outbox = Outbox(HERE, cast(Any, self), cast(Any, self), TrioClock(), self.counts, self.peer_addresses)

    # As the way home.

    def keys_at_hand(self, name: str) -> PublicIdentity | None:
        return self.at_hand

    async def keys_of(self, name: str) -> PublicIdentity | None:
        await trio.lowlevel.checkpoint()
        self.looked_up += 1
        return THERE.identity.public

    # As the link.

    def post(self, to: str, where: tuple[str, int], data: bytes, *, channel: int = 0) -> None:
        assert (to, where) == ("alpha.s2", WHERE)
        self.posted.append(data)

    # As a user.

    def send(self, *names: str) -> None:
        for name in names:
            assert self.outbox.send(OwnerRequest(entity=f"alpha.{name}"), Trace(name), "alpha.s2", on_path=False)

    def arrived(self) -> list[list[str]]:
        """The parcels, each as the names that were sent in it."""
        parcels = [cast(Parcel, decode_link_untrusted(data)) for data in self.posted]
        now_s = TrioClock().unix_s()
        opened = [
            THERE.open_all_untrusted(parcel, sender=HERE.identity.public, now_ns=1, now_s=now_s) for parcel in parcels
        ]
        return [[one.trace.transfer_id for one in parcel] for parcel in opened]


@asynccontextmanager
async def serving() -> AsyncIterator[Place]:
    place = Place()
    async with trio.open_nursery() as nursery:
        await nursery.start(place.outbox.serve)
        yield place
        nursery.cancel_scope.cancel()


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_what_is_alone_leaves_at_once_and_what_comes_with_it_in_one_parcel_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as place:
        place.send("a", "b", "c")
        assert place.arrived() == [["a"]]
        await settle()
        assert place.arrived() == [["a"], ["b", "c"]]
        assert place.counts == {}


async def test_where_more_is_known_to_come_the_first_leaves_with_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as place:
        for name in "ab":
            message = OwnerRequest(entity=f"alpha.{name}")
            assert place.outbox.send(message, Trace(name), "alpha.s2", on_path=False, hurry=False)
        assert place.posted == []
        await settle()
        assert place.arrived() == [["a", "b"]]


async def test_after_a_while_of_silence_somebody_is_alone_again(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as place:
        for name in "abc":
            place.send(name)
            await settle()
            await trio.sleep(2 * module._QUIET_NS / 1e9)
        assert place.arrived() == [["a"], ["b"], ["c"]]


async def test_nobody_overtakes_what_waits_for_keys(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as place:
        place.at_hand = None
        place.send("a")
        place.at_hand = THERE.identity.public
        place.send("b")
        assert place.posted == []
        await settle()
        assert place.arrived() == [["a", "b"]]
        assert place.looked_up == 1


async def test_what_cannot_be_sealed_at_once_is_counted_and_harms_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as place:
        trace = Trace("a").leave("alpha.s1", "owner_request", 1)
        # Its last hop has not arrived, so it cannot leave for another one.
        assert place.outbox.send(OwnerRequest(entity="alpha.a"), trace, "alpha.s2", on_path=True)
        assert (place.posted, place.counts) == ([], {"internal_error": 1})
        place.send("b")
        await settle()
        assert place.arrived() == [["b"]]


def is_ready() -> bool:
    return bool(HERE._ready)


async def test_the_key_of_the_next_message_is_made_when_there_was_time_to_answer_this_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as place:
        HERE.change_identity(HERE.identity)
        place.send("a", "b")
        await settle()
        assert not is_ready()
        await trio.sleep(2 * module._READY_AFTER_S)
        assert is_ready()
        place.send("c")
        assert not is_ready()
        await trio.sleep(2 * module._READY_AFTER_S)
        assert is_ready()


async def test_no_key_is_made_for_whom_none_is_known_any_more(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as place:
        HERE.change_identity(HERE.identity)
        place.send("a")
        place.at_hand = None
        await trio.sleep(2 * module._READY_AFTER_S)
        assert not is_ready()
        place.at_hand = THERE.identity.public
        place.send("b")
        await trio.sleep(2 * module._READY_AFTER_S)
        assert is_ready()


async def test_served_again_an_outbox_gets_ready_as_before(autojump_clock: trio.testing.MockClock) -> None:
    HERE.change_identity(HERE.identity)
    async with serving() as place:
        place.send("a")
    async with trio.open_nursery() as nursery:
        await nursery.start(place.outbox.serve)
        place.send("b")
        await trio.sleep(2 * module._READY_AFTER_S)
        assert is_ready()
        nursery.cancel_scope.cancel()


async def test_an_outbox_that_is_not_served_sends_nothing() -> None:
    place = Place()
    assert not place.outbox.send(OwnerRequest(entity="alpha.a"), Trace("a"), "alpha.s2", on_path=False)
    assert (place.posted, place.counts) == ([], {"unsent_no_courier": 1})


async def test_who_agrees_ahead_is_told_of_the_next_key_when_it_is_made(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    HERE.change_identity(HERE.identity)
    async with serving() as place:
        place.send("a")
        await trio.sleep(2 * module._READY_AFTER_S)
        assert len(place.posted) == 1
        monkeypatch.setattr(HERE, "agrees_ahead", lambda _: True)
        place.send("b")
        await trio.sleep(2 * module._READY_AFTER_S)
        told = decode_link_untrusted(place.posted[-1])
        assert isinstance(told, KeyAhead)
        place.send("c")
        parcel = decode_link_untrusted(place.posted[-1])
        assert isinstance(parcel, Parcel)
        assert told.header in base64url.decode_untrusted(parcel.sealed.split(".")[1].encode())


async def test_what_waits_while_nobody_says_where_to_send_it_is_bounded(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "MAX_WAITING", 3)
    async with serving() as place:
        place.at_hand = None
        place.send("a", "b", "c")
        request = OwnerRequest(entity="alpha.d")
        assert not place.outbox.send(request, Trace("d"), "alpha.s2", on_path=False)
        assert place.counts["unsent_too_many"] == 1
        await trio.sleep(1)
        assert place.arrived() == [["a", "b", "c"]]
        place.send("e")

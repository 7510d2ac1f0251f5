"""Snapshots that a client offers to its stream: when, how often, and of which ticks."""

from typing import Any

import pytest

from batonpass.simserver.sync.lockstep.follower import SyncPurpose
from batonpass.simserver.sync.lockstep.offline import OfflineStream
from batonpass.simserver.sync.lockstep.schedule import Connection
from tests.simserver.sync.lockstep.test_follower import asked, caught_up, follower_of, synced


def test_a_client_that_can_sign_offers_snapshots_until_they_are_taken_or_too_old() -> None:
    signed = []

    def sign(text: bytes) -> tuple[bytes, bytes]:
        signed.append(text)
        return b"key", b"signature"

    stream, follower = OfflineStream("one"), follower_of(sign=sign, offer_every=40)
    synced(stream, follower)
    offered = []
    for _ in range(150):
        stream.advance(1)
        request = follower.next_request()
        if request.ask is SyncPurpose.SYNC:
            follower.take_answer(request, asked(stream, request))
        elif len(signed) < 3:
            follower.take_refusal(request, 409, 0)
        else:
            follower.take_answer(request, {})
        if request.ask is SyncPurpose.PUT_SNAPSHOT:
            offered.append((follower.driver.tick, request.path))
        caught_up(follower)
    # A second later, and two after that; the next one is of the tick that is due then.
    assert [path.rpartition("/")[2] for _, path in offered] == ["40", "40", "40", "120"]
    ticks = [tick for tick, _ in offered]
    assert 20 <= ticks[1] - ticks[0] <= 23
    assert 40 <= ticks[2] - ticks[1] <= 43
    record = follower.driver.record(40)
    assert record is not None
    assert signed[0] == f"batonpass snapshot\n{stream.incarnation}\n40\n{record.hash}".encode()
    assert follower.connection is Connection.HEARD


def test_an_offer_is_dropped_when_a_later_snapshot_is_trusted_and_after_ten_tries() -> None:
    for trusts in (True, False):
        stream, follower = OfflineStream("one"), follower_of(sign=lambda _: (b"", b""), offer_every=1_200)
        stream.advance(1_200)
        synced(stream, follower)
        caught_up(follower)
        puts = 0
        for _ in range(1_100):
            stream.advance(1)
            request = follower.next_request()
            if request.ask is SyncPurpose.SYNC:
                more = {"Snapshot": 1_210} if trusts and puts == 3 else {}
                follower.take_answer(request, {**asked(stream, request), **more})
            else:
                puts += 1
                follower.take_refusal(request, 409, 0)
            caught_up(follower)
        assert puts == (3 if trusts else 10)


def test_none_are_offered_where_that_is_never_to_be_done() -> None:
    stream, follower = OfflineStream("one"), follower_of(sign=lambda _: (b"", b""), offer_every=0)
    synced(stream, follower)
    for _ in range(50):
        stream.advance(4)
        request = follower.next_request()
        assert request.ask is SyncPurpose.SYNC
        follower.take_answer(request, asked(stream, request))
        while follower.behind:
            follower.run(1000)
    assert follower.driver.tick > 100


@pytest.mark.parametrize("settings", [{"offer_every": -20}, {"tolerance": -1}, {"jump_after": -1}])
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="-"):
        follower_of(**settings)


def test_snapshots_are_offered_of_checkpoints_only() -> None:
    with pytest.raises(ValueError, match="offer_every is 30: give a multiple of 20"):
        follower_of(offer_every=30)

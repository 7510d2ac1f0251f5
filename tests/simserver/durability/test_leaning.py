"""Copies whose backup replica is drained: they go elsewhere, and until then their entity leans on that server."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.machines.replica_choice import backup_replicas_of, may_follow
from tests.simserver.durability.test_replication import (
    FOLLOWER,
    HERE,
    INTERVAL_S,
    Place,
    kept,
    served,
)


@pytest.fixture
def place(system: System) -> Place:
    return Place(system)


async def test_copies_go_elsewhere_when_their_follower_is_drained_and_it_is_known_until_they_are_kept_there(
    place: Place, autojump_clock: MockClock
) -> None:
    place.lease.peers = servers = (HERE, FOLLOWER, "alpha.s3")
    holding = place.spawn()
    (first,) = backup_replicas_of(holding.id, HERE, servers, 1)
    (other,) = {FOLLOWER, "alpha.s3"} - {first}
    replication = place.replication()
    async with served(replication):
        await trio.sleep(INTERVAL_S)
        replication.kept(kept(holding, place.copied[-1].tick), first)
        assert replication.leaning() == 0
        place.lease.aside = frozenset({first})
        assert replication.leaning() == 1, "from the moment at which it is known, though its turn has not come"
        place.posted.clear()
        await trio.sleep(INTERVAL_S)
        assert {to for to, _ in place.posted} == {other}, "though nothing has changed"
        assert replication.leaning() == 1
        replication.kept(kept(holding, place.copied[-1].tick), other)
        assert replication.leaning() == 0
        place.lease.aside = frozenset({other})
        assert replication.leaning() == 1
        place.lease.aside = frozenset()
        assert replication.leaning() == 0


async def test_a_copy_of_which_a_drained_follower_may_still_say_that_it_keeps_it_is_leaned_on(
    place: Place, autojump_clock: MockClock
) -> None:
    """Players are told then that their inputs are durable, by that copy alone."""
    place.lease.peers = servers = (HERE, FOLLOWER, "alpha.s3")
    holding = place.spawn()
    (first,) = backup_replicas_of(holding.id, HERE, servers, 1)
    replication = place.replication()
    async with served(replication):
        await trio.sleep(INTERVAL_S / 5)
        (sent,) = place.copied
        place.lease.aside = frozenset({first})
        assert replication.leaning() == 1
        replication.kept(kept(holding, sent.tick), first)
        assert replication.leaning() == 1


async def test_a_copy_that_is_too_old_to_be_heard_of_is_not_leaned_on(place: Place, autojump_clock: MockClock) -> None:
    """Its follower may be dead; a drain need not wait for what it says."""
    place.lease.peers = servers = (HERE, FOLLOWER, "alpha.s3")
    holding = place.spawn()
    (first,) = backup_replicas_of(holding.id, HERE, servers, 1)
    replication = place.replication()
    async with served(replication):
        await trio.sleep(INTERVAL_S / 5)
    place.lease.aside = frozenset({first})
    assert replication.leaning() == 1
    await trio.sleep(place.lease.holder.terms.certain_ns / 1e9 + 1)
    assert replication.leaning() == 0


async def test_who_follows_all_the_same_since_nobody_else_could_is_not_leaned_on(
    place: Place, autojump_clock: MockClock
) -> None:
    holding = place.spawn()
    replication = place.replication()
    async with served(replication):
        await trio.sleep(INTERVAL_S)
        replication.kept(kept(holding, place.copied[-1].tick), FOLLOWER)
        place.lease.aside = frozenset({FOLLOWER})
        assert replication.leaning() == 0
        place.lease.peers = (HERE, FOLLOWER, "alpha.s3")
        place.lease.aside = frozenset({FOLLOWER, "alpha.s3"})
        await trio.sleep(INTERVAL_S)
        last = place.copied[-1]
        replication.kept(kept(holding, last.tick), *backup_replicas_of(holding.id, HERE, place.lease.peers, 1))
        assert replication.leaning() == 0


@given(
    peers=st.lists(st.sampled_from([HERE, FOLLOWER, "alpha.s3"]), unique=True),
    aside=st.sets(st.sampled_from([HERE, FOLLOWER, "alpha.s3"])),
)
def test_nobody_that_is_drained_follows_if_anybody_else_can(peers: list[str], aside: set[str]) -> None:
    found = may_follow(HERE, peers, aside)
    others = [peer for peer in peers if peer != HERE]
    assert set(found) <= set(peers)
    assert bool(set(found) - {HERE}) == bool(others), "each server that can have a follower has one"
    if set(others) - aside:
        assert not aside & set(found)

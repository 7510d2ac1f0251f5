"""Checkpoints of what lives here: each entity has one in its server's own store within the interval."""

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.simserver.world.api import World
from tests.simserver.durability.test_replication import FOLLOWER, HERE, INTERVAL_S, Place, place, served
from tests.simserver.entity.test_sleep import Naps
from tests.simserver.stage import ADA, BALL

__all__ = ["place"]

CHECKPOINT_S = 4.97


def one_round(place: Place) -> None:
    """A tick that changes nothing, of who is awake."""
    place.stage.environment.rounds.count += 1
    for holding in place.holdings:
        if holding.life.sleep is None and not holding.life.frozen:
            holding.life.commit(holding.life.world, now_ns=1)


@pytest.mark.parametrize("world", [None, Naps()])
@pytest.mark.parametrize("trouble", ["none", "no followers", "no lease", "is frozen for a hand-over"])
async def test_whose_stay_has_begun_has_a_checkpoint_within_the_interval_also_if_nothing_changes(
    system: System, autojump_clock: MockClock, world: World | None, trouble: str
) -> None:
    """Else it is lost in a power cut of all servers, though each comes back with its disk."""
    place = Place(system, world)
    if trouble == "no followers":
        place.lease.peers = (HERE,)
    if trouble == "no lease":
        place.lease.may_act = lambda now_ns: False
    replication = place.replication(interval_s=0.5, checkpoint_s=CHECKPOINT_S)
    async with served(replication):
        for number in range(8):
            await trio.sleep(0.13)
            place.spawn(f"alpha.ball-{number}")
            one_round(place)
        if trouble == "is frozen for a hand-over":
            for holding in place.holdings:
                holding.life.freeze()
        await trio.sleep(CHECKPOINT_S - 8 * 0.13 - 0.1)
        if trouble in ("none", "no lease"):
            assert place.checkpoints == [], "the disk is left alone in the midst of hand-overs"
        await trio.sleep(8 * 0.13 + 0.1)
        assert {entity for entity, _ in place.checkpoints} == {f"alpha.ball-{number}" for number in range(8)}


async def test_who_came_back_under_a_higher_fence_has_a_checkpoint_under_that_within_the_interval(
    place: Place, autojump_clock: MockClock
) -> None:
    async with served(place.replication(interval_s=0.5, checkpoint_s=CHECKPOINT_S)):
        holding = place.spawn()
        await trio.sleep(CHECKPOINT_S + 0.3)
        assert place.checkpoint_fences == [Fence(1)]
        holding.life.freeze()
        holding.resume(Fence(5))
        await trio.sleep(CHECKPOINT_S)
        assert place.checkpoint_fences == [Fence(1), Fence(5)]


async def test_what_changes_has_a_checkpoint_within_the_interval_after_the_change(
    place: Place, autojump_clock: MockClock
) -> None:
    async with served(place.replication(interval_s=0.5, checkpoint_s=CHECKPOINT_S)):
        holding = place.spawn()
        await trio.sleep(CHECKPOINT_S + 0.2)
        for number in range(1, 5):
            holding.life.take_input(ADA, 1, number, b"\0" * 12)
            holding.life.commit(holding.life.world, now_ns=1)
            changed = holding.life.tick
            await trio.sleep(CHECKPOINT_S)
            assert place.checkpoints[-1][1] == changed
        count = len(place.checkpoints)
        await trio.sleep(3 * CHECKPOINT_S)
        assert len(place.checkpoints) <= count + 3, "what does not change is written no more often than it is copied"


async def test_who_has_left_is_owed_none_and_what_the_store_refuses_is_given_to_it_again(
    place: Place, autojump_clock: MockClock
) -> None:
    place.has_room = False
    async with served(place.replication(interval_s=0.5, checkpoint_s=CHECKPOINT_S)):
        place.spawn()
        place.spawn("alpha.gone")
        await trio.sleep(1.0)
        place.holdings.leave("alpha.gone", FOLLOWER, Fence(2))
        await trio.sleep(2.5 * CHECKPOINT_S - 1.0)
    assert [entity for entity, _ in place.checkpoints] == [BALL, BALL]
    assert place.counts["checkpoint_too_large"] == 2


async def test_what_was_handed_over_is_kept_where_copies_are_sent_and_nowhere_else(place: Place) -> None:
    frozen = place.spawn().life.freeze()
    assert frozen is not None
    for interval_s, is_kept in ((INTERVAL_S, True), (0.0, False)):
        replication = place.replication(interval_s=interval_s)
        replication.left(BALL, frozen)
        assert (replication.handed_over.of(BALL) is not None) is is_kept


async def test_what_begins_with_nobody_who_handed_it_over_is_written_down_at_once(
    place: Place, autojump_clock: MockClock
) -> None:
    """What came from another server is on that one's disk until its own checkpoint is due."""
    replication = place.replication(interval_s=1.0, checkpoint_s=60.0)
    place.spawn("alpha.came")
    place.spawn("alpha.born")
    replication.first_of("alpha.born")
    place.spawn("alpha.gone-on-with")
    replication.resumed("alpha.gone-on-with", 0)
    async with served(replication):
        await trio.sleep(0.15)
        assert {entity for entity, _ in place.checkpoints} == {"alpha.born", "alpha.gone-on-with"}
        await trio.sleep(60.0)
        assert "alpha.came" in {entity for entity, _ in place.checkpoints}

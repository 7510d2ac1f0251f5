"""Late inputs: forwarded towards who has the entity now, never back, and not for ever; and what was deleted ends."""

from collections import Counter
from typing import Any

import pytest

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.machines.target import AnswerAgain, Permission
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import (
    Despawn,
    Despawned,
    ForwardInputs,
    InputItem,
    Message,
    NotHere,
    Spawn,
    Spawned,
)
from batonpass.simserver.entity.table import Holdings, Tombstone
from batonpass.simserver.failover.spawn import EntitySpawns
from batonpass.simserver.transfer.target.arrivals import MAX_FORWARDS, Arrivals
from batonpass.simserver.transfer.target.offers import Context
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import held_lease, ports_of
from tests.simserver.stage import ADA, BALL, Stage
from tests.simserver.transfer.source.test_departures import HERE, IDENTITY, THERE

pytestmark = pytest.mark.usefixtures("either_kind")

HOME = "alpha.h1"


class Here:
    """The arrivals of one server, and what they send."""

    def __init__(self, system: System) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.told: list[tuple[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self.holdings = Holdings(Stage(system).environment, Written())
        me: Any = self
        nothing: Any = None
        ports, lease = ports_of(Sealer.without_log(HERE, IDENTITY), outbox=me, counts=self.counts), held_lease()
        self.arrivals = Arrivals(ports, lease, self.holdings, nothing, nothing, nothing)
        self.leaving: set[str] = set()
        self.is_crowded = False
        self.lease = lease
        self.births = EntitySpawns(
            ports, lease, self.holdings, me, me, self.arrivals.fence_raised, creation_barrier=None
        )

    def is_leaving(self, entity: str) -> bool:
        return entity in self.leaving

    def is_full(self) -> bool:
        return self.is_crowded

    def spawn(self, epoch: int, entity: str = BALL) -> str:
        """What is said of a spawn: why not, or nothing."""
        message = Spawn(entity=entity, kind="ball", epoch=epoch, owner=ADA, owner_rev=1, params={})
        self.sent.clear()
        self.births.spawn(message, OpenedMessage(message, HOME, Trace("spawn")))
        ((to, answer),) = self.sent
        assert isinstance(answer, Spawned)
        assert (to, answer.entity, answer.epoch) == (HOME, entity, epoch)
        return answer.reason

    def despawn(self, epoch: int) -> list[tuple[str, Message]]:
        message = Despawn(entity=BALL, epoch=epoch)
        self.sent.clear()
        self.births.despawn(message, OpenedMessage(message, HOME, Trace("despawn")))
        return list(self.sent)

    def send(self, message: Message, trace: Trace, to: str, **_: Any) -> bool:
        self.sent.append((to, message))
        return True

    def tell_player(self, player: str, message: Any) -> None:
        self.told.append((player, message))

    async def forwarded(self, epoch: int, forwards: int) -> list[tuple[str, Message]]:
        item = InputItem(source=ADA, owner_rev=1, seq=1, data=b"")
        message = ForwardInputs(
            transfer_id="transfer-1", entity=BALL, epoch=epoch, sub=0, inputs=[item], forwards=forwards
        )
        self.sent.clear()
        await self.arrivals.forwarded(message, OpenedMessage(message, THERE, Trace("transfer-1")))
        return list(self.sent)


@pytest.fixture
def here(system: System) -> Here:
    return Here(system)


async def test_failures_row_31_inputs_are_forwarded_only_towards_a_higher_fence_and_four_times(here: Here) -> None:
    here.holdings.remember(BALL, Tombstone(THERE, Fence(5)))
    for forwards in range(1, MAX_FORWARDS):
        ((to, onward),) = await here.forwarded(4, forwards)
        assert isinstance(onward, ForwardInputs)
        assert (to, onward.fence, onward.forwards) == (THERE, Fence(5), forwards + 1)
    assert await here.forwarded(4, MAX_FORWARDS) == []
    assert await here.forwarded(5, 1) == [], "who sends it knows as much"
    assert await here.forwarded(6, 1) == [], "or more"
    assert here.counts["forward_dropped"] == 3


async def test_inputs_for_what_was_never_here_are_dropped(here: Here) -> None:
    assert await here.forwarded(4, 1) == []
    assert here.counts["forward_dropped"] == 1


async def test_failures_row_36_what_was_deleted_ends_and_its_sources_are_told(here: Here) -> None:
    holding = here.holdings.spawn(BALL, "ball", {}, Fence(3), Ownership(ADA, 1))
    holding.life.take_input(ADA, 1, 1, b"")
    here.despawn(3)
    assert not holding.life.over, "of an earlier life"
    ended = [(HOME, Despawned(entity=BALL, epoch=4))]
    assert here.despawn(4) == ended
    assert (holding.life.over, here.holdings.get(BALL)) == (True, None)
    ((player, notice),) = here.told
    assert (player, notice) == (ADA, NotHere(entity=BALL, epoch=4))
    assert here.despawn(4) == ended, "whoever asks again is told again"


async def test_what_is_on_its_way_out_has_not_ended_yet(here: Here) -> None:
    holding = here.holdings.spawn(BALL, "ball", {}, Fence(3), Ownership(ADA, 1))
    here.leaving.add(BALL)
    assert here.despawn(4) == []
    assert not holding.life.over
    here.leaving.clear()
    assert here.despawn(4) != []
    assert holding.life.over


async def test_what_was_deleted_before_it_came_never_comes(here: Here) -> None:
    """The word of its end overtakes that of its beginning."""
    assert here.despawn(2) == [(HOME, Despawned(entity=BALL, epoch=2))]
    assert here.spawn(1) == "it has ended"
    assert here.holdings.get(BALL) is None
    permission = Permission("transfer-1", Fence(1, 1), "hash", THERE)
    assert here.arrivals._machine(BALL).permitted(permission) == AnswerAgain(permission)


async def test_what_was_refused_once_is_refused_again_until_its_name_is_given_anew(here: Here) -> None:
    """Whoever heard of it first takes the entity back; another one who asks must not hear that it lives."""
    here.is_crowded = True
    assert here.spawn(1) != ""
    here.is_crowded = False
    assert here.spawn(1) != ""
    assert here.spawn(2) == ""
    assert (holding := here.holdings.get(BALL)) is not None
    assert holding.fence == Fence(2)
    assert here.spawn(2) == "", "repeated, it is there once"


async def test_so_many_refusals_are_remembered(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here.births._refused, "max_entries", 1)
    here.is_crowded = True
    here.spawn(1)
    here.spawn(1, "alpha.other")
    here.is_crowded = False
    assert here.spawn(1, "alpha.other") != ""
    assert here.spawn(1) == ""


@pytest.mark.parametrize("moved_to", [THERE, ""])
async def test_what_is_known_of_an_earlier_entity_of_the_name_keeps_no_later_one_from_beginning(
    here: Here, moved_to: str
) -> None:
    here.holdings.remember(BALL, Tombstone(moved_to, Fence(5)))
    here.spawn(5)
    assert here.holdings.get(BALL) is None, "it was here, and has gone"
    assert here.spawn(6) == ""
    assert (holding := here.holdings.get(BALL)) is not None
    assert holding.fence == Fence(6)


async def test_what_lived_here_before_a_restart_begins_anew_above_its_fence_alone(here: Here) -> None:
    here.holdings.remember_lived(BALL, Fence(3, 2))
    assert here.spawn(3) == ""
    assert here.holdings.get(BALL) is None, "its home gives it back with what is left of it"
    assert here.spawn(4) == ""
    assert here.holdings.get(BALL) is not None


async def test_an_earlier_entity_of_the_name_ends_when_a_later_one_begins_here(here: Here) -> None:
    earlier = here.holdings.spawn(BALL, "ball", {}, Fence(3), Ownership(ADA, 1))
    here.leaving.add(BALL)
    assert (here.spawn(5) == "", earlier.life.over) == (False, False)
    here.leaving.clear()
    assert (here.spawn(6) == "", earlier.life.over) == (True, True)
    assert (later := here.holdings.get(BALL)) is not None
    assert later.fence == Fence(6)


async def test_what_was_given_to_another_life_of_this_server_does_not_begin_in_this_one(here: Here) -> None:
    here.lease.incarnation = 7
    told = {"entity": BALL, "kind": "ball", "epoch": 1, "owner": ADA, "owner_rev": 1, "params": {}}
    for other in (6, 8):
        message = Spawn.model_validate(told | {"incarnation": other})
        here.births.spawn(message, OpenedMessage(message, HOME, Trace("spawn")))
    assert here.sent == [], "its home asks this life, too, if it means it"
    assert here.holdings.get(BALL) is None
    assert here.counts["leave_of_another_life"] == 2
    message = Spawn.model_validate(told | {"incarnation": 7})
    here.births.spawn(message, OpenedMessage(message, HOME, Trace("spawn")))
    assert here.holdings.get(BALL) is not None


async def test_home_is_told_at_once_that_what_was_passed_by_will_never_begin_here(here: Here) -> None:
    """Else it waits for a state that is of no use any more."""
    permission, context = Permission("transfer-1", Fence(4), "hash", THERE), Context(Trace("transfer-1"), False, [])
    here.arrivals.fence_raised(BALL, Fence(4))
    here.arrivals._answer_again(BALL, permission, context)
    assert list(here.arrivals.unsettled.wanting()) == [], "under the highest fence it may begin still"
    assert here.counts["not_active_yet"] == 1
    here.arrivals.fence_raised(BALL, Fence(5))
    here.arrivals._answer_again(BALL, permission, context)
    assert list(here.arrivals.unsettled.wanting()) == [(BALL, permission, True)]
    assert here.sent == [], "its source does not hear that it may retire"

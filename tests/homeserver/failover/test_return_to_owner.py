"""What waited for its server, and was gone on with elsewhere, is handed back: seldom, and only while it is so."""

from dataclasses import dataclass
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.model.records import Phase, RecoveryRow
from batonpass.authority.model.standing import LeasePhase, OrphanPolicy
from batonpass.authority.wire.placement import MAX_MOVES, Moves
from batonpass.homeserver.failover.return_to_owner import FIRST_WAIT_NS, MAX_HOMEWARD, TIMES, ReturnToOwner

BALL, S1, S2, ABROAD = "alpha.ball", "alpha.s1", "alpha.s2", "beta.s1"
ROW = RecoveryRow(entity=BALL, last=S1, epoch=2, held=True, target=S2)


@dataclass(frozen=True)
class Entity:
    authority: str = S2
    epoch: int = 2
    orphans: OrphanPolicy = OrphanPolicy.FREEZE


@dataclass(frozen=True)
class Refused:
    epoch: int
    phase: Phase = Phase.REFUSED


@dataclass
class Lease:
    phase: LeasePhase = LeasePhase.ALIVE


class World:
    """A store, a clock and a post."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.record: Entity | None = Entity()
        self.lease_of_s1: Lease | None = Lease()
        self.is_drained = False
        self.transfers: dict[str, Any] = {}
        self.messages = 0
        self.said: list[tuple[int, str, str, str]] = []
        self.return_to_owner = ReturnToOwner(cast(Any, self), self.tell, cast(Any, self))

    def monotonic_ns(self) -> int:
        return self.now_ns

    def entity(self, _: str) -> Entity | None:
        return self.record

    def lease(self, server: str) -> Lease | None:
        assert server == S1
        return self.lease_of_s1

    def transfer(self, transfer_id: str) -> Any:
        return self.transfers.get(transfer_id)

    def drain(self, _: str) -> object | None:
        return object() if self.is_drained else None

    async def tell(self, message: Moves, server: str) -> None:
        assert server == S2
        self.messages += 1
        for move in message.moves:
            self.said.append((self.now_ns, server, move.target, move.transfer_id))

    def look_until(self, end_s: int) -> None:
        for now_s in range(self.now_ns // 10**9, end_s):
            self.now_ns = now_s * 10**9
            trio.run(self.return_to_owner.look)


def test_whoever_goes_on_with_it_is_told_at_once_and_then_ever_more_seldom() -> None:
    world = World()
    world.return_to_owner.adopted(ROW)
    world.look_until(300)
    first_s = FIRST_WAIT_NS // 10**9
    assert [at_ns // 10**9 for at_ns, *_ in world.said] == [first_s * (2**n - 1) for n in range(TIMES)]
    assert {target for _, _, target, _ in world.said} == {S1}
    assert len({transfer_id for *_, transfer_id in world.said}) == TIMES, "what is refused once stays refused"
    assert len(world.return_to_owner) == 0


@pytest.mark.parametrize(
    "row",
    [
        ROW.model_copy(update={"held": False}),
        ROW.model_copy(update={"target": S1}),
        ROW.model_copy(update={"target": ABROAD}),
        ROW.model_copy(update={"last": ABROAD}),
        ROW.model_copy(update={"entity": "beta.ball"}),
    ],
)
def test_what_belongs_nowhere_else_or_is_another_instances_is_left_where_it_is(row: RecoveryRow) -> None:
    world = World()
    world.return_to_owner.adopted(row)
    world.look_until(10)
    assert world.said == []


@pytest.mark.parametrize(
    "record",
    [None, Entity(authority=S1, epoch=3), Entity(epoch=3), Entity(orphans=OrphanPolicy.ADOPT)],
)
def test_once_it_has_moved_or_is_to_go_on_anywhere_nobody_is_told_again(record: Entity | None) -> None:
    world = World()
    world.return_to_owner.adopted(ROW)
    world.look_until(1)
    world.record = record
    world.look_until(100)
    assert len(world.said) == 1
    assert len(world.return_to_owner) == 0


def test_a_refusal_of_its_way_back_raises_the_fence_and_it_is_told_again() -> None:
    """`target_down`, when the server that has just come back is gone again, is one of them."""
    world = World()
    world.return_to_owner.adopted(ROW)
    world.look_until(1)
    (*_, transfer_id) = world.said[0]
    world.transfers[transfer_id] = Refused(epoch=3)
    world.record = Entity(epoch=3)
    world.look_until(300)
    assert len(world.said) == TIMES


def test_what_is_being_handed_back_is_known_until_it_has_moved_or_was_told_for_long() -> None:
    world = World()
    world.return_to_owner.adopted(ROW)
    assert BALL in world.return_to_owner
    world.look_until(127)
    assert BALL not in world.return_to_owner
    world.return_to_owner.adopted(ROW)
    world.record = Entity(authority=S1)
    world.look_until(128)
    assert BALL not in world.return_to_owner


def test_many_share_messages() -> None:
    world = World()
    for number in range(MAX_MOVES + 1):
        world.return_to_owner.adopted(ROW.model_copy(update={"entity": f"alpha.e{number}"}))
    world.look_until(1)
    assert (world.messages, len(world.said)) == (2, MAX_MOVES + 1)


def test_while_its_server_is_drained_or_without_a_lease_nothing_is_sent_there() -> None:
    world = World()
    world.return_to_owner.adopted(ROW)
    world.is_drained = True
    world.look_until(1)
    world.is_drained, world.lease_of_s1 = False, Lease(LeasePhase.OVER)
    world.look_until(3)
    world.lease_of_s1 = None
    world.look_until(7)
    assert world.said == []
    world.lease_of_s1 = Lease()
    world.look_until(20)
    assert len(world.said) == 1


def test_who_leaves_office_forgets_it() -> None:
    world = World()
    world.return_to_owner.adopted(ROW)
    world.return_to_owner.left_office()
    world.look_until(10)
    assert world.said == []


@given(st.integers(1, 50))
def test_so_many_are_remembered_and_no_more(more: int) -> None:
    world = World()
    for number in range(MAX_HOMEWARD + more):
        world.return_to_owner.adopted(ROW.model_copy(update={"entity": f"alpha.e{number}"}))
    assert len(world.return_to_owner) == MAX_HOMEWARD

"""What drained servers may still be passed is looked for once a second at most, and all of it gets its turn."""

from types import SimpleNamespace
from typing import Any

import pytest

from batonpass.authority.model.records import (
    DirectoryRow,
    DrainRecord,
    EntityRecord,
    LeaseRow,
    Phase,
    Role,
    TransferRecord,
)
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.placement.policy import Balance, relieve
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.placement import Load, Moves
from batonpass.authority.wire.transfer import Message
from batonpass.crypto.keys import Identity
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.placement.balancer import DRAINING_ROUND_S, MAX_TAKEN_BACK, QUIET_S, ROUND_S, Balancer
from batonpass.homeserver.rest.models import TransferView
from batonpass.tree.store.store import Store as TreeStore
from tests.homeserver.stepped_clock import Enough, Stepped

HOLDER, OTHER, THIRD, GONE = "alpha.s1", "alpha.s2", "alpha.s3", "alpha.s9"


class Instance:
    """The rows of an instance whose server GONE is dead and drained, and what its balancer orders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows, self.clock = TreeStore(), Stepped()
        backend: Any = SimpleNamespace(store=self.rows)
        self.store = InstanceStore(lambda: backend)
        keys = Identity.generate().public.to_jwks()
        for name in (HOLDER, OTHER, GONE):
            self.rows.put(("servers", name), DirectoryRow(name=name, role=Role.SIMSERVER, keys=keys).to_data())
        self.rows.put(("drains", GONE), DrainRecord(server=GONE, id="drain", since_s=0.0).to_data())
        self.looks: list[float] = []
        self.ordered: list[tuple[float, list[str]]] = []
        self.targets: list[str] = []
        self.also: tuple[str, ...] = ()
        self.balancer = Balancer(
            self.store,
            self.post,
            self.clock,
            leads=lambda: True,
            balance=Balance(),
            policy=relieve,
            balancing=False,
            is_silent=lambda _: False,
            is_handed_back=lambda _: False,
            follows_regions=lambda _: False,
        )
        look = self.store.delegated_to

        def counted(server: str, at_most: int, after: str = "") -> list[tuple[str, str]]:
            self.looks.append(self.clock.now_s)
            return look(server, at_most, after)

        monkeypatch.setattr(self.store, "delegated_to", counted)

    def write(self, entity: str, *delegation: str) -> None:
        record = EntityRecord(
            id=entity, kind="ball", master="alpha.ada", owner="alpha.ada", authority=HOLDER, delegation=delegation
        )
        # As the log has them: without what is at its default.
        self.rows.put(("entities", entity), record.to_row())

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        assert to == HOLDER
        if isinstance(message, Moves):
            self.ordered.append((self.clock.now_s, [move.entity for move in message.moves]))
            self.targets += [move.target for move in message.moves]

    def report(self) -> None:
        for name in (HOLDER, OTHER, *self.also):
            self.balancer.reported(name, Load(tick_ppm=0, entities=0, leaving=0, inputs_per_s=0, bytes_per_s=0))

    async def runs(self, seconds: float) -> None:
        self.report()
        self.clock.end_s += seconds
        with pytest.raises(Enough):
            await self.balancer.serve()


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Instance:
    return Instance(monkeypatch)


async def test_what_cannot_leave_keeps_nobody_else(instance: Instance) -> None:
    """Nothing of it leaves here: all are ordered before one is ordered again, so many each time, in a round."""
    names = [f"alpha.e{number:03}" for number in range(MAX_TAKEN_BACK * 5 // 2)]
    for name in names:
        instance.write(name, HOLDER, GONE)
    await instance.runs(4.5)
    turns = [entities for _, entities in instance.ordered]
    assert [len(entities) for entities in turns] == [MAX_TAKEN_BACK] * 5
    assert [name for entities in turns for name in entities] == (names * 2)[: 5 * MAX_TAKEN_BACK]


@pytest.mark.parametrize(("entities", "turns"), [(0, 3), (1, 0)])
async def test_a_drained_server_that_is_alive_may_be_passed_something_while_it_has_other_things_to_give(
    instance: Instance, entities: int, turns: int
) -> None:
    """Else its drain would not end: a delegation that names it lasts for as long as the entity stays where it is."""
    instance.write("alpha.ball", HOLDER, GONE)
    load = Load(tick_ppm=0, entities=entities, leaving=0, inputs_per_s=0, bytes_per_s=0)
    instance.clock.in_between = lambda: instance.balancer.reported(GONE, load)
    instance.balancer.reported(GONE, load)
    await instance.runs(2.95)
    assert [entities for _, entities in instance.ordered] == [["alpha.ball"]] * turns


async def test_of_two_that_take_entities_both_get_their_turn(instance: Instance) -> None:
    """The coolest may be the one that takes nothing of this kind."""
    keys = Identity.generate().public.to_jwks()
    instance.rows.put(("servers", THIRD), DirectoryRow(name=THIRD, role=Role.SIMSERVER, keys=keys).to_data())
    instance.also = (THIRD,)
    instance.write("alpha.ball", HOLDER, GONE)
    await instance.runs(3.95)
    assert instance.targets == [OTHER, THIRD] * 2


async def test_it_is_looked_for_once_a_second_also_while_another_drain_is_busy(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonpass.homeserver.placement.balancer.ROUND_S", DRAINING_ROUND_S)
    instance.write("alpha.ball", HOLDER, GONE)
    await instance.runs(2.95)
    assert [round(at_s) for at_s in instance.looks] == [0, 1, 2]
    assert [entities for _, entities in instance.ordered] == [["alpha.ball"]] * 3


async def test_with_nothing_to_find_it_is_looked_for_again_seldom_and_only_when_the_rows_have_changed(
    instance: Instance,
) -> None:
    instance.write("alpha.ball", HOLDER, OTHER)
    await instance.runs(2 * QUIET_S)
    assert (len(instance.looks), instance.ordered) == (1, [])

    def in_between() -> None:
        instance.report()
        instance.write(f"alpha.at-{instance.clock.now_s:.0f}", HOLDER, OTHER)

    instance.clock.in_between = in_between
    await instance.runs(2.5 * QUIET_S)
    assert len(instance.looks) in (3, 4), "all rows are searched, and they change all the time"
    instance.write("alpha.ball", HOLDER, GONE)
    await instance.runs(QUIET_S)
    assert instance.ordered[0][1] == ["alpha.ball"]


async def test_who_is_named_in_a_row_without_a_delegation_is_not_taken_for_somebody_of_it(instance: Instance) -> None:
    """By an entity's id, or as the beginning of another server's name: there is no index, and rows are searched."""
    instance.write(f"{GONE}-crate")
    instance.write("alpha.crate", f"{GONE}9", HOLDER)
    assert (instance.store.named_by(GONE), instance.store.delegated_to(GONE, 9)) == ((0, 0), [])
    instance.write("alpha.ball", HOLDER, GONE)
    await instance.runs(ROUND_S)
    assert instance.ordered[0][1] == ["alpha.ball"]
    assert (instance.store.named_by(GONE), instance.store.named_by(HOLDER)) == ((0, 1), (3, 0))


@pytest.mark.parametrize(
    ("phase", "lease", "is_left"),
    [
        (Phase.COMMITTED, LeasePhase.OVER, True),
        (Phase.COMMITTED, LeasePhase.RETURNING, True),
        (Phase.COMMITTED, LeasePhase.ALIVE, True),
        (Phase.PERMITTED, LeasePhase.OVER, False),
    ],
)
def test_nobody_reports_what_an_earlier_life_of_its_source_handed_over(
    instance: Instance, phase: Phase, lease: LeasePhase, is_left: bool
) -> None:
    transfer = TransferRecord(
        id="t-1", entity="alpha.ball", source=HOLDER, target=OTHER, phase=phase, source_incarnation=1
    )
    assert not instance.store.is_left(transfer), "nothing is known of its lease, or it is of another instance"
    row = LeaseRow(server=HOLDER, incarnation=2, phase=lease, nonce="n")
    instance.rows.put(("leases", HOLDER), row.to_data())
    assert instance.store.is_left(transfer) is is_left
    assert (TransferView.of(transfer, is_left=is_left).result == "done") is is_left
    assert not instance.store.is_left(transfer.changed(source_incarnation=2)) or lease is LeasePhase.OVER

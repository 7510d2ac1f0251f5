"""What was permitted is ordered until it has a result, whatever becomes of an order, or of who gave it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.model.records import GroupPhase, GroupRecord, Phase, TransferRecord
from batonpass.authority.procedures.group_table import GROUP_LIFETIME_S
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.order_retry import MAX_HURRIED, MAX_OPEN, OrderRetry
from batonpass.tree.store.store import Store as TreeStore
from tests.simserver.ports import TrioClock


def transfer_of(name: str, group: str = "") -> TransferRecord:
    return TransferRecord(
        id=name, entity="alpha.e", source="alpha.s1", target="alpha.s2", phase=Phase.PERMITTED, group=group
    )


class AllVirtual(TrioClock):
    """The test's own clock, for the time of day too."""

    def unix_s(self) -> float:
        return trio.current_time()


class Place:
    """A log of transfers, and what is ordered because of them."""

    def __init__(self) -> None:
        self.phases: dict[str, Phase] = {}
        self.in_office, self.is_gone = False, False
        self.told: list[tuple[float, str]] = []
        self.groups: dict[str, list[str]] = {}
        self.rivals: dict[str, str] = {}
        self.behind: set[str] = set()
        """Of the rivals those that go after the other."""
        self.expires_at_s, self.group_phase = 1e12, GroupPhase.OPEN
        self.refused: list[tuple[float, str]] = []
        store: Any = SimpleNamespace(
            transfer_ids=lambda: list(self.phases),
            permitted=self._permitted,
            group=self._group,
            submit=self._submit,
            entity=lambda _name: None if self.is_gone else object(),
            open_rivals=lambda group: [self._group(name) for name in group.earlier],
            is_behind=lambda group, _now_s: group.id in self.behind,
        )
        ordering: Any = SimpleNamespace(tell_each=self.order_each)
        self.orders = OrderRetry(store, ordering, AllVirtual(), lambda: self.in_office)

    def _permitted(self, names: list[str]) -> list[TransferRecord]:
        group_of = {name: group for group, members in self.groups.items() for name in members}
        return [transfer_of(one, group_of.get(one, "")) for one in names if self.phases.get(one) is Phase.PERMITTED]

    def _group(self, group: str) -> Any:
        if not group:
            return None
        members, phase = dict.fromkeys(self.groups[group], "alpha.e"), self.group_phase
        rivals = (self.rivals[group],) if group in self.rivals else ()
        return SimpleNamespace(
            id=group,
            members=members,
            phase=phase,
            prepared=sum(self.phases.get(one) is Phase.PREPARED for one in members),
            expires_at_s=self.expires_at_s,
            earlier=rivals,
            later=(),
        )

    async def _submit(self, procedure: str, *, group: str = "", transfer_id: str = "", now_s: float) -> None:
        """As the log: the group is refused if its time is over, and with it whatever has not been decided.

        So is a transfer whose entity is gone.
        """
        if procedure == "transfer.expire":
            self.refused.append((trio.current_time(), transfer_id))
            self.phases[transfer_id] = Phase.REFUSED
            return
        assert procedure == "group.look"
        if now_s > self.expires_at_s:
            self.refused.append((trio.current_time(), group))
            self.phases |= dict.fromkeys(self.groups[group], Phase.REFUSED)
            self.group_phase = GroupPhase.REFUSED

    async def order_each(self, transfers: Sequence[TransferRecord]) -> None:
        for transfer in transfers:
            self.orders.ordered(transfer)
            self.told.append((trio.current_time(), transfer.id))

    async def passes(self, seconds: float) -> list[str]:
        """What is ordered in this time."""
        self.told.clear()
        with trio.move_on_after(seconds):
            await self.orders.serve()
        return [name for _, name in self.told]


async def test_it_is_ordered_more_and_more_seldom_until_it_has_a_result(autojump_clock: MockClock) -> None:
    place = Place()
    place.phases["t1"] = Phase.PERMITTED
    place.orders.ordered(transfer_of("t1"))
    assert set(await place.passes(1000.0)) == {"t1"}
    waits = [round(after - before, 3) for (before, _), (after, _) in zip(place.told, place.told[1:], strict=False)]
    assert waits == sorted(waits)
    assert waits[-1] < 62.0
    place.phases["t1"] = Phase.COMMITTED
    assert await place.passes(1000.0) == []


async def test_failures_row_36_what_was_deleted_is_not_ordered_again_but_refused(autojump_clock: MockClock) -> None:
    place = Place()
    place.phases["t1"], place.in_office, place.is_gone = Phase.PERMITTED, True, True
    assert await place.passes(70.0) == [], "found by the search, as after a restart"
    assert [name for _, name in place.refused] == ["t1"]


async def test_with_one_of_a_group_the_others_are_ordered_in_the_time_that_it_has(autojump_clock: MockClock) -> None:
    place = Place()
    place.groups["g"] = ["t1", "t2", "t3"]
    place.phases |= {"t1": Phase.PREPARED, "t2": Phase.PERMITTED, "t3": Phase.PERMITTED}
    place.orders.ordered(transfer_of("t1", "g"))
    ordered = await place.passes(GROUP_LIFETIME_S / 2)
    assert place.told[1][0] - trio.current_time() + GROUP_LIFETIME_S / 2 < 0.5, "t1 stands still"
    assert set(ordered) == {"t2", "t3"}
    assert len(ordered) < 20


async def test_as_long_as_nobody_of_a_group_stands_still_or_many_are_missing_they_are_ordered_as_others_are(
    autojump_clock: MockClock,
) -> None:
    place = Place()
    place.groups = {"g": ["t1", "t2"], "h": [f"h{number}" for number in range(MAX_HURRIED + 2)]}
    place.phases |= dict.fromkeys([*place.groups["g"], *place.groups["h"]], Phase.PERMITTED) | {"h0": Phase.PREPARED}
    for name, group in (("t1", "g"), ("h1", "h")):
        place.orders.ordered(transfer_of(name, group))
    assert await place.passes(2.5) == []
    assert len(await place.passes(2.5)) == MAX_HURRIED + 3


async def test_a_group_whose_frozen_members_are_gone_with_their_servers_is_refused_when_its_time_is_over(
    autojump_clock: MockClock,
) -> None:
    place = Place()
    place.groups["g"] = ["t1", "t2"]
    place.phases |= {"t1": Phase.PREPARED, "t2": Phase.PERMITTED}
    began_s, place.expires_at_s = trio.current_time(), trio.current_time() + GROUP_LIFETIME_S
    place.orders.ordered(transfer_of("t2", "g"))
    ordered = await place.passes(60.0)
    assert [group for _, group in place.refused] == ["g"]
    assert place.refused[0][0] - began_s < GROUP_LIFETIME_S + 3.0
    assert len(ordered) < 15
    assert all(at_s - began_s <= GROUP_LIFETIME_S for at_s, _ in place.told), "nobody stands still for nothing"


async def test_who_goes_after_another_group_is_looked_at_again_and_again_until_it_is_its_turn(
    autojump_clock: MockClock,
) -> None:
    place = Place()
    place.groups, place.rivals, place.behind = {"g": ["t1"], "h": ["t2"]}, {"g": "h"}, {"g"}
    place.phases |= {"t1": Phase.PERMITTED, "t2": Phase.PREPARED}
    place.orders.ordered(transfer_of("t1", "g"))
    assert await place.passes(5.0) == []
    place.behind.clear()
    assert 3 < len(await place.passes(5.0)) < 10, "what the other group may have held is ordered again soon"
    assert {name for _, name in place.told} == {"t1"}


async def test_what_was_begun_in_time_is_not_ordered_again(autojump_clock: MockClock) -> None:
    place = Place()
    place.phases["t1"] = Phase.DONE
    place.orders.ordered(transfer_of("t1"))
    assert await place.passes(100.0) == []


async def test_who_grants_leases_takes_over_the_orders_of_a_member_that_is_gone(autojump_clock: MockClock) -> None:
    place = Place()
    place.phases |= {f"t{number}": Phase.DONE for number in range(250)} | {"mine": Phase.PERMITTED}
    assert await place.passes(200.0) == []
    place.in_office = True
    assert set(await place.passes(200.0)) == {"mine"}


async def test_the_oldest_orders_are_left_to_the_search(autojump_clock: MockClock) -> None:
    place = Place()
    names = [f"t{number}" for number in range(MAX_OPEN + 1)]
    place.phases |= dict.fromkeys(names, Phase.PERMITTED)
    for name in names:
        place.orders.ordered(transfer_of(name))
    assert set(await place.passes(5.5)) == set(names[1:])


def test_a_word_in_the_report_of_what_is_done_does_not_make_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = TreeStore()
    fields: dict[str, Any] = {
        "entity": "alpha.e",
        "target": "alpha.s2",
        "report": '{"marks":["committed","permitted"]}',
    }
    for name, phase in (("transfer-1", Phase.DONE), ("transfer-2", Phase.COMMITTED), ("transfer-3", Phase.PERMITTED)):
        tree.put(("transfers", name), TransferRecord(id=name, phase=phase, **fields).to_data())
    backend: Any = SimpleNamespace(store=tree)
    store, names = InstanceStore(lambda: backend), ["transfer-1", "transfer-2", "transfer-3"]
    read: list[str] = []

    def from_data(data: Any) -> TransferRecord:
        read.append(data["id"])
        return TransferRecord.model_validate(data)

    monkeypatch.setattr(TransferRecord, "from_data", from_data)
    assert [transfer.id for transfer in store.unreported(names)] == ["transfer-2"]
    assert [transfer.id for transfer in store.permitted(names)] == ["transfer-3"]
    assert read == ["transfer-2", "transfer-3"], "of ten thousand that are done none is decoded"


async def test_many_of_a_group_that_had_a_rival_are_not_ordered_all_over_again(autojump_clock: MockClock) -> None:
    """They have just not had their turn yet."""
    place = Place()
    names = [f"t{number}" for number in range(1000)]
    place.groups, place.rivals = {"g": names, "h": ["x"]}, {"g": "h"}
    place.phases |= dict.fromkeys(names, Phase.PERMITTED) | {"x": Phase.COMMITTED}
    for name in names:
        place.orders.ordered(transfer_of(name, "g"))
    assert len(await place.passes(2.5)) <= MAX_HURRIED


async def test_the_row_of_a_large_group_that_waits_for_its_turn_is_read_once_each_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names all members. Read for each of them, it would keep the homeserver busy for most of the time."""
    tree, size = TreeStore(), 1000
    for group, fields in (("a", {"prepared": 1, "later": ("b",)}), ("b", {"earlier": ("a",)})):
        members = {f"{group}-{number}": f"alpha.e{number}" for number in range(size)}
        record = {"id": group, "target": "alpha.s2", "members": members, "expires_at_s": 20} | fields
        tree.put(("groups", group), GroupRecord.model_validate(record).to_data())
        for name, entity in members.items():
            transfer = transfer_of(name, group).changed(entity=entity)
            tree.put(("transfers", name), transfer.to_data())
    backend: Any = SimpleNamespace(store=tree)
    store, reads = InstanceStore(lambda: backend), list[str]()
    read = InstanceStore.group

    def noted(store: InstanceStore, group: str) -> GroupRecord | None:
        reads.append(group)
        return read(store, group)

    told: list[TransferRecord] = []

    async def order_each(transfers: Sequence[TransferRecord]) -> None:
        told.extend(transfers)

    orders = OrderRetry(store, cast(Any, SimpleNamespace(tell_each=order_each)), AllVirtual(), lambda: False)
    orders.ordered(transfer_of("b-0", "b"))
    monkeypatch.setattr(InstanceStore, "group", noted)
    monkeypatch.setattr(InstanceStore, "entity", lambda _store, _name: object())
    with trio.move_on_after(2.0):
        await orders.serve()
    assert len(reads) < 200
    assert told == []

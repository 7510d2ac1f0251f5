"""Who waits for the rest of a group hears what has become of it elsewhere, and is not kept for ever."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.authority.wire.hops import Trace
from batonpass.homeserver.transfer.group_result import LOOK_S, GroupResults
from batonpass.homeserver.transfer.waiting_group import WaitingRequest, WaitingRequests
from tests.homeserver.transfer.test_order_retry import AllVirtual


class Place:
    """A log in which transfers have phases, and who is told of them."""

    def __init__(self) -> None:
        self.phases: dict[str, Phase] = {}
        self.looks: list[str] = []
        self.told: list[tuple[float, str]] = []
        self.waiting = WaitingRequests(AllVirtual().bell())
        store: Any = SimpleNamespace(transfer=self._transfer)
        self.news = GroupResults(store, self.waiting, self._tell, AllVirtual())

    def _transfer(self, name: str) -> TransferRecord | None:
        self.looks.append(name)
        phase = self.phases.get(name)
        if phase is None:
            return None
        group = name.partition("-")[0]
        return TransferRecord(id=name, entity="alpha.e", target="alpha.s2", phase=phase, group=group)

    async def _tell(self, transfer: TransferRecord) -> None:
        self.told.append((trio.current_time(), transfer.group))
        for name in self.phases:
            if name.startswith(transfer.group):
                self.waiting.take(name)

    def waits(self, *names: str) -> None:
        for name in names:
            self.phases[name] = Phase.PREPARED
            self.waiting.add(WaitingRequest(name, name.partition("-")[0], Trace(name), "alpha.s1"))


@pytest.fixture
async def place(nursery: trio.Nursery) -> Place:
    place = Place()
    await nursery.start(place.news.serve)
    return place


async def test_all_of_a_group_are_told_soon_after_it_is_decided_elsewhere(
    place: Place, autojump_clock: MockClock
) -> None:
    place.waits("one-0", "one-1", "two-0")
    await trio.sleep(5.05)
    assert place.told == []
    assert set(place.looks) == {"one-1", "two-0"}, "one row for each group"
    place.phases |= {"one-0": Phase.REFUSED, "one-1": Phase.REFUSED}
    await trio.sleep(2 * LOOK_S)
    ((at, group),) = place.told
    assert (group, at < 5.05 + 2 * LOOK_S, len(place.waiting)) == ("one", True, 1)
    place.phases["two-0"] = Phase.COMMITTED
    await trio.sleep(2 * LOOK_S)
    assert ([group for _, group in place.told], len(place.waiting)) == (["one", "two"], 0)


async def test_where_nobody_waits_nobody_looks(place: Place, autojump_clock: MockClock) -> None:
    await trio.sleep(60)
    place.waits("one-0")
    place.waiting.take("one-0")
    await trio.sleep(60)
    assert place.looks == []


async def test_who_waits_for_what_the_log_has_forgotten_is_forgotten_too(
    place: Place, autojump_clock: MockClock
) -> None:
    place.waits("one-0", "one-1")
    place.phases.clear()
    await trio.sleep(5 * LOOK_S)
    assert (len(place.waiting), place.told) == (0, [])

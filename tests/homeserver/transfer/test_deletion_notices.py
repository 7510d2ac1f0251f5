"""Servers are told that an entity has ended until they say that they have heard, or can have nothing any more."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.model.records import LeaseRow
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.wire.transfer import Despawn, Despawned
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.transfer import deletion_notices
from batonpass.homeserver.transfer.deletion_notices import LAST_WAIT_NS, DeletionNotices
from batonpass.tree.raft.submissions import NoQuorum
from tests.simserver.ports import TrioClock

BALL, AUTHORITY, OTHER = "alpha.ball", "alpha.s1", "beta.s1"


class Place:
    """A log with one entity that has ended, and who is told of it."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {BALL: {"epoch": 3, "servers": {AUTHORITY: 4, OTHER: 0}}}
        self.in_office, self.is_down, self.is_away = True, False, False
        self.lease = LeaseRow(server=AUTHORITY, incarnation=4, nonce="", phase=LeasePhase.ALIVE)
        self.told: list[tuple[float, str]] = []
        store: Any = SimpleNamespace(
            deletion_notices=lambda: list(self.rows),
            farewell=self.rows.get,
            lease=lambda server: self.lease if server == AUTHORITY else None,
            submit=self.submit,
        )
        self.deletion_notices = DeletionNotices(store, self.post, TrioClock(), lambda: self.in_office)

    async def post(self, message: Despawn, trace: Any, to: str, *, on_path: bool) -> None:
        assert (message, on_path) == (Despawn(entity=BALL, epoch=3), False)
        self.told.append((trio.current_time(), to))
        if self.is_down:
            raise InstanceUnreachable(to)

    async def submit(self, procedure: str, told: list[tuple[str, int, str]]) -> None:
        assert procedure == "entity.farewell"
        if self.is_away:
            raise NoQuorum("away")
        for entity, _, server in told:
            self.rows[entity]["servers"].pop(server)
            if not self.rows[entity]["servers"]:
                del self.rows[entity]

    def hear(self, server: str) -> None:
        self.deletion_notices.heard(Despawned(entity=BALL, epoch=3), server)

    async def passes(self, seconds: float) -> list[str]:
        """Who is told in this time."""
        self.told.clear()
        with trio.move_on_after(seconds):
            await self.deletion_notices.serve()
        return [to for _, to in self.told]


async def test_failures_row_36_who_may_have_it_is_told_until_it_has_heard(autojump_clock: MockClock) -> None:
    place = Place()
    told = await place.passes(1000.0)
    assert set(told) == {AUTHORITY, OTHER}
    times = [at for at, to in place.told if to == OTHER]
    waits = [round(after - before, 1) for before, after in pairwise(times)]
    assert waits == sorted(waits), "ever more seldom"
    assert waits[-1] < LAST_WAIT_NS / 1e9 + 2.0, "and never for ever"
    place.hear(OTHER)
    assert set(await place.passes(200.0)) == {AUTHORITY}
    place.hear(AUTHORITY)
    await place.passes(2.0)
    assert place.rows == {}
    assert await place.passes(200.0) == []


async def test_who_cannot_be_told_is_told_later(autojump_clock: MockClock) -> None:
    place = Place()
    place.is_down = True
    assert await place.passes(10.0) != []
    place.is_down = False
    assert await place.passes(60.0) != []


async def test_whoever_has_lost_its_lease_need_not_hear(autojump_clock: MockClock) -> None:
    place = Place()
    place.lease = place.lease.changed(phase=LeasePhase.OVER)
    assert set(await place.passes(100.0)) == {OTHER}
    assert place.rows[BALL]["servers"] == {OTHER: 0}


async def test_only_the_one_in_office_tells_and_everybody_notes_who_has_heard(autojump_clock: MockClock) -> None:
    place = Place()
    place.in_office = False
    place.hear(OTHER)
    assert await place.passes(100.0) == []
    assert place.rows[BALL]["servers"] == {AUTHORITY: 4}


async def test_what_cannot_be_noted_now_is_heard_again(autojump_clock: MockClock) -> None:
    place = Place()
    place.is_away = True
    place.hear(OTHER)
    assert OTHER in await place.passes(100.0)
    place.is_away = False
    place.hear(OTHER)
    await place.passes(2.0)
    assert place.rows[BALL]["servers"] == {AUTHORITY: 4}


async def test_so_many_answers_wait_at_a_time(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_notices, "MAX_HEARD", 1)
    place = Place()
    place.hear(OTHER)
    place.hear(AUTHORITY)
    await place.passes(1.5)
    assert place.rows[BALL]["servers"] == {AUTHORITY: 4}


async def test_failures_row_36_one_that_could_pass_it_may_have_done_so_to_another_life_of_a_dead_server(
    autojump_clock: MockClock,
) -> None:
    """Of one that may be passed it, the end of an incarnation says nothing: simulated `births` 1200156.

    The other end of the delegation has it, and passes it on before it hears of the end.
    """
    place = Place()
    place.rows[BALL]["servers"] = {OTHER: 0, AUTHORITY: 0}
    place.lease = place.lease.changed(phase=LeasePhase.OVER)
    assert set(await place.passes(50.0)) == {OTHER, AUTHORITY}
    place.lease = place.lease.changed(phase=LeasePhase.ALIVE, incarnation=5)
    place.hear(OTHER)
    await place.passes(2.0)
    assert set(await place.passes(200.0)) == {AUTHORITY}, "it may have been passed the entity as what it is now"
    place.lease = place.lease.changed(phase=LeasePhase.OVER)
    await place.passes(200.0)
    assert place.rows == {}, "nobody is left that could pass it"

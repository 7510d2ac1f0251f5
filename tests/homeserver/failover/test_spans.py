"""Spans of take-overs: one starts where the log has begun, none is missed between two looks, and each stops once."""

from typing import Any, cast

import pytest

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import LeaseRow, RecoveryRow
from batonpass.authority.node.spans import TAKEOVER, takeover_id
from batonpass.authority.wire.recovery import AdoptedItem
from batonpass.authority.wire.transfer import Adopted
from batonpass.homeserver.failover.takeover import Takeovers
from tests.authority.log import BALL, OTHER, S1, S2, Log, new_log
from tests.authority.node.test_spans import Ear
from tests.homeserver.batched import CLOCK, Kept

NOTHING: Any = None
FOUND = {"tick": 7, "state_hash": "0" * 64, "source": "checkpoint"}


class Rows(Kept):
    """A store with what is looked for."""

    def recovery(self, entity: str) -> RecoveryRow | None:
        data = self.log.rows.get_or(("recoveries", entity), None)
        return None if data is None else RecoveryRow.from_data(data)

    def takeovers(self) -> list[RecoveryRow]:
        return [row for entity in (BALL, OTHER) if (row := self.recovery(entity)) is not None]

    def leases(self) -> list[LeaseRow]:
        return []


def log_with_leases() -> Log:
    log = new_log()
    for server in (S1, S2):
        log.run("lease.claim", server=server, incarnation=1, nonce="0" * 32, previous_nonce="")
        log.run("lease.swept", server=server, incarnation=1, late=0, phase="returning")
    return log


class Home:
    """A member that grants leases, or does not; nobody of whom it asks anything is there."""

    def __init__(self) -> None:
        self.ear = Ear([(*TAKEOVER, "start"), (*TAKEOVER, "stop")])
        self.log = log_with_leases()
        self.log.run("lease.expire", server=S1, incarnation=1, office=0)
        self.is_in_office = True
        store = cast(Any, Rows(self.log))
        self.takeovers = Takeovers(store, NOTHING, cast(Any, CLOCK), lambda: self.is_in_office, self.ear.spans)

    def begin(self) -> list[str]:
        return cast("list[str]", self.log.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]]))

    def give(self, epoch: int = 2) -> None:
        item = {"entity": BALL, "epoch": epoch, "target": S2, **FOUND}
        assert self.log.run("recovery.finish", items=[item]) == [BALL]

    def heard(self) -> list[str]:
        return [metadata["outcome"] or "start" for _, _, metadata in self.ear.heard]


@pytest.fixture
def home() -> Home:
    return Home()


async def adopt(home: Home) -> None:
    home.takeovers.adopted(Adopted(items=[AdoptedItem(entity=BALL, epoch=3, sub=0)]), S2)
    await home.takeovers._finish()


async def test_what_begins_and_ends_between_two_looks_has_its_span(home: Home) -> None:
    home.takeovers.begun(home.begin())
    assert home.heard() == ["start"]
    home.give()
    await adopt(home)
    home.takeovers._takeovers.looked([])
    assert home.heard() == ["start", "adopted"]
    (start, (_, measurements, metadata)) = home.ear.heard
    assert (start[2]["transfer_id"], start[2]["source"], start[2]["fence"]) == (takeover_id(BALL, 2), S1, Fence(2))
    assert (measurements["tick"], metadata["target"], home.ear.spans.open) == (7, S2, 0)


async def test_what_another_member_has_begun_is_seen_before_anything_is_done_about_it(home: Home) -> None:
    home.begin()
    home.give()
    home.takeovers.to_go_on_with()
    home.takeovers.begun([BALL])
    await adopt(home)
    assert home.heard() == ["start", "adopted"]


def test_a_member_that_is_not_in_office_leaves_it_to_who_is(home: Home) -> None:
    home.is_in_office = False
    home.takeovers.begun(home.begin())
    assert home.heard() == []


async def test_a_loss_is_told_once_and_whoever_returns_with_a_copy_has_a_span_of_the_same_id(home: Home) -> None:
    home.takeovers.begun(home.begin())
    takeovers = home.takeovers._takeovers
    for _ in range(2):
        takeovers.changed(home.log.run("recovery.lost", items=[{"entity": BALL, "epoch": 2}]))
        home.takeovers.to_go_on_with()
    assert home.heard() == ["start", "lost"]
    home.give()
    takeovers.changed([BALL])
    await adopt(home)
    assert home.heard() == ["start", "lost", "start", "adopted"]
    assert {metadata["transfer_id"] for _, _, metadata in home.ear.heard} == {takeover_id(BALL, 2)}


async def test_who_does_not_go_on_ends_one_span_and_begins_another(home: Home) -> None:
    home.takeovers.begun(home.begin())
    home.give()
    home.log.run("recovery.again", items=[{"entity": BALL, "epoch": 3}])
    home.takeovers._takeovers.again(BALL, 3)
    home.takeovers._takeovers.looked(home.takeovers.to_go_on_with())
    assert home.heard() == ["start", "again", "start"]
    assert home.ear.heard[-1][2]["transfer_id"] == takeover_id(BALL, 4)


@pytest.mark.parametrize("exists", [True, False])
def test_what_is_over_without_an_answer_is_adopted_if_there_still_is_such_an_entity(home: Home, exists: bool) -> None:
    home.takeovers.begun(home.begin())
    home.give()
    home.takeovers.to_go_on_with()
    home.log.rows.delete(("recoveries", BALL))
    if not exists:
        home.log.rows.delete(("entities", BALL))
    home.takeovers._takeovers.looked(home.takeovers.to_go_on_with())
    assert home.heard() == ["start", "adopted" if exists else "ended"]

"""Why an entity does not run: every row of the table of causes, from facts alone."""

from typing import Any

import pytest

from batonpass.authority.model.records import EntityRecord, Phase, RecoveryRow, TransferRecord
from batonpass.authority.model.standing import Standing
from batonpass.authority.wire.standing import At, StandingRow
from batonpass.homeserver.node.why import Cause, Facts, Why, explain

BALL, S1, S2 = "alpha.ball-1", "alpha.s1", "alpha.s2"
RECORD = EntityRecord(id=BALL, kind="ball", master="alpha.ada", owner="alpha.ada", authority=S1)
NOBODYS = RECORD.changed(authority="", epoch=2, standing=Standing.RECOVERING)
MOVE = TransferRecord(id="transfer-1", entity=BALL, source=S2, target=S1, phase=Phase.COMMITTED)


def row(at: At, **more: Any) -> StandingRow:
    return StandingRow(entity=BALL, at=at, **more)


def left(**more: Any) -> RecoveryRow:
    return RecoveryRow(entity=BALL, last=S1, epoch=2, **more)


def facts(**more: Any) -> Facts:
    return Facts(**{"entity": BALL, "record": RECORD, **more})


TABLE: dict[str, tuple[Facts, Cause, str, str]] = {
    "it runs": (facts(row=row(At.RUNS)), Cause.RUNS, "alpha.s1 simulates it", "nothing is to be done"),
    "it runs, and a transfer of it waits": (
        facts(row=row(At.RUNS, transfer_id="transfer-1", why="alpha.s2 has not said yet whether it has room for it")),
        Cause.RUNS,
        "transfer transfer-1 waits: alpha.s2 has not said yet whether it has room for it",
        "nothing",
    ),
    "it runs, and not where its world wants it": (
        facts(row=row(At.RUNS, why="its world wants it at alpha.s9: no simulation server of this name is registered")),
        Cause.RUNS,
        "alpha.s1 simulates it; its world wants it at alpha.s9: no simulation server of this name is registered",
        "have `destination` of its world name another server",
    ),
    "it runs, though nobody could decide about it": (
        facts(row=row(At.RUNS), no_majority="instance alpha has no leader yet"),
        Cause.RUNS,
        "until its lease is over: instance alpha has no leader yet",
        "start the homeservers that are down",
    ),
    "it runs at a server that does not know that the log went back": (
        facts(row=row(At.RUNS), log_went_back="it was restored"),
        Cause.RUNS,
        "but nothing is decided: it was restored",
        "baton cluster accept-loss",
    ),
    "it is being handed over": (
        facts(row=row(At.FROZEN, transfer_id="transfer-2", phase="requested", since_ms=2500, why="no answer")),
        Cause.FROZEN,
        "alpha.s1 hands it over, phase requested: no answer",
        "see to that server",
    ),
    "its world failed on it": (
        facts(row=row(At.QUARANTINED, why="ZeroDivisionError: poison")),
        Cause.QUARANTINED,
        "its world failed on it at alpha.s1: ZeroDivisionError: poison",
        "POST /v1/entities/alpha.ball-1/release",
    ),
    "the world of its server does not take it": (
        facts(row=row(At.UNTAKEN, why="no such kind")),
        Cause.UNTAKEN,
        "the world of alpha.s1 does not take it: no such kind",
        "start a server whose world takes it",
    ),
    "its owner left": (facts(row=row(At.SUSPENDED)), Cause.SUSPENDED, "its owner left", "have a player own it"),
    "the lease of its server ran out": (
        facts(row=row(At.UNLEASED, why="it was not renewed: alpha.h1 says elsewhere")),
        Cause.UNLEASED,
        "the lease of its server alpha.s1 ran out: it was not renewed: alpha.h1 says elsewhere",
        "look at the way from alpha.s1 to its homeservers",
    ),
    "the lease of its server is over by the log": (
        facts(is_over=True),
        Cause.UNLEASED,
        "the lease of its server alpha.s1 is over",
        "start alpha.s1 again",
    ),
    "its server is silent": (
        facts(),
        Cause.UNREACHABLE,
        "its server alpha.s1 does not answer its home instance",
        "look at whether alpha.s1 runs",
    ),
    "its state is on the way, and where it comes from says why": (
        facts(
            row=row(At.NOT_HERE),
            came_by=MOVE,
            source_row=row(At.FROZEN, transfer_id="transfer-1", since_ms=1000, why="alpha.s1 is asked"),
        ),
        Cause.ON_ITS_WAY,
        "it was given to alpha.s1, where its state has not come from alpha.s2: alpha.s1 is asked",
        "see to alpha.s2",
    ),
    "its state is on the way, and where it comes from is silent": (
        facts(row=row(At.NOT_HERE), came_by=MOVE),
        Cause.ON_ITS_WAY,
        "alpha.s2, which has its state, does not answer",
        "see to alpha.s2",
    ),
    "it was passed on directly": (
        facts(row=row(At.NOT_HERE, moved_to=S2)),
        Cause.ON_ITS_WAY,
        "passed it on to alpha.s2",
        "look at alpha.s2",
    ),
    "its server does not have it": (
        facts(row=row(At.NOT_HERE)),
        Cause.NOT_THERE,
        "alpha.s1 has it by the log and does not simulate it",
        "repeat the request that created it",
    ),
    "copies of it are looked for": (
        facts(record=NOBODYS, recovery=left(abroad=("beta",))),
        Cause.RECOVERING,
        "copies of it are looked for, here and in beta",
        "whether beta can be reached",
    ),
    "it was raised a moment ago": (facts(record=NOBODYS), Cause.RECOVERING, "the server that had it died", "wait"),
    "somebody was told to go on with it": (
        facts(record=NOBODYS, recovery=left(target=S2, tick=7)),
        Cause.RECOVERING,
        "alpha.s2 was told to simulate it from tick 7 on",
        "look at alpha.s2",
    ),
    "it waits for a disk": (
        facts(record=NOBODYS, recovery=left(disk=True)),
        Cause.WAITS_FOR_DISK,
        "may be on its disk alone",
        "baton server remove alpha.s1",
    ),
    "it waits for the return of its server": (
        facts(record=NOBODYS, recovery=left(held=True)),
        Cause.WAITS_FOR_RETURN,
        "it waits for the return of that server",
        "start alpha.s1",
    ),
    "it waits for later copies": (
        facts(record=NOBODYS, recovery=left(), waits_for=["alpha.s3"]),
        Cause.WAITS_FOR_COPIES,
        "older than what alpha.s3 may have",
        "start alpha.s3",
    ),
    "nobody has a copy": (
        facts(record=NOBODYS.changed(standing=Standing.LOST), recovery=left()),
        Cause.LOST,
        "no server that is alive has a copy of it",
        "baton server remove alpha.s1",
    ),
    "nobody has a copy, though it is to wait for its server": (
        facts(record=NOBODYS.changed(standing=Standing.LOST), recovery=left(held=True)),
        Cause.LOST,
        "no server that is alive has a copy of it",
        "else delete it",
    ),
    "the log went back": (
        facts(log_went_back="alpha.s1 proves it"),
        Cause.LOG_WENT_BACK,
        "nothing is decided: alpha.s1 proves it",
        "put the newer log back",
    ),
    "no majority, and its server is silent": (
        facts(no_majority="instance alpha has no leader yet"),
        Cause.NO_MAJORITY,
        "instance alpha has no leader yet",
        "start the homeservers that are down",
    ),
    "no majority, and it is not known here": (
        facts(record=None, no_majority="instance alpha has no leader yet"),
        Cause.NO_MAJORITY,
        "this homeserver does not know it, and cannot ask the others",
        "start the homeservers",
    ),
    "no majority, and it is being recovered": (
        facts(record=NOBODYS, recovery=left(), no_majority="no leader"),
        Cause.NO_MAJORITY,
        "no leader",
        "start the homeservers",
    ),
    "it was deleted": (
        facts(record=None, has_grave=True),
        Cause.DELETED,
        "it was deleted",
        "its id is not given again",
    ),
    "it is not known": (facts(record=None), Cause.NOT_KNOWN, "there is no entity alpha.ball-1", "spelling"),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_cause_is_named_with_what_to_do(case: str) -> None:
    given, cause, text, remedy = TABLE[case]
    found = explain(given)
    assert (found.cause, text in found.text, remedy in found.remedy) == (cause, True, True), found
    assert "\n" not in found.text + found.remedy, "a line each"


def test_every_cause_has_a_row() -> None:
    assert {cause for _, cause, _, _ in TABLE.values()} == {*Cause}


def test_of_what_is_frozen_it_is_said_for_which_transfer_and_since_when() -> None:
    given, *_ = TABLE["it is being handed over"]
    found = explain(given)
    assert (found.transfer_id, found.phase, found.since_ms) == ("transfer-2", "requested", 2500)
    assert isinstance(found, Why)


@pytest.mark.parametrize("at", [At.QUARANTINED, At.UNTAKEN, At.SUSPENDED])
def test_a_world_or_an_owner_is_the_cause_also_while_nobody_can_decide(at: At) -> None:
    """Whoever brings the majority back has not mended that."""
    assert explain(facts(row=row(at), no_majority="no leader")).cause is Cause(at.value)

"""Leases in the log: entries of earlier releases, and where the incarnation that has one is."""

from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Role
from tests.authority.log import S2, Log
from tests.authority.rows import directory_row


def test_a_log_of_before_it_told_when_somebody_had_looked_is_applied_again_as_it_was() -> None:
    log = Log()
    log.run("directory.register", row=directory_row(S2).to_data())
    log.run("directory.register", row=directory_row("alpha.h1", Role.HOMESERVER).to_data())
    log.run("lease.take_office", by="alpha.h1", after=0)
    log.run("lease.claim", server=S2, incarnation=1, nonce="n", previous_nonce="")
    row = log.run("lease.swept", server=S2, incarnation=1)
    assert (row["swept"], row["phase"]) == (True, "alive")


HERE, THERE = ["http://10.0.0.1:1", "10.0.0.1", 1], ["http://10.0.0.2:2", "10.0.0.2", 2]
NOWHERE: list[Any] = []


@pytest.fixture
def log() -> Log:
    log = Log()
    register(log, HERE)
    return log


def register(log: Log, address: list[Any]) -> None:
    """A process with the keys of this server registers it."""
    rest_url, link_host, link_port = address
    row = directory_row(S2).changed(rest_url=rest_url, link_host=link_host, link_port=link_port)
    log.run("directory.register", row=row.to_data())


def claim(log: Log, incarnation: int, nonce: str, addresses: list[Any], previous: str = "") -> None:
    log.run(
        "lease.claim",
        server=S2,
        incarnation=incarnation,
        nonce=nonce,
        previous_nonce=previous,
        addresses=addresses,
    )


def where(log: Log) -> list[Any]:
    row = log.rows.get_or(("servers", S2), None)
    return [row["rest_url"], row["link_host"], row["link_port"]]


def test_whatever_process_begins_an_incarnation_is_where_it_says_and_nobody_else_is(log: Log) -> None:
    claim(log, 1, "first", HERE)
    register(log, THERE)
    assert where(log) == HERE, "a copy has registered, and the living one is where it was"
    claim(log, 2, "copy", THERE, previous="first")
    assert where(log) == THERE
    register(log, HERE)
    assert where(log) == THERE
    claim(log, 3, "back", HERE, previous="copy")
    assert where(log) == HERE


def test_a_claim_that_is_refused_moves_nobody(log: Log) -> None:
    claim(log, 1, "first", HERE)
    log.refuses(
        Reason.LEASE_HELD, "lease.claim", server=S2, incarnation=2, nonce="x", previous_nonce="y", addresses=THERE
    )
    log.refuses(
        Reason.LEASE_OVER, "lease.claim", server=S2, incarnation=5, nonce="x", previous_nonce="y", addresses=THERE
    )
    assert where(log) == HERE


def test_the_living_incarnation_may_say_at_any_time_where_it_is(log: Log) -> None:
    """By which a directory of another life, as from a restored log, is put right with the next renewal."""
    claim(log, 1, "first", HERE)
    before = log.rows.get_or(("servers", S2), None)["revision"]
    claim(log, 1, "first", THERE)
    assert where(log) == THERE
    claim(log, 1, "first", THERE)
    assert log.rows.get_or(("servers", S2), None)["revision"] == before + 1, "to say it again changes nothing"


def test_a_server_of_an_earlier_release_says_where_it_is_when_it_registers(log: Log) -> None:
    claim(log, 1, "first", NOWHERE)
    register(log, THERE)
    assert where(log) == THERE


def test_what_is_said_of_another_incarnation_or_by_a_former_office_ends_and_sweeps_nothing(log: Log) -> None:
    log.run("directory.register", row=directory_row("alpha.h1", Role.HOMESERVER).to_data())
    for after in (0, 1):
        log.run("lease.take_office", by="alpha.h1", after=after)
    claim(log, 1, "first", HERE)
    claim(log, 2, "second", HERE, previous="first")
    for other in (0, 1, 3):
        log.refuses(Reason.LEASE_OVER, "lease.expire", server=S2, incarnation=other, office=2)
        log.refuses(Reason.LEASE_OVER, "lease.swept", server=S2, incarnation=other)
    for former in (0, 1, 3):
        log.refuses(Reason.STALE_REVISION, "lease.expire", server=S2, incarnation=2, office=former)
    for never in ("lease.expire", "lease.swept"):
        log.refuses(Reason.LEASE_OVER, never, server="alpha.never", incarnation=1, office=2)
    assert log.run("lease.expire", server=S2, incarnation=2, office=2)["phase"] == "over"
    assert log.run("lease.swept", server=S2, incarnation=2)["phase"] == "over"

"""When the own disk of a server counts, by the log."""

from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import LeaseRow
from tests.authority.log import S1, S2, Log

NONCE = "0" * 32


@pytest.fixture
def leased(log: Log) -> Log:
    """Two servers with leases, both alive, and somebody who grants them."""
    log.run("lease.take_office", by="alpha.h1", after=0)
    for server in (S1, S2):
        log.run("lease.claim", server=server, incarnation=1, nonce=NONCE, previous_nonce="")
        log.swept(server)
    return log


def said(renewal: int, **fields: Any) -> dict[str, Any]:
    return {"server": S1, "incarnation": 1, "office": 1, "renewal": renewal} | fields


def is_sole(answer: Any) -> bool:
    return LeaseRow.from_data(answer).sole


def end(log: Log, server: str) -> None:
    log.run("lease.expire", server=server, incarnation=1, office=1)


def test_a_disk_counts_while_every_other_lease_is_over(leased: Log) -> None:
    leased.refuses(Reason.LEASE_HELD, "lease.sole", **said(3, others=[S2]))
    leased.refuses(Reason.LEASE_HELD, "lease.sole", **said(3, others=[]))
    end(leased, S2)
    leased.refuses(Reason.LEASE_HELD, "lease.sole", **said(3, others=[]))
    leased.refuses(Reason.LEASE_HELD, "lease.sole", **said(3, others=["alpha.s9"]))
    assert is_sole(leased.run("lease.sole", **said(3, others=[S2])))


def test_only_who_grants_leases_says_so_and_only_of_a_living_incarnation(leased: Log) -> None:
    end(leased, S2)
    leased.refuses(Reason.STALE_REVISION, "lease.sole", **said(3, others=[S2], office=0))
    leased.refuses(Reason.LEASE_OVER, "lease.sole", **said(3, others=[S2], incarnation=2))
    end(leased, S1)
    leased.refuses(Reason.LEASE_OVER, "lease.sole", **said(3, others=[S2]))


def test_a_word_that_is_older_than_the_decision_takes_nothing_back(leased: Log) -> None:
    end(leased, S2)
    leased.run("lease.sole", **said(7, others=[S2]))
    for late in (6, 7):
        leased.refuses(Reason.TOO_LATE, "lease.shared", **said(late))
    assert not is_sole(leased.run("lease.shared", **said(8)))


def test_its_next_incarnation_has_the_same_disk_until_it_is_removed(leased: Log) -> None:
    end(leased, S2)
    leased.run("lease.sole", **said(7, others=[S2]))
    end(leased, S1)
    assert is_sole(leased.run("lease.claim", server=S1, incarnation=2, nonce=NONCE, previous_nonce=""))
    leased.run("server.drain", server=S1, drain_id="d", now_s=1.0)
    leased.run("server.remove", server=S1, drain_id="d")
    row = LeaseRow.from_data(leased.rows.get_or(("leases", S1), None))
    assert (row.sole, row.incarnation) == (False, 2)

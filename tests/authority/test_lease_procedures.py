"""Leases in the log: entries of earlier releases."""

from authority.records import Role
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

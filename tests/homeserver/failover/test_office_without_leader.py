"""Who takes the office of granting leases where the store of the log says of nobody that it leads (etcd)."""

from types import SimpleNamespace
from typing import Any

from batonpass.authority.machines.lease import Granter, LeaseTerms
from batonpass.authority.model.records import LeaseOffice, LeaseRow
from batonpass.authority.procedures.lease import lease_office
from batonpass.homeserver.failover.leases import Leases
from tests.homeserver.failover.test_recovery_again import Store


class Offices(Store):
    def lease_office(self) -> LeaseOffice:
        return lease_office(self.log.rows)

    def leases(self) -> list[LeaseRow]:
        return []


class Member:
    """One member that looks now and then, and how long it does until it has the office."""

    def __init__(self) -> None:
        self.store = Offices()
        self.now_ns = 10**12
        store: Any = self.store
        positions: Any = None
        clock: Any = SimpleNamespace(monotonic_ns=lambda: self.now_ns)
        self.leases = Leases(
            "alpha.h1",
            store,
            clock,
            Granter(LeaseTerms(10_000_000_000)),
            lambda: None,
            self.sweep,
            positions,
            lambda *_: None,
            lambda: False,
        )

    async def sweep(self, _row: LeaseRow) -> bool:
        return True

    async def look_ns(self, office: int) -> int:
        """Look until it has this office; the time that it took, in nanoseconds."""
        nursery: Any = SimpleNamespace(start_soon=lambda *_: None)
        began_ns = self.now_ns
        while self.leases.granter.office < office:
            assert self.now_ns < began_ns + 10**11
            self.now_ns += self.leases.terms.look_every_ns
            await self.leases._look(nursery)
        return self.now_ns - began_ns


async def test_an_office_that_somebody_holds_is_taken_when_that_one_was_silent_for_a_term() -> None:
    member = Member()
    assert lease_office(member.store.log.rows).holder
    assert await member.look_ns(2) >= member.leases.terms.granter_ns


async def test_failures_row_42_an_office_that_nobody_holds_is_taken_at_once() -> None:
    """Whoever had it has lost it when the log heard of another history, and no lease shall be over for that."""
    member = Member()
    await member.look_ns(2)
    member.store.log.run("log.parted", office=1, mark="f" * 32)
    await member.look_ns(4)
    assert member.now_ns - 10**12 < 2 * member.leases.terms.granter_ns
    member.store.log.run("log.parted", office=4, mark="e" * 32)
    assert await member.look_ns(6) <= 4 * member.leases.terms.look_every_ns

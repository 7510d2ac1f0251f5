"""What one recovery of an entity has asked for in vain does not hold up the next one."""

from types import SimpleNamespace
from typing import Any

import pytest

from batonpass.actors.base.clock import Bell
from batonpass.authority.model.records import EntityRecord, LeaseRow, RecoveryRow, Role
from batonpass.authority.model.standing import CopySource, LeasePhase, Standing
from batonpass.authority.procedures.lease import find_lease
from batonpass.authority.wire.recovery import AdoptedItem, FoundItem
from batonpass.authority.wire.transfer import Adopt, Adopted, Collect, Collected
from batonpass.homeserver.failover.takeover import Takeovers
from tests.authority.log import ADA, BALL, HOMESERVER, S1, S2, S3, Log, request
from tests.authority.rows import DictRows, directory_row

SERVERS = (S1, S2, S3)


class Store:
    """What a member reads of the log and gives it to do: the real procedures over one tree."""

    def __init__(self) -> None:
        self.log = Log()
        rows = [*((name, Role.SIMSERVER) for name in SERVERS), (HOMESERVER, Role.HOMESERVER)]
        for name, role in rows:
            self.log.run("directory.register", row=directory_row(name, role).to_data())
        self.log.run("lease.take_office", by=HOMESERVER, after=0)
        for name in SERVERS:
            self.log.run("lease.claim", server=name, incarnation=1, nonce=name, previous_nonce="")
            self.log.swept(name)
        self.log.run("entity.create", entity=BALL, kind="ball", spawner=ADA, server=S1, rule="allow")

    @property
    def tree(self) -> DictRows:
        return self.log.rows

    async def confirmed(self) -> None: ...

    async def submit(self, procedure: str, **args: Any) -> Any:
        return self.log.run(procedure, **args)

    def entity(self, entity: str) -> EntityRecord | None:
        data = self.log.rows.get_or(("entities", entity), None)
        return None if data is None else EntityRecord.from_data(data)

    def recovery(self, entity: str) -> RecoveryRow | None:
        data = self.log.rows.get_or(("recoveries", entity), None)
        return None if data is None else RecoveryRow.from_data(data)

    def takeovers(self) -> list[RecoveryRow]:
        row = self.recovery(BALL)
        return [] if row is None else [row]

    def entities_of(self, server: str) -> list[EntityRecord]:
        record = self.entity(BALL)
        return [record] if record is not None and record.authority == server else []

    def lease(self, server: str) -> LeaseRow:
        row = find_lease(self.log.rows, server)
        assert row is not None
        return row

    def leases(self) -> list[LeaseRow]:
        return [self.lease(name) for name in SERVERS]

    def away(self) -> list[LeaseRow]:
        return [row for row in self.leases() if row.phase is LeasePhase.OVER]

    def simserver_names(self) -> list[str]:
        return list(SERVERS)

    def row(self, server: str) -> str:
        return server

    def drain(self, server: str) -> None:
        return None


class Play:
    """One member that has the office all the time, and servers that answer at once."""

    def __init__(self) -> None:
        self.store = Store()
        self.copies: dict[str, FoundItem] = {}
        self.asked: list[str] = []
        self.now_ns = 1_000_000_000
        clock: Any = SimpleNamespace(monotonic_ns=lambda: self.now_ns, bell=Bell, unix_s=lambda: 1.0)
        store: Any = self.store
        self.takeovers = Takeovers(store, self.post, clock, lambda: True)

    async def post(self, message: Any, _trace: object, server: str, **_: object) -> None:
        if isinstance(message, Collect):
            self.asked.append(server)
            items = [self.copies[server]] if server in self.copies else []
            incarnation = self.store.lease(server).incarnation
            self.takeovers.collected(Collected(number=message.number, incarnation=incarnation, items=items), server)
        elif isinstance(message, Adopt):
            items_ = [AdoptedItem(entity=one.entity, epoch=one.epoch, sub=one.sub) for one in message.items]
            self.takeovers.adopted(Adopted(items=items_), server)

    async def look(self, times: int = 3) -> None:
        for _time in range(times):
            self.now_ns += 250_000_000
            await self.takeovers._look()

    async def dies(self, server: str) -> None:
        self.store.log.run("lease.expire", server=server, incarnation=self.store.lease(server).incarnation, office=1)
        assert await self.takeovers.sweep(self.store.lease(server))
        self.store.log.swept(server)

    async def returns(self, server: str) -> None:
        incarnation = self.store.lease(server).incarnation + 1
        self.store.log.run(
            "lease.claim", server=server, incarnation=incarnation, nonce=f"n{incarnation}", previous_nonce=""
        )
        await self.takeovers.sweep(self.store.lease(server))
        self.store.log.swept(server)

    def goes(self, name: str, source: str, target: str) -> None:
        epoch = self.record.epoch
        args = request(name, target, source=source, epoch=epoch)
        assert self.store.log.run("transfer.commit", **args)["outcome"] == "committed"
        self.store.log.run("transfer.report", transfer_id=name, source=source, report={})

    def has(self, server: str, tick: int, source: CopySource) -> None:
        epoch = self.record.epoch
        self.copies[server] = FoundItem(entity=BALL, epoch=epoch, sub=0, tick=tick, state_hash="0" * 64, source=source)

    @property
    def record(self) -> EntityRecord:
        record = self.store.entity(BALL)
        assert record is not None
        return record


@pytest.mark.parametrize("hands_over_at_once", [True, False])
async def test_what_was_lost_once_is_looked_for_at_the_next_death_though_the_same_servers_are_left(
    hands_over_at_once: bool,
) -> None:
    """Its authority may hand it over before this member looks again; the log alone has heard that it goes on then."""
    play = Play()
    play.has(S1, 5, CopySource.CHECKPOINT)
    found_on_its_disk = play.copies.pop(S1)
    await play.dies(S1)
    await play.look()
    assert (play.record.standing, play.asked) == (Standing.LOST, [S2, S3])

    await play.returns(S1)
    play.copies[S1] = found_on_its_disk
    await play.look(1 if hands_over_at_once else 3)
    assert play.record.authority == S1
    play.goes("transfer-1", S1, S2)
    await play.look()
    play.goes("transfer-2", S2, S1)
    await play.look()
    assert play.store.takeovers() == []

    play.copies.clear()
    play.has(S2, 9000, CopySource.BACKUP_REPLICA)
    await play.dies(S1)
    await play.look()
    assert (play.record.authority, play.record.standing) == (S2, Standing.SIMULATED)
    assert not play.takeovers._in_vain_for, "nothing is remembered of what is over"

"""The leases of one home instance: which homeserver grants them, which servers lost them, and what is taken from these.

Real: `Granter`, and the log's procedures. As `homeserver.failover.leases`, `homeserver.failover.takeover.sweep` and
`homeserver.failover.foreign_custody`.
"""

from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import MAX_EPOCH
from batonpass.authority.machines.lease import Granter
from batonpass.authority.model.records import EntityRecord, LeaseRow
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.names import instance_of
from batonpass.authority.wire.lease import LeaseOf
from batonpass.authority.wire.recovery import RaisedItem
from batonpass.authority.wire.transfer import LeaseInquiry, LeaseWord, Renew, RenewReply
from batonpass.scenarios.simulation.machines.keeping import first_nonce
from batonpass.scenarios.simulation.machines.recovering import Recovering, There

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.machines.home import MachineHome

__all__ = ["Granting"]

_ASK_S: Final = 0.5


class Granting:
    """Grants leases while a member leads the log."""

    def __init__(self, home: "MachineHome", granter: Granter) -> None:
        self._home: Final = home
        self._schedule: Final = home.schedule
        self.granter: Final = granter
        self.recovering: Final = Recovering(home, self)
        self._words: Final[dict[str, tuple[float, LeaseWord]]] = {}
        self._asked_s: Final[dict[int, tuple[str, float]]] = {}
        self._read: Final[dict[str, tuple[Any, LeaseRow | None]]] = {}
        self._number = 0

    @property
    def _now_ns(self) -> int:
        return round(self._schedule.now_s * 1e9)

    def begin(self, servers: tuple[str, ...]) -> None:
        """Every server has a lease when a run begins."""
        for server in servers:
            self._home.run("lease.claim", server=server, incarnation=1, nonce=first_nonce(server), previous_nonce="")
            self._home.run("lease.swept", server=server, incarnation=1)
        self.take_office()
        self._look()
        self._schedule.after(_ASK_S, self._ask)

    def take_office(self) -> None:
        """A member leads the log, again perhaps: it gives every server a full term."""
        office = self._home.rows.data.get(("lease_office",), {"number": 0})
        taken = self._home.run("lease.take_office", by=self._home.name, after=office["number"])
        self.granter.took_office(taken["number"], self._now_ns)

    def leave_office(self) -> None:
        """No member leads the log."""
        self.granter.left_office()

    # --- renewing --------------------------------------------------------------------------------------------------

    def lease(self, server: str) -> LeaseRow | None:
        """What the log says of a lease."""
        row = self._home.rows.data.get(("leases", server))
        if row is None:
            return None
        known, lease = self._read.get(server, (None, None))
        if known is not row or lease is None:
            # Asked for all the time, and written seldom.
            lease = LeaseRow.from_data(row)
            self._read[server] = (row, lease)
        return lease

    def leases(self) -> list[LeaseRow]:
        """All of them."""
        return [lease for server in self._home.rows.children(("leases",)) if (lease := self.lease(server)) is not None]

    def renew(self, message: Renew, sender: str) -> None:
        """A server renews its lease, or begins an incarnation."""
        verdict, known = self._verdict(message)
        peers = [row.server for row in self.leases() if row.phase is LeasePhase.ALIVE]
        reply = RenewReply(
            server=message.server,
            incarnation=message.incarnation,
            renewal=message.renewal,
            verdict=verdict,
            known=known,
            term_ms=self.granter.terms.granter_ns // 1_000_000,
            peers=peers,
        )
        self._home.send(sender, reply)

    def _verdict(self, message: Renew) -> tuple[Any, int]:
        row = self.lease(message.server)
        if row is None or (row.incarnation, row.nonce) != (message.incarnation, message.nonce):
            args = {"server": message.server, "incarnation": message.incarnation, "nonce": message.nonce}
            try:
                self._home.run("lease.claim", **args, previous_nonce=message.previous_nonce)
            except Refused as refused:
                is_held = refused.reason is Reason.LEASE_HELD
                return ("held" if is_held else "over"), int(refused.details["incarnation"])
            self._home.claimed(message.server)
        if not self.granter.heard(message.server, message.incarnation, message.renewal, self._now_ns):
            return "elsewhere", 0
        row = self.lease(message.server)
        if row is None or row.incarnation != message.incarnation or row.phase is LeasePhase.OVER:
            return "over", 0 if row is None else row.incarnation
        return ("granted" if row.phase is LeasePhase.ALIVE else "returning"), row.incarnation

    # --- looking around --------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._schedule.after(self.granter.terms.look_every_ns / 1e9, self._look)
        if self._home.is_away or not self.granter.office:
            return
        rows = self.leases()
        alive = [(row.server, row.incarnation) for row in rows if row.phase is not LeasePhase.OVER]
        late = self.granter.overdue(alive, self._now_ns)
        for server, incarnation in late:
            self._home.run("lease.expire", server=server, incarnation=incarnation, office=self.granter.office)
            self._home.expired(server)
        for row in rows:
            if not row.swept and (row.server, row.incarnation) not in late:
                self._sweep(row)
        self.recovering.look()

    def _left_behind(self, lease: LeaseRow) -> list[EntityRecord]:
        home = self._home
        return [
            record
            for name in home.rows.children(("entities",))
            if home.rows.data["entities", name].get("authority") == lease.server
            and lease.has_outlived((record := home.record(name)).incarnation)
        ]

    def _sweep(self, lease: LeaseRow) -> None:
        """Take from a server what it simulated before its lease was over, or before it came back."""
        records = self._left_behind(lease)
        self._take(lease.server, [record for record in records if not record.delegation])
        delegated = [record for record in records if record.delegation]
        if delegated:
            items = tuple(RaisedItem(entity=one.id, epoch=one.epoch, sub=MAX_EPOCH) for one in delegated)
            asked = {name: number for name, number in self.alive().items() if name != lease.server}

            def decide(answers: Any) -> None:
                now = {name: number for name, number in self.alive().items() if name != lease.server}
                if not now.items() - asked.items():
                    held = {item.entity for found in answers.values() for item in found if item.holds}
                    self._take(lease.server, [one for one in delegated if one.id not in held])

            self.recovering.ask(("sweep", lease.server), lambda _: items, There(asked), decide)
        if not self._left_behind(lease):
            seen = {"late": lease.late, "phase": lease.phase.value}
            self._home.run("lease.swept", server=lease.server, incarnation=lease.incarnation, **seen)

    def _take(self, server: str, records: list[EntityRecord]) -> None:
        if records:
            entities = [[record.id, record.epoch, record.sub] for record in records]
            self._home.run("recovery.begin", server=server, entities=entities)

    def alive(self) -> dict[str, int]:
        """The servers of this instance whose leases last, or that are coming back, with their incarnations."""
        return {row.server: row.incarnation for row in self.leases() if row.phase is not LeasePhase.OVER}

    def there(self) -> There:
        """Every server of this instance."""
        away = frozenset(row.server for row in self.leases() if row.phase is LeasePhase.OVER)
        return There(self.alive(), away)

    def there_too(self, instances: tuple[str, ...], since_s: float) -> There | None:
        """Every server of this instance and of these, as they have said in answer to what was asked since; or None."""
        there = self.there()
        for instance in instances:
            asked_s, word = self._words.get(instance, (0.0, None))
            if word is None or asked_s < since_s:
                return None
            alive = {one.server: one.incarnation for one in word.alive}
            away = {one.server for one in word.over} - alive.keys()
            there = There({**there.alive, **alive}, there.away | away)
        return there

    # --- servers of other instances --------------------------------------------------------------------------------

    def _abroad(self) -> dict[str, list[EntityRecord]]:
        home = self._home
        found: dict[str, list[EntityRecord]] = {}
        for name in home.rows.children(("entities",)):
            authority = home.rows.data["entities", name].get("authority", "")
            if authority and instance_of(authority) != home.instance:
                found.setdefault(instance_of(authority), []).append(home.record(name))
        return found

    def _ask(self) -> None:
        """Ask other homes whether their servers that have entities of this one are dead, and which are alive."""
        self._schedule.after(_ASK_S, self._ask)
        home = self._home
        if home.is_away:
            return
        for instance, other in home.others.items():
            leases = {(one.authority, one.incarnation) for one in self._abroad().get(instance, ())}
            leases |= {(way.source, way.source_incarnation) for way in home.unreported.values()
                       if instance_of(way.source) == instance}  # fmt: skip
            self._number += 1
            self._asked_s[self._number] = (instance, self._schedule.now_s)
            named = [LeaseOf(server=server, incarnation=number) for server, number in sorted(leases)]
            home.send(other, LeaseInquiry(number=self._number, leases=named, who_is_alive=True))

    def inquired(self, message: LeaseInquiry, sender: str) -> None:
        """The home of entities that servers of this instance have asks about these."""
        over = [one for one in message.leases
                if (known := self.lease(one.server)) is not None and known.has_outlived(one.incarnation)]  # fmt: skip
        alive = [LeaseOf(server=server, incarnation=number) for server, number in self.alive().items()]
        over += [LeaseOf(server=one.server, incarnation=one.incarnation)
                 for one in self.leases() if one.phase is LeasePhase.OVER]  # fmt: skip
        self._home.send(sender, LeaseWord(number=message.number, over=over, alive=alive))

    def told(self, message: LeaseWord) -> None:
        """Another home says which of its servers are dead: for ever."""
        instance, asked_s = self._asked_s.pop(message.number, ("", 0.0))
        if not instance or asked_s <= self._words.get(instance, (0.0, None))[0]:
            return
        self._words[instance] = (asked_s, message)
        over = {(one.server, one.incarnation) for one in message.over}
        records = self._abroad().get(instance, [])
        for lease in sorted({(one.authority, one.incarnation) for one in records} & over):
            entities = [[one.id, one.epoch, one.sub] for one in records if (one.authority, one.incarnation) == lease]
            self._home.run("recovery.begin_abroad", server=lease[0], incarnation=lease[1], entities=entities)

    def is_over(self, server: str, incarnation: int) -> bool:
        """Whether an incarnation of a server of any instance is dead, as far as is known here."""
        instance = instance_of(server)
        if instance == self._home.instance:
            known = self.lease(server)
            return known is not None and known.has_outlived(incarnation)
        _, word = self._words.get(instance, (0.0, None))
        return word is not None and any((one.server, one.incarnation) == (server, incarnation) for one in word.over)

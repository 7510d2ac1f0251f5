"""What is watched of owners that go away, and of entities whose servers die: each has a policy of its own.

A player that is heard of is never taken for gone, and one that has gone loses what its policies take from it. Nothing
ends by itself whose policy does not say so.
"""

from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.model.leave_policy import LeavePolicy
from batonpass.authority.model.records import EntityRecord, LeaseRow, RecoveryRow
from batonpass.authority.model.standing import LeasePhase, OrphanPolicy
from batonpass.authority.names import instance_of

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["Absences"]

_BLINK_S: Final = 1.0
"""How much less than its timeout a player may have been silent: what it had sent before may have been lost."""


def _may_own(before: EntityRecord, owner: str) -> bool:
    """Whether an entity may be this player's, or without owner, once the owner of `before` has gone."""
    match before.on_leave:
        case LeavePolicy.ADOPT:
            return owner != before.owner
        case LeavePolicy.DIVEST | LeavePolicy.FREEZE:
            return not owner
        case _:
            return False


class Absences:
    """Looks at what the logs do to entities, and remembers what they were before."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        self._before: dict[str, EntityRecord] = {}
        self.ended: Final[dict[str, None]] = {}
        """Entities that are no more."""

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log of an instance has done something."""
        if procedure == "recovery.finish":
            self._gone_on_with(instance, args["items"])
        for entity in self._cluster.entities:
            if instance_of(entity) != instance or entity in self.ended:
                continue
            record, before = self._cluster.record(entity), self._before.get(entity)
            if before is not None:
                self._changed(procedure, before, record)
            if record is None:
                self.ended[entity] = None
            else:
                self._before[entity] = record

    def _changed(self, procedure: str, before: EntityRecord, now: EntityRecord | None) -> None:
        judge = self._cluster.judge
        is_absence = procedure in ("entity.owner_silent", "entity.owner_left")
        if now is None:
            is_orphan = procedure.startswith("recovery.") and before.orphans is OrphanPolicy.DESPAWN
            if (
                procedure != "entity.delete"
                and not is_orphan
                and not (is_absence and before.on_leave is LeavePolicy.DESPAWN)
            ):
                judge.violated("ended", f"{procedure} ended {before.id}, which {before.on_leave} and {before.orphans}")
        elif is_absence and now.owner_rev != before.owner_rev and not _may_own(before, now.owner):
            judge.violated("owner", f"{procedure} gave {before.id} to {now.owner}, and its policy is {before.on_leave}")
        has_lost = now is None or now.owner_rev != before.owner_rev
        if procedure == "entity.owner_silent" and has_lost:
            silent_s = self._silent_s(before.owner)
            if silent_s < before.owner_timeout_s - _BLINK_S:
                text = f"{before.owner} lost {before.id} after {silent_s:.3f} s of {before.owner_timeout_s}"
                judge.violated("owner", text)

    def _silent_s(self, name: str) -> float:
        (silent_s,) = [player.silent_s() for player in self._cluster.players if player.name == name]
        return silent_s

    def _gone_on_with(self, instance: str, items: Any) -> None:
        """What waits for the return of its server is not gone on with elsewhere before."""
        store = self._cluster.logs[instance].store
        for item in items:
            data = store.get_or(("recoveries", item["entity"]), None)
            row = None if data is None else RecoveryRow.from_data(data)
            is_elsewhere = row is not None and row.held and row.target not in ("", row.last)
            if row is not None and is_elsewhere and not self._is_back(row.last) and not self._is_removed(row, instance):
                text = f"{row.target} is to resume {row.entity}, which waits for {row.last}"
                self._cluster.judge.violated("held", text)

    def _is_removed(self, row: RecoveryRow, instance: str) -> bool:
        """Whether the server for which an entity waits is dead for good, and people have said so at its home."""
        store = self._cluster.logs[instance].store
        return instance_of(row.last) == instance and store.get_or(("servers", row.last), None) is None

    def _is_back(self, server: str) -> bool:
        data = self._cluster.logs[instance_of(server)].store.get_or(("leases", server), None)
        return data is not None and LeaseRow.from_data(data).phase is not LeasePhase.OVER

    def unsettled(self) -> str:
        """What has not been done about a player who has gone, in a sentence; empty when all is done."""
        absent = {player.name for player in self._cluster.players if player.is_absent}
        for entity in self._cluster.entities:
            record = self._cluster.record(entity)
            if record is None:
                if where := [name for name, server in self._cluster.servers.items() if server.holding(entity)]:
                    return f"{entity} is no more, and {where} still have it"
                continue
            is_due = record.owner in absent and record.owner_timeout_s and record.on_leave is not LeavePolicy.KEEP
            if is_due and not self._cluster.left_out(entity):
                return f"{record.owner} has gone and still owns {entity}"
        return ""

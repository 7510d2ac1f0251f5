"""What is watched of hierarchies: an entity that is together with its parent stays so when either is moved.

Attaching moves nothing, and what a dead server leaves continues where its copies are. So two that belong together may
be apart, and come together with the next move. What must not be is a step of the log that moves one and leaves the
other.
"""

from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.model.records import EntityRecord, GroupPhase, GroupRecord
from batonpass.authority.names import instance_of

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["Families"]


class Families:
    """Looks at every entity of an instance whenever its log has done something."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        self._together: Final[dict[str, str]] = {}
        """The parent with which each was at one server when the log last did something."""

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log of an instance has done something."""
        cluster = self._cluster
        records = {one: cluster.record(one) for one in cluster.entities if instance_of(one) == instance}
        for child, record in records.items():
            parent = None if record is None else records.get(record.parent)
            before = self._together.pop(child, "")
            if record is None or parent is None:
                continue
            if record.authority == parent.authority:
                self._together[child] = parent.id
            elif before == parent.id and not _is_dead(record, parent) and not procedure.startswith("recovery."):
                text = f"{procedure} took {child} to {record.authority} and {parent.id} to {parent.authority}"
                cluster.judge.violated("torn", text)

    def unsettled(self) -> str:
        """What is divided in the end: of all that the logs know to move together."""
        for log in self._cluster.logs.values():
            names = log.store.children(("groups",)) if log.store.exists(("groups",)) else ()
            for name in names:
                group = GroupRecord.from_data(log.store.get(("groups", name)))
                if group.phase is GroupPhase.OPEN:
                    continue
                if why := self._cluster.why_divided(name):
                    return why
        return ""


def _is_dead(*records: EntityRecord) -> bool:
    return any(not record.authority for record in records)

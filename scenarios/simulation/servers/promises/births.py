"""Entities that are created and deleted while a run continues, and what must hold of them.

A creation that is repeated creates once, and what was answered is there until it is deleted. What was deleted is gone
for good. Its name is not given again, no server that has heard of it simulates it, and in the end all have heard.
"""

from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.model.records import EntityRecord
from batonpass.authority.names import instance_of

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["BirthWatcher"]


class BirthWatcher:
    """Looks at what the logs do, and remembers what people were told."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        self.wanted: Final[dict[str, object]] = {}
        """Entities whose creation or deletion was asked for and not answered."""
        self.ended: Final[dict[str, None]] = {}
        """Entities that were deleted."""
        self.born = 0
        self.acknowledged = 0
        """Inputs of entities that were deleted since."""

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log of an instance has done something."""
        if procedure == "entity.delete":
            self._end(args["entity"])
        elif procedure == "entity.create" and args["entity"] in self.ended:
            self._cluster.judge.violated("name", f"{args['entity']} was deleted, and its name is given again")

    def _end(self, entity: str) -> None:
        if entity not in self.ended:
            self._cluster.schedule.note(f"{entity} is deleted")
            self.ended[entity] = None
        if entity in self._cluster.entities:
            self._cluster.entities.remove(entity)
            for player in self._cluster.players:
                stream = player.streams.pop(entity, None)
                self.acknowledged += 0 if stream is None else stream.acknowledged

    def answered(self, record: EntityRecord) -> None:
        """A player was told that an entity lives: from now on it must, and others know of it."""
        cluster = self._cluster
        if record.id in self.ended or record.id in cluster.entities:
            return
        cluster.schedule.note(f"{record.id} is said to live on {record.authority}")
        self.born += 1
        cluster.entities.append(record.id)
        for player in cluster.players:
            player.follow(record)

    def unsettled(self) -> str:
        """What has not come to its end, in a sentence; empty when all has."""
        cluster = self._cluster
        if self.wanted:
            return f"{', '.join(self.wanted)}: its requester was not told what became of that"
        for entity in self.ended:
            if where := [name for name, server in cluster.servers.items() if server.holding(entity)]:
                return f"{entity} was deleted, and {where} still have it"
        for instance, log in cluster.logs.items():
            if log.store.exists(("farewells",)) and (left := list(log.store.children(("farewells",)))):
                return f"{instance} still has servers told that {left} are no more"
        for name, server in cluster.servers.items():
            for holding in server.node.holdings if server.process.is_running else ():
                if cluster.logs[instance_of(holding.id)].store.get_or(("entities", holding.id), None) is None:
                    return f"{name} has {holding.id}, of which the log has no record"
        return ""

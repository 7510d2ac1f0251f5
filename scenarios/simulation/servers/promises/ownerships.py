"""What is watched of owners: an authority hears soon that the log has given an entity another owner.

Until then it takes the former owner's inputs and refuses the new one's. Where nothing is lost that is a matter of
messages, however the entity moves meanwhile; else of how often home is asked (`simserver.owners.inactivity`).
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.names import instance_of

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["Ownerships"]


class Ownerships:
    """Looks at every entity of an instance whenever its log has done something, and a while later."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        self._revs: Final[dict[str, int]] = {}

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log of an instance has done something."""
        cluster, heard_s = self._cluster, self._cluster.mix.owner_heard_s
        for entity in cluster.entities if heard_s else ():
            record = cluster.record(entity) if instance_of(entity) == instance else None
            if record is not None and record.owner_rev > self._revs.get(entity, 1):
                self._revs[entity] = record.owner_rev
                cluster.schedule.after(heard_s, partial(self._must_be_heard, entity, record.owner_rev, procedure))

    def _must_be_heard(self, entity: str, owner_rev: int, procedure: str) -> None:
        """By now; a frozen entity takes no inputs, and its server need not say it on before it has left."""
        for name, server in self._cluster.servers.items():
            holding = server.holding(entity)
            if holding is not None and server.may_simulate(entity) and holding.life.ownership.rev < owner_rev:
                owner, rev, _ = holding.life.ownership
                told = f"{procedure} made ownership {owner_rev}, and {self._cluster.mix.owner_heard_s} s later"
                self._cluster.judge.violated("owner-heard", f"{told} {name} has {entity} as {owner}'s, by {rev}")

    def unsettled(self) -> str:
        """The servers that believe something else than the log in the end."""
        cluster = self._cluster
        for entity in cluster.entities:
            record = cluster.record(entity)
            server = None if record is None else cluster.servers.get(record.authority)
            holding = None if server is None else server.holding(entity)
            if record is None or holding is None or cluster.left_out(entity):
                continue
            owner, rev, suspended = holding.life.ownership
            if (owner, rev) != (record.owner, record.owner_rev):
                log = f"the log says {record.owner}, by {record.owner_rev}"
                return f"{record.authority} has {entity} as {owner}'s, by {rev}, and {log}"
            if bool(suspended) is not record.stands_still:
                return f"{record.authority} has {entity} suspended: {suspended}; the log: {record.stands_still}"
        return ""

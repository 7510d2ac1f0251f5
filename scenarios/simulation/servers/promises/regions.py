"""What is promised of regions: servers follow the table of their log, and in the end entities are where they belong."""

import math
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.names import instance_of
from batonpass.scenarios.simulation.servers.world import Roaming

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["RegionsInTheEnd"]


class RegionsInTheEnd:
    """Looks at every change of a table, and at servers and entities when all is well."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        self._revisions: Final[dict[str, int]] = {}

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """A log has done something: after a change of its table, its cells are all of space, under a later revision."""
        if not procedure.startswith("region"):
            return
        table, violated = self._cluster.store_of(instance).regions(), self._cluster.judge.violated
        if table is None:
            return
        before = self._revisions.get(instance, 0)
        if table.revision < before:
            violated("regions-went-back", f"{instance} has revision {table.revision} after {before}")
        self._revisions[instance] = table.revision
        for cell in table.cells:
            if all(map(math.isfinite, cell.low)) and table.cell_at(cell.low) != cell.name:
                violated("regions-overlap", f"{instance} has {cell.name} and {table.cell_at(cell.low)} at {cell.low}")

    def unsettled(self) -> str:
        """What does not follow the table yet; empty if nothing."""
        for server in self._cluster.servers.values():
            if server.process.is_running and (why := self._why_not_followed(server.name)):
                return why
        return ""

    def _why_not_followed(self, name: str) -> str:
        node, table = self._cluster.servers[name].node, self._cluster.store_of(instance_of(name)).regions()
        if node.environment.regions.table != table:
            return f"{name} follows {node.environment.regions.table}, and the log has {table}"
        if table is None:
            return ""
        cluster, store = self._cluster, self._cluster.store_of(instance_of(name))
        there = [one for one in cluster.servers_of(instance_of(name)) if one not in cluster.gone]
        if any(store.drain(one) is None for one in there) and (dead := table.servers & cluster.gone.keys()):
            return f"{min(dead)} is dead for good, and has cells of {table}"
        for holding in node.holdings:
            life = holding.life
            if self._cluster.left_out(holding.id) or life.frozen or life.quarantine_reason:
                continue
            target = table.wanted(Roaming.position(life.look()), name)
            # While every server that lives is drained, no cell finds another one: what is in it stays where it is.
            if target is not None and target not in cluster.gone:
                return f"{holding.id} is on {name}, and belongs to {target}"
        return ""

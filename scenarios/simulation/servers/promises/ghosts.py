"""What is watched of ghosts: each is of what was so, on the server that it names, and none is shown for too long.

Every state that a server commits is noted; every ghost that a server has when it ticks is compared with them.
"""

from math import dist
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import Outcome, Rule
from batonpass.authority.names import instance_of
from batonpass.authority.wire.neighbours import Ghosts
from batonpass.scenarios.simulation.servers.world import PLACE
from batonpass.simserver.entity.state import Life
from batonpass.simserver.neighbours.ghost_table import Ghost
from batonpass.simserver.neighbours.surroundings import MAX_AGE_NS

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster
    from batonpass.scenarios.simulation.servers.simserver import SimulationServer

__all__ = ["GhostWatch", "GhostsInTheEnd"]

_LINGERS_S: Final = MAX_AGE_NS / 1e9 + 0.2
"""For so long at most a ghost is shown after its server was heard of last: clocks of servers drift."""
_CLOSE_SHARE: Final = 0.5
"""Of the reach: what is so close to an entity of a server has a ghost there."""
_LATE_TICKS: Final = 20


class GhostWatch:
    """The judge of the ghosts of a cluster."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        self._was: Final[dict[tuple[str, int], dict[Fence, Any]]] = {}
        self._heard_s: Final[dict[tuple[str, str], float]] = {}
        self.seen = 0
        self.contacts = 0

    def was(self, life: Life) -> None:
        """A server has committed this."""
        self._was.setdefault((life.id, life.tick), {})[life.fence] = life.look().get(PLACE)

    def heard(self, server: str, sender: str, message: Any) -> None:
        """A server has a message of another one; late perhaps, if it was paused or that one is dead."""
        if isinstance(message, Ghosts):
            self._heard_s[server, sender] = self._cluster.schedule.now_s

    def looks(self, server: "SimulationServer") -> None:
        """A server has ticked: these are its ghosts."""
        neighbours = server.node.neighbours
        for ghost in () if neighbours is None else neighbours.ghosts():
            self.seen += 1
            self._look(server, ghost)

    def _look(self, server: "SimulationServer", ghost: Ghost) -> None:
        judge, one = self._cluster.judge, ghost.neighbour
        judge.shows(f"ghosts of {server.name}", one.entity, one.fence, one.tick)
        told = f"{server.name} shows the ghost of {one.entity} of {one.server} under {one.fence} at {one.tick}"
        _, newest = judge.newest(one.entity)
        if one.fence > newest:
            judge.violated("ghost-ahead", f"{told}, and nothing was simulated under more than {newest}")
        holding = server.holding(one.entity)
        if holding is not None and holding.fence >= one.fence:
            judge.violated("ghost-of-own", f"{told}, and has it under {holding.fence}")
        known = self._was.get((one.entity, one.tick), {})
        state = one.state.get(PLACE)
        if one.fence in known and known[one.fence] != state:
            judge.violated("ghost-state", f"{told} as {state}, and it was {known[one.fence]}")
        elif state not in known.values():
            judge.violated("ghost-state", f"{told} as {state}, which it never was at that tick")
        now_s = self._cluster.schedule.now_s
        if now_s - self._heard_s.get((server.name, one.server), 0.0) > _LINGERS_S:
            judge.violated("ghost-lingers", f"{told}, and has not heard of that server for {_LINGERS_S} s")


class GhostsInTheEnd:
    """What every server has to show when all is well: what is close to its own entities."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        self._judged: Final[set[tuple[str, int]]] = set()

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log of an instance has done something: by a contact nothing may move against its rule.

        A server repeats its request until it hears the answer. Owners may be others by then, and count for nothing.
        """
        if procedure != "transfer.commit" or not args.get("contact") or answer["outcome"] != Outcome.COMMITTED:
            return
        commit = (args["transfer_id"], answer["transfer"]["epoch"])
        if commit in self._judged:
            return
        self._judged.add(commit)
        self._cluster.ghost_watch.contacts += 1
        record, target = self._cluster.record(args["entity"]), args["target"]
        if record is None or record.rule is Rule.ALLOW:
            return
        # The log of the entity knows no other instance's records.
        met = self._cluster.record(args["contact"]) if instance_of(args["contact"]) == instance else None
        asker = met.owner if met is not None and met.authority == target and met.owner else target
        if asker not in (record.owner, record.master):
            told = f"{args['entity']} has met {args['contact']} and went to {target}"
            self._cluster.judge.violated("contact-against-rule", f"{told}, and its rule is {record.rule}")

    def unsettled(self) -> str:
        """Which ghost is missing; empty if none is."""
        running = [one for one in self._cluster.servers.values() if one.process.is_running]
        pairs = [(one, other) for one in running for other in running if other is not one]
        alike = [pair for pair in pairs if instance_of(pair[0].name) == instance_of(pair[1].name)]
        return next((why for one, other in alike if (why := self._missing(one, other))), "")

    @staticmethod
    def _missing(server: "SimulationServer", other: "SimulationServer") -> str:
        here, there = server.node.neighbours, other.node.neighbours
        if here is None or there is None:
            return ""
        close = here.surroundings.reach * _CLOSE_SHARE
        for one in there.surroundings.own:
            if all(dist(one.position, own.position) > close for own in here.surroundings.own):
                continue
            ghost = here.surroundings.table.get(one.entity)
            if ghost is None or ghost.neighbour.fence != one.fence or ghost.neighbour.tick < one.tick - _LATE_TICKS:
                return f"{server.name} has {ghost} of {one.entity}, which {other.name} has under {one.fence}"
        return ""

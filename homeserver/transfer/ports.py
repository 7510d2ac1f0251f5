"""What a homeserver stands on. `homeserver.server.main` has that of one that runs, the simulation another."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from batonpass.actors.base.clock import Clock
from batonpass.authority.names import instance_of
from batonpass.authority.node.breakpoints import BreakpointReached
from batonpass.authority.node.spans import Spans
from batonpass.authority.wire.sealing import Sealer
from batonpass.homeserver.log.log_positions import LogPositions
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import Federation
from batonpass.homeserver.transfer.group_commit import Gather
from batonpass.homeserver.transfer.parcels import Post

__all__ = ["BesideEachOther", "HomeserverPorts"]

BesideEachOther = Callable[[Sequence[Callable[[], Awaitable[None]]]], Awaitable[None]]
"""Does all of these, none of which waits for another."""


@dataclass(frozen=True)
class HomeserverPorts:
    """What a homeserver stands on.

    Args:
        sealer: its name and keys.
        leads: whether this member leads its instance, as far as it knows.
        leads_log: whether it leads the log now; None if that has no leader among the members.
        is_better_elsewhere: whether the office of granting leases is left to others; see `Clocks`.
        reached: where tests interrupt it.
        beside_each_other: how several messages are dealt with at the same time.
        gather: how creations that are asked for at the same moment share a step of the log.
    """

    sealer: Sealer
    store: InstanceStore
    directory: Directory
    federation: Federation
    post: Post
    positions: LogPositions
    clock: Clock
    spans: Spans
    leads: Callable[[], bool]
    leads_log: Callable[[], bool | None]
    is_better_elsewhere: Callable[[], bool]
    reached: BreakpointReached
    beside_each_other: BesideEachOther
    gather: Gather

    @property
    def name(self) -> str:
        """This homeserver."""
        return self.sealer.name

    @property
    def instance(self) -> str:
        """Its instance."""
        return instance_of(self.sealer.name)

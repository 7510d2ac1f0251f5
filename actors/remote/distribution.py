"""`Distribution`: actors of one system talk to those of others, over one channel of the sealed link.

    distribution = Distribution(system, link, addresses)          # in the composition root
    ... ServiceSpec("distribution", distribution.serve) ...       # a child after the link
    distribution.publish("counter", system.named("counter"))      # nothing is reachable that was not shown

    counter = system.remote("beta.s1").named("counter")           # on another node
    await counter.call("get")

Here the parts are wired: `Switchboard` (the connections, the link and the clock), `Router` (what is asked here of
others), a `Desk` for each peer (what it asks of actors here), `NodeReferences` and `Codec` (what travels).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, final

import trio

from batonpass.actors.core.timers import Tick
from batonpass.actors.remote.codec import Codec
from batonpass.actors.remote.desk import Desk
from batonpass.actors.remote.peer import PeerState
from batonpass.actors.remote.proxies import RemoteNamed
from batonpass.actors.remote.references import NodeReferences
from batonpass.actors.remote.router import Router
from batonpass.actors.remote.seals import SECRET_BYTES, Seals
from batonpass.actors.remote.settings import DISTRIBUTION_CHANNEL, DistributionSettings
from batonpass.actors.remote.switchboard import Switchboard
from batonpass.crypto.names import is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from batonpass.actors.core.named import Named
    from batonpass.actors.core.ref import Ref
    from batonpass.actors.core.system import System
    from batonpass.actors.remote.switchboard import AddressBook, Carrier, Slot


@final
class Distribution:
    """See the head of the module.

    `system` and `link` have one name, which is what peers call this node. `addresses` finds nodes that have not written
    first; without it only those that have can be reached. Peers named in `controllers` may end actors here: exit, kill,
    stop, and link to those that do not trap exits. `codec` has the types that were registered for messages.
    """

    def __init__(
        self,
        system: System,
        link: Carrier,
        addresses: AddressBook | None = None,
        *,
        codec: Codec | None = None,
        controllers: Container[str] = (),
        channel: int = DISTRIBUTION_CHANNEL,
        settings: DistributionSettings | None = None,
        randbytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        if not is_name(system.name):
            raise ValueError(f"the system's name {system.name!r} cannot be the name of a node; see crypto.names")
        self._system = system
        self._codec = codec if codec is not None else Codec()
        self._codec.register(Tick, "actors.tick")
        self._controllers = controllers
        self._randbytes = randbytes
        self.creation: Final = self._draw()
        """Which life of the node this is; refs to its actors carry it."""
        self._switchboard = Switchboard(
            system.name,
            self.creation,
            link,
            addresses,
            system.timers,
            settings if settings is not None else DistributionSettings(),
            channel,
            self._draw,
        )
        self._references = NodeReferences(system, system.name, self.creation, Seals(randbytes(SECRET_BYTES)))
        self._router = Router(system, self._switchboard, self._references, self._codec)
        self._references.route = self._router
        self._codec.use(self._references)
        self._switchboard.make_desk = self._make_desk
        self._switchboard.perform = self._router.perform
        system.distribution = self

    def _draw(self) -> int:
        return int.from_bytes(self._randbytes(8), "big") or 1

    def _make_desk(self, slot: Slot) -> Desk:
        may_control = slot.peer.name in self._controllers
        return Desk(slot, self._router, self._references, self._codec, may_control=may_control)

    # For users

    @property
    def node(self) -> str:
        """The name of this node."""
        return self._references.node

    def publish(self, name: str, target: Ref | Named | None = None) -> None:
        """Let every peer reach `target`, by default the actor that has this name in the system, by `name`.

        A `Named` keeps meaning the actor that has the name then, across restarts. Raises ValueError for a name that
        is published already, empty, or longer than 255 bytes.
        """
        self._references.publish(name, target if target is not None else self._system.named(name))

    def show(self, name: str, target: Ref | Named) -> None:
        """`publish`, also for a name that is published already: it means `target` from now on."""
        self._references.unpublish(name)
        self._references.publish(name, target)

    def unpublish(self, name: str) -> None:
        """Take it back, if it is there. Refs that peers have got keep working."""
        self._references.unpublish(name)

    @property
    def published(self) -> list[str]:
        """The published names."""
        return self._references.published

    def remote(self, node: str) -> RemoteNode:
        """Another node, there or not. Raises ValueError for what is no name, and for this node's own."""
        if not is_name(node):
            raise ValueError(f"{node!r} is not the name of a node")
        if node == self.node:
            raise ValueError(f"{node!r} is this node itself: use system.named")
        return RemoteNode(self, node)

    def named(self, node: str, name: str) -> RemoteNamed:
        """For `RemoteNode.named`."""
        return RemoteNamed(self._references.proxy(node, 0, name))

    @property
    def nodes(self) -> list[str]:
        """The nodes with which a connection is open."""
        return [slot.peer.name for slot in self._switchboard.slots.values() if slot.peer.state is PeerState.UP]

    @property
    def stats(self) -> dict[str, int]:
        """Counters since the start (refused, dropped_…, unsendable, undecodable, violations), and what is held now."""
        tables = [slot.peer.tables for slot in self._switchboard.slots.values()]
        held = ("calls_out", "monitors_out", "calls_in", "monitors_in", "links")
        return {
            **self._switchboard.counters,
            "refused": self._references.refused,
            "undecodable": sum(slot.desk.undecodable for slot in self._switchboard.slots.values()),
            "violations": sum(slot.peer.violations for slot in self._switchboard.slots.values()),
            "peers": len(self._switchboard.slots),
            "proxies": self._references.proxy_count,
            "handed_callers": self._references.handed_callers,
            **{what: sum(table[place] for table in tables) for place, what in enumerate(held)},
        }

    # Life

    async def serve(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Talk to other nodes until cancelled; started with this node's name. Can be served again after it has ended.

        Raises `LinkEnded` when the link does, ValueError for a link of another name.
        """
        await self._switchboard.serve(task_status=task_status)


@final
class RemoteNode:
    """Another node, by name; from `System.remote`."""

    __slots__ = ("_distribution", "name")

    def __init__(self, distribution: Distribution, name: str) -> None:
        self._distribution = distribution
        self.name = name

    def __repr__(self) -> str:
        return f"<node {self.name}>"

    def named(self, name: str) -> RemoteNamed:
        """The actor that has this published name there at the moment of use; none needs to have it yet."""
        return self._distribution.named(self.name, name)

    async def whereis(self, name: str) -> Ref | None:
        """A ref to the actor that has this published name now, if any. Raises as a call does."""
        return await self.named(name).lookup()

    @property
    def connected(self) -> bool:
        """Whether a connection is open; the first request opens one."""
        return self.name in self._distribution.nodes

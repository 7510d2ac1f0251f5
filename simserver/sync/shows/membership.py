"""Who takes part in a show, and who gives whom its key; docs/guides/followers-scenario.md has the rules.

A follower tells the controller again and again that it takes part, and asks the home instance who that is while it
does not hear it. The controller gives the key of its epoch, and all names and addresses, to each node.

A follower says so to the servers, too, that would keep the show's copies if it took over, though they do nothing with
it: a link that has to be made first would cost a failover more than all else.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from batonpass.actors.base.clock import Clock, Tasks
from batonpass.authority.names import instance_of
from batonpass.authority.wire.shows import ShowMember, ShowMembers, ShowNode
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import EntityWhereabouts
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.sealing import GroupSeal
from batonpass.simserver.sync.shows.nodes import SAID_AGAIN_NS, ShowPeer
from batonpass.simserver.sync.shows.ports import ShowLinks
from batonpass.simserver.sync.shows.show_part import Reign, ShowPart

__all__ = ["LOOK_AGAIN_NS", "ShowMembership"]

_log = logging.getLogger("batonpass.simserver.sync.shows.membership")

LOOK_AGAIN_NS: Final = 250_000_000
"""How often a node that does not hear its controller asks who that is."""
_AGAIN_S: Final = 0.02
_TRIES: Final = 10


class ShowMembership:
    """Of the shows of one server.

    Args:
        may_send: whether this server may act in a show of this entity at this moment.
        begin: makes the machine and engine of a show in this state, if there are none, and returns the machine.
        replicas_of: the servers that would keep copies of this entity if it lived here.
        tasks: in which the home instance is asked.
        wake: has members told soon.
    """

    def __init__(
        self,
        links: ShowLinks,
        whereabouts: EntityWhereabouts,
        clock: Clock,
        counts: Counter[str],
        *,
        may_send: Callable[[str], bool],
        begin: Callable[[ShowPart, Mapping[str, Any]], NodeMachine],
        replicas_of: Callable[[str], tuple[str, ...]],
        tasks: Callable[[], Tasks],
        wake: Callable[[], None],
    ) -> None:
        self._links: Final = links
        self._whereabouts: Final = whereabouts
        self._clock: Final = clock
        self._counts: Final = counts
        self._may_send: Final = may_send
        self._begin: Final = begin
        self._replicas_of: Final = replicas_of
        self._tasks: Final = tasks
        self._wake: Final = wake

    # --- at the controller

    def keep_members(self, part: ShowPart, reign: Reign) -> None:
        """Forget the nodes that were silent for too long, and tell all if one came or went."""
        for name in reign.nodes.forget_silent(self._clock.monotonic_ns()):
            _log.info("%s takes no part in %s any more: it was not heard of", name, part.entity)
        if reign.told_revision != reign.nodes.revision:
            self.tell_members(part, reign)

    def tell_members(self, part: ShowPart, reign: Reign) -> None:
        """Give all nodes the key and each other's addresses."""
        reign.told_revision = reign.nodes.revision
        part.traffic.knows(reign.nodes.peers)
        for name in reign.nodes.peers:
            self.tell_member(part, reign, name)

    def tell_member(self, part: ShowPart, reign: Reign, name: str) -> None:
        """Give them to one node, unless it is held."""
        if name == self._links.server or name in reign.held:
            return
        state = reign.life.seen
        nodes = [
            ShowMember(name=each, number=peer.number, host=peer.host, port=peer.port, public=peer.public)
            for each, peer in reign.nodes.peers.items()
        ]
        message = ShowMembers(
            entity=part.entity,
            epoch=part.epoch,
            key=reign.key,
            revision=reign.nodes.revision,
            rate=tuple(state["rate"]),
            mode=state["mode"],
            fence=state["fence"],
            nodes=nodes,
        )
        self._links.send(message, name)

    def node_said(self, part: ShowPart | None, message: ShowNode, sender: str, host: str) -> None:
        """As `HostedShows.node_said`; None: this server has no such show."""
        if instance_of(sender) != self._links.instance:
            self._counts["show_nodes_refused"] += 1
            return
        if part is None or part.reign is None or not self._may_send(part.entity):
            return
        reign = part.reign
        revision = reign.nodes.revision
        if not reign.nodes.heard(sender, host, message.port, message.public, self._clock.monotonic_ns()):
            self._counts["show_nodes_refused"] += 1
            return
        if reign.nodes.revision != revision:
            # The others hear of it together with who else comes at this moment.
            self._wake()
        elif message.epoch != part.epoch:
            self.tell_member(part, reign, sender)

    # --- at a follower

    def keep_following(self, part: ShowPart) -> None:
        """Say again that this node takes part, or look for the controller if it is not heard."""
        now_ns = self._clock.monotonic_ns()
        is_heard = now_ns - part.traffic.heard_ns.get(part.controller, 0) < 2 * LOOK_AGAIN_NS
        if now_ns - part.said_ns >= (SAID_AGAIN_NS if is_heard else LOOK_AGAIN_NS):
            part.said_ns = now_ns
            if is_heard or (part.controller and part.controller != self._links.server):
                self._say_node(part, part.controller)
            if is_heard:
                for name in self._replicas_of(part.entity):
                    if name not in (part.controller, self._links.server):
                        self._say_node(part, name)
            if not is_heard and not part.is_asking:
                part.is_asking = True
                self._tasks().start_soon(self._look_for_controller, part)

    def _say_node(self, part: ShowPart, controller: str) -> None:
        port, public = part.traffic.port.address[1], part.parts.public
        said = ShowNode(entity=part.entity, epoch=part.epoch, port=port, public=public)
        self._links.send(said, controller)

    async def _look_for_controller(self, part: ShowPart) -> None:
        try:
            with suppress(HomeUnreachable, HomeRefused):
                name = await self._whereabouts.authority_of(part.entity)
                if name is None and part.engine is not None:
                    # It was deleted. That no server has it at a moment is how a failover begins, too.
                    part.engine.stop()
                if name and name not in (part.controller, self._links.server) and part.reign is None:
                    self._say_node(part, name)
        finally:
            part.is_asking = False

    async def _authority_of(self, entity: str) -> str:
        try:
            return await self._whereabouts.authority_of(entity) or ""
        except (HomeUnreachable, HomeRefused):
            return ""

    async def members_said(self, part: ShowPart | None, message: ShowMembers, sender: str, host: str) -> None:
        """As `HostedShows.members_said`; None: this server has no such show."""
        if instance_of(sender) != self._links.instance or part is None or part.has_left or message.epoch < part.epoch:
            self._counts["show_members_refused"] += 1
            return
        if message.epoch > part.epoch or sender != part.controller:
            for _ in range(_TRIES):
                if await self._authority_of(message.entity) == sender:
                    break
                await self._clock.sleep_s(_AGAIN_S)
            else:
                self._counts["show_members_refused"] += 1
                return
        peers = {node.name: ShowPeer(node.number, node.host, node.port, node.public) for node in message.nodes}
        own, its = peers.get(self._links.server), peers.get(sender)
        if (
            part.reign is not None
            or message.epoch < part.epoch
            or own is None
            or its is None
            or own.public != part.parts.public
        ):
            self._counts["show_members_refused"] += 1
            return
        # It does not know its own address if it listens on all.
        peers[sender] = replace(its, host=host)
        now_ns = self._clock.monotonic_ns()
        # A controller whose shows were restarted has drawn another key for the same epoch.
        is_new = message.epoch > part.epoch or message.key != part.key
        if not is_new and message.revision <= part.revision:
            return
        number = part.traffic.peers[self._links.server].number if self._links.server in part.traffic.peers else None
        if is_new or own.number != number:
            part.key, part.traffic.seal = message.key, GroupSeal(message.key, message.epoch, own.number)
        part.epoch, part.controller, part.revision = message.epoch, sender, message.revision
        part.traffic.heard_ns[sender] = now_ns
        machine = self._begin(part, message.model_dump(include={"rate", "mode", "fence"}))
        if is_new:
            machine.follow(sender, message.epoch, now_ns)
        part.traffic.knows(peers)
        part.traffic.pump()

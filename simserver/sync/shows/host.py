"""The shows in which this server takes part: authority, members and engine around the machine of each.

The server that has authority over a show is its controller. It draws a new key for the datagrams of each epoch and
gives it to every node over the sealed link. All other servers that are configured for the show tell the controller that
they take part, again and again, and follow it.

A controller sends while it has its lease and below the limit that copies are known to keep (`frame_limit`). As soon as
it may have to leave, it sends nothing until a tick has shown that it stays.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import trio

from batonpass.actors.base.clock import Clock, Tasks
from batonpass.authority.fence import Fence
from batonpass.authority.wire.shows import ShowMembers, ShowNode
from batonpass.simserver.durability.creation_barrier import EntityCopies
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import Committed, EntityChange, Event
from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.net.ports import EntityWhereabouts
from batonpass.simserver.sync.followers.frame_clock import FrameClock, FrameRate
from batonpass.simserver.sync.followers.frames import HeadFlag
from batonpass.simserver.sync.followers.mailbox import EngineMailbox
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.ports import EngineAct, SubmitState
from batonpass.simserver.sync.followers.sealing import GroupSeal
from batonpass.simserver.sync.shows.engine_thread import EngineProgram
from batonpass.simserver.sync.shows.frame_limit import FrameLimit
from batonpass.simserver.sync.shows.membership import ShowMembership
from batonpass.simserver.sync.shows.node_traffic import NodeTraffic
from batonpass.simserver.sync.shows.nodes import SAID_AGAIN_NS, NodeTable, ShowPeer
from batonpass.simserver.sync.shows.ports import ShowLinks
from batonpass.simserver.sync.shows.show_part import Reign, ShowPart, status_of
from batonpass.simserver.sync.shows.status import MAX_DROPS_SHOWN, ShowRefused, ShowStatus
from batonpass.simserver.sync.shows.world import KIND, MAX_HELD, Shows, held_input, held_nodes, limit_input

__all__ = ["MAX_SHOWS", "HostedShows", "wire_epoch"]

_log = logging.getLogger("batonpass.simserver.sync.shows.host")

MAX_SHOWS: Final = 16
"""In which one server takes part."""
_SUBS: Final = 2**16
_MAX_WIRE_EPOCH: Final = 2**63
_AGAIN_S: Final = 0.02
_IDLE_S: Final = 0.5
QUIT_WAIT_S: Final = 2.0
"""For which engines that were told to quit are waited for when the server stops."""
COPY_AGAIN_NS: Final = 20_000_000
"""How often a controller that may send nothing looks whether other servers are to keep its copies."""
BUSY_NS: Final = 10_000_000_000
"""An engine that has asked for nothing for so long is warned of."""


def wire_epoch(fence: Fence) -> int:
    """The epoch of a controller's datagrams: of two fences the higher one has the higher number; 0 if none is left."""
    number = fence.epoch * _SUBS + fence.sub
    return number if fence.sub < _SUBS and number < _MAX_WIRE_EPOCH else 0


class HostedShows:
    """The shows of one server; `serve` has to run."""

    def __init__(
        self,
        links: ShowLinks,
        world: Shows,
        environment: EntityEnvironment,
        holdings: Holdings,
        copies: EntityCopies,
        whereabouts: EntityWhereabouts,
        clock: Clock,
        counts: Counter[str],
        program: EngineProgram,
    ) -> None:
        self._links: Final = links
        self._world: Final = world
        self._environment: Final = environment
        self._holdings: Final = holdings
        self._copies: Final = copies
        self._clock: Final = clock
        self._counts: Final = counts
        self._program: Final = program
        self._shows: Final[dict[str, ShowPart]] = {}
        self._acknowledged: Final[set[str]] = set()
        self._bell: Final = clock.bell()
        self._nursery: Tasks | None = None
        self._membership: Final = ShowMembership(
            links,
            whereabouts,
            clock,
            counts,
            may_send=self._may_send,
            begin=self._begin,
            replicas_of=copies.replicas_of,
            tasks=self._tasks,
            wake=self._bell.ring,
        )
        self._feed: Final = holdings.feed.follow("shows", self._bell.ring)
        environment.own_inputs.listen(lambda ack: self._is_acknowledged(ack.entity))
        world.pause = self._pause

    def inspect(self, *, drops: int = 256) -> list[ShowStatus]:
        """What people may want to know of each show; of frames that were dropped the newest `drops` ranges."""
        return [status_of(part, drops, self._clock.monotonic_ns()) for part in self._shows.values()]

    def hold(self, entity: str, node: str, *, is_held: bool) -> None:
        """An operator holds a node, so that the controller ignores it, or releases it. It outlives this controller.

        Raises:
            ShowRefused: this server has no such show or is not its controller, the node cannot be held, or is not.
        """
        part, reign, machine = self._controlled(entity)
        if not is_held and node not in reign.held:
            raise ShowRefused("not_held", f"{node} is not held in {entity}", node)
        if is_held and node == self._links.server:
            raise ShowRefused("is_controller", f"{node} is the controller of {entity}: drain it first", node)
        if is_held and node not in reign.held and (node not in reign.nodes.peers or len(reign.held) >= MAX_HELD):
            text = f"{node} cannot be held: it takes no part in {entity} (`baton shows list`), or {MAX_HELD} are held"
            raise ShowRefused("cannot_hold", text, node)
        if not reign.life.take_own_input(held_input(node, is_held=is_held)):
            raise ShowRefused("show_moves", f"{entity} is about to move or is suspended: repeat soon", entity)
        (reign.held.add if is_held else reign.held.discard)(node)
        (machine.hold if is_held else machine.release)(node)
        if not is_held and node in reign.nodes.peers:
            # It was told nothing meanwhile.
            self._membership.tell_member(part, reign, node)
        self._bell.ring()

    def reset(self, entity: str) -> None:
        """An operator says that nothing which was before holds: the next frame of the show is a RESET.

        Raises:
            ShowRefused: this server has no such show, is not its controller, or the show is about to move.
        """
        _, _, machine = self._controlled(entity)
        if not machine.is_controller or not self._may_send(entity):
            raise ShowRefused("show_moves", f"{entity} is about to move, or has just come: repeat soon", entity)
        machine.flag_next(HeadFlag.RESET)

    def _controlled(self, entity: str) -> tuple[ShowPart, Reign, NodeMachine]:
        """The show, if this server is its controller. Raises ShowRefused."""
        part = self._shows.get(entity)
        if part is None:
            raise ShowRefused("not_here", f"{self._links.server} takes no part in {entity}", entity)
        reign, machine = part.reign, part.traffic.machine
        if reign is None or machine is None:
            who = part.controller or "not known here"
            raise ShowRefused("not_controller", f"the controller of {entity} is {who}: ask there", part.controller)
        return part, reign, machine

    # --- running ---------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part in the shows, until cancelled. Raises OSError: no socket can be bound."""
        try:
            async with self._clock.tasks() as nursery:
                self._nursery = nursery
                for show in self._world.shows:
                    self._open(f"{self._links.instance}.{KIND}-{show}")
                task_status.started()
                try:
                    await self._run()
                except trio.Cancelled:
                    with trio.CancelScope(shield=True):
                        await self._quit_engines()
                    raise
        finally:
            self._nursery = None
            for part in self._shows.values():
                part.close()
            self._shows.clear()

    async def _quit_engines(self) -> None:
        """The server stops: followers say so, and engines have a moment to end. A show itself continues elsewhere."""
        engines = [part.engine for part in self._shows.values() if part.engine is not None]
        for part in self._shows.values():
            if part.traffic.machine is not None and part.reign is None:
                part.traffic.machine.leave()
                part.traffic.pump()
        for engine in engines:
            engine.stop()
        until_ns = self._clock.monotonic_ns() + round(QUIT_WAIT_S * 1e9)
        while any(engine.is_running for engine in engines) and self._clock.monotonic_ns() < until_ns:
            # An engine that ends rings the bell a moment before its thread is over.
            await self._bell.wait(_AGAIN_S)
        if late := sum(engine.is_running for engine in engines):
            self._counts["show_engines_left_behind"] += late
            _log.warning("%d engines have not ended %g s after QUIT, and end with the process", late, QUIT_WAIT_S)

    async def _run(self) -> None:
        while True:
            await self._bell.wait(self._idle_s())
            due: dict[str, Holding] = {}
            while (batch := self._feed.take()) is not None:
                if batch.missed:
                    self._has_missed()
                for event in batch.events:
                    due.update(self._has_happened(event))
            for entity in self._acknowledged | due.keys():
                self._learn_kept(entity)
            self._acknowledged.clear()
            due |= self._waiting_for_copies()
            for part in list(self._shows.values()):
                self._take_acts(part)
                part.traffic.pump()
                self._keep_company(part)
            if due:
                await self._copies.copy_now(list(due.values()))
                for entity in due:
                    self._learn_kept(entity)

    def _waiting_for_copies(self) -> dict[str, Holding]:
        """The shows that may send nothing until copies are kept.

        A copy may not count: who was to keep it has died, or answered so late that it may have died since. While one
        is under way that counts, nothing is sent again.
        """
        now_ns, waiting = self._clock.monotonic_ns(), dict[str, Holding]()
        for part in self._shows.values():
            reign, holding = part.reign, self._holdings.get(part.entity)
            if reign is None or holding is None or reign.paused_at is not None or reign.limit.allowed > reign.next:
                continue
            if now_ns - reign.copied_ns >= COPY_AGAIN_NS:
                reign.copied_ns = now_ns
                waiting[part.entity] = holding
        return waiting

    def _tasks(self) -> Tasks:
        if self._nursery is None:
            raise RuntimeError("the shows are not served: start `serve` before anything happens to one")
        return self._nursery

    def _idle_s(self) -> float:
        now_ns, idle_s = self._clock.monotonic_ns(), _IDLE_S
        for part in self._shows.values():
            due_ns = None if part.traffic.machine is None else part.traffic.machine.next_due_ns
            if due_ns is not None:
                # What is due has to wait without authority, and must not take a whole processor by that.
                at_least_s = 0.0 if self._may_send(part.entity) else _AGAIN_S
                idle_s = min(idle_s, max((due_ns - now_ns) / 1e9, at_least_s))
        return idle_s

    def _open(self, entity: str) -> ShowPart:
        """Take part in a show, and wait for who is its controller."""
        ports = self._links.ports
        parts = ports.own_parts(entity, self._world.settings)
        wake = self._bell.ring
        mailbox = EngineMailbox(parts.thread, self._clock.monotonic_ns, wake)
        may_send = partial(self._may_send, entity)
        make_port = self._world.port or ports.socket
        traffic = NodeTraffic(self._links.server, mailbox, self._clock, wake, self._counts, may_send, make_port)
        traffic.port.bind(self._links.host)
        self._tasks().start_soon(traffic.port.serve)
        part = self._shows[entity] = ShowPart(entity, traffic, parts)
        return part

    def _begin(self, part: ShowPart, state: Mapping[str, Any]) -> NodeMachine:
        """The machine and the engine, once it is known what the show is like."""
        if part.traffic.machine is None:
            now_ns = self._clock.monotonic_ns()
            part.traffic.machine = part.parts.machine(self._links.server, state, now_ns)
            own = [each for each in self._world.streams if each.server == self._links.server]
            if own:
                part.traffic.machine.set_streams(tuple(each.stream for each in own))
                part.traffic.cameras = {each.stream.handle: each.camera for each in own}
            # One whose engine has ended begins anew if it is given the show.
            part.has_left, part.has_failed, part.error, part.last = False, False, "", None
            ended = partial(self._engine_ended, part)
            part.engine = self._links.ports.engine(
                part.entity, self._links.server, self._program, part.traffic.mailbox, ended
            )
            part.engine.start()
        return part.traffic.machine

    def _engine_ended(self, part: ShowPart, has_failed: bool) -> None:
        """In the engine's thread."""
        if has_failed:
            self._counts["show_engines_failed"] += 1
        if part.engine is not None:
            part.error, part.counters = part.engine.error, part.engine.counters
        part.has_left, part.has_failed = True, has_failed
        self._bell.ring()

    # --- authority -------------------------------------------------------------------------------------------------

    def _is_acknowledged(self, entity: str) -> None:
        self._acknowledged.add(entity)
        self._bell.ring()

    def _has_missed(self) -> None:
        """It is not known what has happened, but for what the entity table has."""
        self._counts["show_ticks_missed"] += 1
        for part in self._shows.values():
            holding = self._holdings.get(part.entity)
            if part.reign is not None and (holding is None or holding.life is not part.reign.life):
                self._ends(part)

    def _has_happened(self, event: Event) -> dict[str, Holding]:
        """Something has happened to an entity; the entity, if it is a show of which a copy is needed now."""
        holding, part = self._holdings.get(event.entity), self._shows.get(event.entity)
        is_ended = not isinstance(event, Committed) and event.change is EntityChange.ENDED
        if holding is None or is_ended or holding.life.over:
            if part is not None and part.reign is not None:
                self._ends(part)
            return {}
        if holding.life.kind != KIND:
            return {}
        if part is None:
            if len(self._shows) >= MAX_SHOWS:
                self._counts["show_too_many"] += 1
                return {}
            part = self._open(event.entity)
        if part.reign is None or part.reign.life is not holding.life or part.epoch != wire_epoch(holding.fence):
            self._reigns(part, holding)
        reign = part.reign
        if not isinstance(event, Committed) or reign is None:
            return {}
        if reign.paused_at is not None and event.tick > reign.paused_at:
            reign.paused_at = None
        is_raised = event.after["limit"] > event.before["limit"]
        return {event.entity: holding} if is_raised else {}

    def _reigns(self, part: ShowPart, holding: Holding) -> None:
        """This server is the controller from now on, or still is under a higher fence."""
        epoch, state, now_ns = wire_epoch(holding.fence), holding.life.seen, self._clock.monotonic_ns()
        if epoch <= part.epoch:
            # A fence that cannot be told apart from one before: nothing is sent under it.
            self._counts["show_epochs_refused"] += 1
            return
        before, reign = part.controller, part.reign
        following, paused_at = self._world.continuations.pop(part.entity, None), None
        own = ShowPeer(1, self._links.host, part.traffic.port.address[1], part.parts.public)
        nodes, lead = NodeTable(self._links.server, own), self._world.lead(state)
        nodes.took_over(part.traffic.peers, now_ns)
        if reign is not None and reign.life is holding.life:
            # Frozen again before its next tick, it takes along what was the next frame then: that is asked for once.
            following, paused_at = reign.next, reign.paused_at
            limit = FrameLimit(reign.next, reign.limit.allowed, lead)
        else:
            # A failover may begin with what came with a hand-over, until there is a copy of what it became here. So
            # nothing is sent before that.
            first = state["limit"] if following is None else following
            limit = FrameLimit(first, first, lead)
            if following is None:
                self._copies.learn_replicas(self._bell.ring)
        clock = FrameClock.with_frame_at(FrameRate(*state["rate"]), limit.first, now_ns)
        key = self._links.ports.random_bytes(32)
        held = set(held_nodes(state))
        if self._links.server in held:
            # It was given the show all the same.
            held.discard(self._links.server)
            holding.life.take_own_input(held_input(self._links.server, is_held=False))
        part.reign = reign = Reign(holding.life, limit, clock, nodes, key, limit.first, held, paused_at)
        part.epoch, part.controller = epoch, self._links.server
        part.key, part.traffic.seal = key, GroupSeal(key, epoch, own.number)
        machine = self._begin(part, state)
        # Before they are asked what they have.
        self._membership.tell_members(part, reign)
        for name in held:
            machine.hold(name)
        for name in machine.held - held:
            machine.release(name)
        machine.granted(epoch, limit.first, now_ns, gone=before if following is None else "")
        machine.may_send_below(limit.allowed)
        self._ask_for_limit(part, reign)
        part.traffic.pump()

    def _ends(self, part: ShowPart) -> None:
        """This server is not the controller any more."""
        gone = self._holdings.gone(part.entity)
        part.reign, part.said_ns = None, 0
        part.controller = gone.moved_to if gone is not None else ""
        if part.traffic.machine is not None:
            part.traffic.machine.suspend()
            part.traffic.machine.take_outgoing()  # It is of an epoch that has ended.

    def _pause(self, entity: str) -> int | None:
        part, holding = self._shows.get(entity), self._holdings.get(entity)
        if part is None or holding is None or part.reign is None or part.reign.life is not holding.life:
            return None
        part.reign.paused_at = holding.life.tick
        # What has begun and was not sent, the own engine may have shown.
        return max(part.reign.next, 0 if part.traffic.machine is None else part.traffic.machine.begun + 1)

    def _may_send(self, entity: str) -> bool:
        """Whether this node may send: a controller has its lease and stays; a follower always may."""
        part = self._shows.get(entity)
        reign = None if part is None else part.reign
        if reign is None:
            return True
        if reign.paused_at is not None or reign.life.frozen or reign.life.over or reign.life.quarantine_reason:
            return False
        return self._environment.may_act(self._clock.monotonic_ns())

    def _learn_kept(self, entity: str) -> None:
        part = self._shows.get(entity)
        if part is None or part.reign is None or part.traffic.machine is None:
            return
        life, limit = part.reign.life, part.reign.limit
        if self._environment.keeps_copies():
            limit.kept(life.acceptance.durable.get(OWN_SOURCE, 0))
        elif not self._copies.owes_checkpoint(entity):
            # This server alone can resume it, from its own store.
            limit.kept(life.applied(OWN_SOURCE) or 0)
        part.traffic.machine.may_send_below(limit.allowed)

    def _ask_for_limit(self, part: ShowPart, reign: Reign) -> None:
        # By the clock: one that is late passes over numbers, and must not be held up by the limit as well.
        due = max(reign.next, reign.clock.frame_at(self._clock.monotonic_ns()))
        wanted = reign.limit.wanted(due) if reign.paused_at is None else None
        if wanted is None:
            return
        # Above what the state has: a tick that raises it is copied at once.
        limit = max(wanted, reign.life.seen["limit"] + 1)
        if number := reign.life.take_own_input(limit_input(limit)):
            reign.limit.asked(limit, number)

    # --- the machine and its engine ------------------------------------------------------------------------------

    def _take_acts(self, part: ShowPart) -> None:
        for act in part.traffic.mailbox.take_acts():
            if part.traffic.machine is not None:
                self._acted(part, part.traffic.machine, act)
        if part.has_left and part.engine is not None:
            part.engine = None
            self._leave(part)
        self._warn_if_busy(part)
        self._warn_if_too_large(part)

    def _warn_if_too_large(self, part: ShowPart) -> None:
        machine = part.traffic.machine
        over = 0 if machine is None else machine.counters["frame_over_period"]
        if machine is None or over <= part.over_period or part.reign is None:
            return
        if not part.over_period:
            _log.warning("a frame of %s did not fit its period: send less, or at a lower rate", part.entity)
        part.over_period = over

    def _warn_if_busy(self, part: ShowPart) -> None:
        since_ns = part.traffic.mailbox.busy_since_ns
        if part.engine is None or since_ns is None or self._clock.monotonic_ns() - since_ns < BUSY_NS:
            part.is_warned = False
        elif not part.is_warned:
            part.is_warned = True
            self._counts["show_engines_busy"] += 1
            text = "the engine of %s has asked for nothing for %d s: does it hang?"
            _log.warning(text, part.entity, BUSY_NS // 10**9)
            if part.reign is not None:
                self._pass_on(part, part.reign)

    def _acted(self, part: ShowPart, machine: NodeMachine, act: EngineAct) -> None:
        reign = part.reign
        if isinstance(act, SubmitState):
            is_ours = act.epoch == part.epoch and self._may_send(part.entity)
            if reign is None or not is_ours or not reign.next <= act.frame < reign.limit.allowed:
                self._counts["show_states_refused"] += 1
                return
            reign.next = act.frame + 1
            self._ask_for_limit(part, reign)
        machine.submit(act, self._clock.monotonic_ns())

    def _leave(self, part: ShowPart) -> None:
        """The engine has ended. If it was that of the controller, the show ends, or another node is to have it."""
        machine = part.traffic.machine
        if part.reign is None or machine is None:
            if machine is not None:
                # The controller is to hear what the engine did last, and that this node is not to be waited for.
                machine.leave()
                part.traffic.pump()
            part.last = status_of(part, MAX_DROPS_SHOWN, self._clock.monotonic_ns())
            part.traffic.machine = None
        elif not part.has_failed:
            machine.quit()
        else:
            self._pass_on(part, part.reign)

    def _pass_on(self, part: ShowPart, reign: Reign) -> None:
        """The controller's engine fails: another node is to have the show; in a ring, as the next may fail, too.

        It is said again until it has left, of the next node each time: one that refuses must not keep it here.
        """
        part.said_ns = self._clock.monotonic_ns()
        after = part.passed_to or self._links.server
        if others := part.traffic.peers.keys() - reign.held - {self._links.server}:
            part.passed_to = min(others, key=lambda name: (name <= after, name))
            self._environment.wants_to_go(part.entity, part.passed_to)

    # --- who takes part --------------------------------------------------------------------------------------------

    def _keep_company(self, part: ShowPart) -> None:
        """Say again and again who is there."""
        reign = part.reign
        if reign is None:
            if not part.has_left:
                self._membership.keep_following(part)
            return
        self._membership.keep_members(part, reign)
        self._ask_for_limit(part, reign)
        is_due = self._clock.monotonic_ns() - part.said_ns >= SAID_AGAIN_NS
        if (part.has_failed or part.is_warned) and is_due:
            self._pass_on(part, reign)

    def node_said(self, message: ShowNode, sender: str, host: str) -> None:
        """A simulation server of this host takes part; nothing comes of it unless this one is the controller."""
        self._membership.node_said(self._shows.get(message.entity), message, sender, host)

    async def members_said(self, message: ShowMembers, sender: str, host: str) -> None:
        """The controller of an epoch gives its key; the home instance is asked whether it is the controller."""
        await self._membership.members_said(self._shows.get(message.entity), message, sender, host)

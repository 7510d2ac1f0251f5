"""One node of one show: controller or follower, as the authority says. No sockets, threads, clocks or dice of its own.

The adapter calls `granted`, `may_send_below` and `follow` as the entity's authority moves, `receive` and `tick` as
datagrams come and time passes. It sends `take_outgoing` and gives `take_events` to the engine, whose acts come back by
`submit`.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from batonpass.simserver.sync.followers.board import NodeBoard, ShowDice
from batonpass.simserver.sync.followers.controller import ControllerPart
from batonpass.simserver.sync.followers.datagrams import ShowDatagramKind, number_of_untrusted, read_datagram_untrusted
from batonpass.simserver.sync.followers.drops import DropRange
from batonpass.simserver.sync.followers.follower import FollowerPart
from batonpass.simserver.sync.followers.frames import CompleteFrame, HeadFlag
from batonpass.simserver.sync.followers.interactions import InteractionOutbox
from batonpass.simserver.sync.followers.ports import (
    EngineAct,
    EngineDropped,
    EngineEvent,
    EngineLeft,
    FenceOpened,
    FrameReady,
    InteractionReceived,
    ShowStream,
    StreamsChanged,
    SubmitHash,
    SubmitInteraction,
    SubmitState,
)
from batonpass.simserver.sync.followers.sealing import HeadSigning
from batonpass.simserver.sync.followers.settings import FenceKind, ShowMode, ShowSettings
from batonpass.simserver.sync.followers.survey import SurveyPart

__all__ = ["NodeMachine"]


class NodeMachine:
    """A node of a show.

    Args:
        name: of the server.
        signing: signs heads while this node is the controller.
        dice: gives the node its incarnation.
    """

    def __init__(self, name: str, settings: ShowSettings, signing: HeadSigning, dice: ShowDice, now_ns: int) -> None:
        self._board: Final = NodeBoard(name, settings, signing, dice.getrandbits(64))
        self._outbox: Final = InteractionOutbox(self._board)
        self._role: ControllerPart | FollowerPart | SurveyPart | None = None
        self._epoch = -1
        self._first = 0
        self._limit = 0
        self._now_ns = now_ns
        self._streams: tuple[ShowStream, ...] = ()

    # --- what the authority says

    def granted(self, epoch: int, first_frame: int, now_ns: int, gone: str = "") -> None:
        """This node is the controller of `epoch`; its first new frame has `first_frame` or a higher number.

        Nothing is waited for from the node that is `gone`; what it has signed counts.
        """
        if not self._newer(epoch, now_ns):
            return
        self._first, self._limit = first_frame, 0
        self._board.knows_controller(epoch, self._board.name)
        self._role = SurveyPart(self._board, epoch, now_ns, gone)
        self._survey_ended()

    def may_send_below(self, limit: int) -> None:
        """Frames below `limit` may be sent in this epoch; a lower limit than before changes nothing."""
        self._limit = max(self._limit, limit)
        if isinstance(self._role, ControllerPart):
            self._role.raise_limit(self._limit)

    def follow(self, controller: str, epoch: int, now_ns: int) -> None:
        """Another node is the controller of `epoch`."""
        if self._newer(epoch, now_ns):
            self._limit = 0
            self._board.knows_controller(epoch, controller)
            self._role = FollowerPart(self._board, controller, epoch, now_ns)
            self._role.tick(now_ns)

    def suspend(self) -> None:
        """This node lost its authority, and it is not known who has it: nothing is sent."""
        if isinstance(self._role, ControllerPart | SurveyPart):
            self._role = None
            self._limit = 0

    def _newer(self, epoch: int, now_ns: int) -> bool:
        self._now_ns = now_ns
        if epoch <= self._epoch:
            self._board.counters["epoch_refused" if epoch < self._epoch else "epoch_known"] += 1
            return False
        self._epoch = epoch
        return True

    def members(self, nodes: Mapping[str, bytes], *, is_on_one_machine: bool = False) -> None:
        """These nodes take part, each with its public key (Ed25519, 32 bytes)."""
        self._board.set_nodes(nodes)
        self._board.cut(is_on_one_machine=is_on_one_machine)
        self._members_changed()

    def _members_changed(self) -> None:
        if isinstance(self._role, ControllerPart):
            self._role.members_changed()

    def hold(self, node: str) -> None:
        """Ignore a node until it is released."""
        self._board.held.add(node)
        self._members_changed()

    def release(self, node: str) -> None:
        """Hear a node again."""
        if node in self._board.held:
            self._board.held.discard(node)
            self._members_changed()

    # --- datagrams and time

    def receive(self, peer: str, datagram: bytes, now_ns: int) -> None:
        """A datagram of `peer`, opened."""
        self._now_ns = now_ns
        board, role = self._board, self._role
        if (
            isinstance(role, FollowerPart)
            and peer == role.controller
            and peer in board.nodes
            and peer not in board.held
            and role.take_quickly(datagram, now_ns)
        ):
            return
        read = read_datagram_untrusted(datagram)
        if read is None:
            board.counters["malformed"] += 1
        elif peer in board.held or peer not in board.nodes or role is None:
            board.counters["ignored"] += 1
        elif read.epoch != self._epoch:
            board.counters["epoch_refused" if read.epoch < self._epoch else "epoch_ahead"] += 1
        elif isinstance(role, FollowerPart):
            if peer != role.controller:
                board.counters["ignored"] += 1
            elif read.kind is ShowDatagramKind.INTERACTION_ACK:
                self._outbox.acknowledged(read.frame, number_of_untrusted(read.body) or 0)
            else:
                role.receive(read, now_ns)
                self._told_streams(role)
        else:
            role.receive(peer, read, now_ns)
            self._survey_ended()

    def relay_to(self, peer: str, datagram: bytes) -> tuple[str, ...]:
        """To whom the sealed form of this datagram is to be passed on unchanged."""
        role = self._role
        if not isinstance(role, FollowerPart) or peer != role.controller or not role.children:
            return ()
        read = read_datagram_untrusted(datagram)
        if read is None or not read.to_all or read.epoch != self._epoch:
            return ()
        return tuple(name for name in role.children if name in self._board.nodes and name != self._board.name)

    def tick(self, now_ns: int) -> None:
        """Time has come this far."""
        self._now_ns = now_ns
        role = self._role
        if role is None:
            return
        role.tick(now_ns)
        if isinstance(role, FollowerPart):
            self._outbox.tick(role.controller, role.epoch, now_ns)
        self._survey_ended()

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` is to be called next; None: not before something else happens."""
        if self._role is None:
            return None
        due = self._role.next_due_ns()
        of_outbox = self._outbox.next_due_ns() if isinstance(self._role, FollowerPart) else None
        return due if of_outbox is None else min(due, of_outbox)

    def take_outgoing(self) -> list[tuple[tuple[str, ...], bytes]]:
        """Return what is to be sent, and to whom."""
        return self._board.take_outgoing()

    # --- the engine

    def take_events(self) -> list[EngineEvent]:
        """Return what the engine is to be told."""
        return self._board.take_events()

    def submit(self, act: EngineAct, now_ns: int) -> None:
        """The engine has done something."""
        self._now_ns = now_ns
        role = self._role
        match act:
            case SubmitState():
                if isinstance(role, ControllerPart):
                    role.submit(act, now_ns)
                else:
                    self._board.counters["submit_refused"] += 1
            case SubmitHash():
                if isinstance(role, FollowerPart):
                    role.hashed(act, now_ns)
            case SubmitInteraction(payload):
                if isinstance(role, ControllerPart):
                    self._board.tell(InteractionReceived(self._board.name, payload))
                else:
                    self._outbox.add(payload)
                    self.tick(now_ns)
            case EngineDropped():
                self._engine_dropped(act)
            case FenceOpened(frame):
                self.apply(frame)
            case EngineLeft():
                self._board.counters["engine_left"] += 1

    def apply(self, frame: int) -> None:
        """External fence: the engine gets all frames up to this one, also those that are not complete yet."""
        if self._board.settings.fence is not FenceKind.EXTERNAL:
            self._board.counters["fence_refused"] += 1
        elif isinstance(self._role, FollowerPart):
            self._role.apply(frame)

    def set_streams(self, streams: tuple[ShowStream, ...]) -> None:
        """The streams of this node are these from now on."""
        self._streams = streams
        self._board.tell(StreamsChanged(streams))

    def flag_next(self, flags: HeadFlag) -> None:
        """Controller: the next frame has these flags."""
        if isinstance(self._role, ControllerPart):
            self._role.flag_next(flags)

    def quit(self) -> None:
        """Controller: end the show at all nodes, here last."""
        if isinstance(self._role, ControllerPart):
            self._role.quit()

    def leave(self) -> None:
        """Follower: this node is about to stop, so that the controller waits for it no more."""
        if isinstance(self._role, FollowerPart):
            self._role.leave()

    # --- what is to be seen

    @property
    def has_quit(self) -> bool:
        """Whether the show has ended at this node: a controller has told all others, or a follower was told."""
        return isinstance(self._role, ControllerPart | FollowerPart) and self._role.ended

    @property
    def held(self) -> frozenset[str]:
        """The nodes that are ignored."""
        return frozenset(self._board.held)

    @property
    def is_controller(self) -> bool:
        """Whether this node begins the frames."""
        return isinstance(self._role, ControllerPart)

    @property
    def epoch(self) -> int:
        """The highest that the authority has told; -1 before the first."""
        return self._epoch

    @property
    def begun(self) -> int:
        """The newest frame that the engine was told of, and may have shown; -1 before the first."""
        return self._board.begun

    @property
    def newest(self) -> CompleteFrame | None:
        """The newest frame of which this node has the full state."""
        return self._board.newest

    @property
    def counters(self) -> Counter[str]:
        """What happened how often."""
        return self._board.counters

    def drops(self) -> list[DropRange]:
        """Which node dropped which frames, as far as this node knows; the controller knows of all."""
        return self._board.drops()

    def not_applied(self) -> int:
        """Return how many frames this node has not applied, whatever the reason."""
        return self._board.not_applied()

    def acknowledged(self) -> dict[str, int]:
        """Controller: the newest frame that each follower has acknowledged."""
        return self._role.acknowledged() if isinstance(self._role, ControllerPart) else {}

    # --- within

    def _engine_dropped(self, act: EngineDropped) -> None:
        if isinstance(self._role, FollowerPart):
            self._role.engine_dropped(act)
        else:
            self._board.dropped(self._board.name, act.first, act.last, act.reason)

    def _survey_ended(self) -> None:
        role, board = self._role, self._board
        if not isinstance(role, SurveyPart) or not (role.done or board.settings.mode is ShowMode.INPUTS):
            return
        # In that mode only engines have the states: this one continues from its own, and sends it in full.
        start = None if board.settings.mode is ShowMode.INPUTS else role.found
        first = self._first
        if start is not None:
            first = max(first, start.head.frame + 1)
            if start.head.frame > board.told and start.state is not None:
                board.newest = start
                board.told = start.head.frame
                board.begin(start.head.frame, role.epoch, start.head.data)
                board.tell(FrameReady(start.head.frame, role.epoch, start.state, start.head.version))
        if start is not None:
            board.since = max(board.since or 0, board.settings.rate.since_of(start.head.frame, start.head.data))
        first = max(first, board.begun + 1, board.told + 1)
        self._role = ControllerPart(board, role.epoch, first, self._limit, start, self._now_ns)
        for payload in self._outbox.take_all():
            board.tell(InteractionReceived(board.name, payload))
        self._role.tick(self._now_ns)

    def _told_streams(self, role: FollowerPart) -> None:
        if role.streams_changed:
            role.streams_changed = False
            self._board.tell(StreamsChanged(self._streams))

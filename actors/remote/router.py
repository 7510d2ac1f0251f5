"""The router of a node: what proxies ask goes out to the peer it is for, what comes of it goes to the waiter here.

Casts and messages never fail: what cannot be sent is dropped, counted, and logged. Calls fail at once with an `Exit`
that says why. Links and signals that cannot be sent end as if the other node were lost.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

import trio

from batonpass.actors.core.exits import NOPROC, Exit, MailboxFull, NoProc, Reason
from batonpass.actors.core.ref import CAST
from batonpass.actors.remote import telemetry
from batonpass.actors.remote.desk import Tie, fault_of, reason_payload
from batonpass.actors.remote.errors import NOCONNECTION, NodeBusy, NodeDown, Undecodable, Unsendable
from batonpass.actors.remote.frames import AnswerFrame, RequestFault
from batonpass.actors.remote.peer import (
    Arrived,
    Broke,
    Effect,
    Failed,
    Let,
    RemotePeer,
    RequestAnswered,
    Untied,
    WatchedDown,
    WentDown,
    WentUp,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from batonpass.actors.core.process import Process
    from batonpass.actors.core.ref import From, Ref
    from batonpass.actors.core.system import System
    from batonpass.actors.remote.codec import Codec
    from batonpass.actors.remote.proxies import HandedCaller, RemoteProcess
    from batonpass.actors.remote.references import NodeReferences
    from batonpass.actors.remote.switchboard import Slot, Switchboard

logger = logging.getLogger("batonpass.actors")


@final
class _Watcher:
    """An actor here that watches one there."""

    __slots__ = ("tell", "to")

    def __init__(self, to: RemoteProcess, tell: Callable[[Reason], object]) -> None:
        self.to = to
        self.tell = tell


@final
class Router:
    """See the head of the module. It is the `Route` of this node's proxies."""

    def __init__(self, system: System, switchboard: Switchboard, references: NodeReferences, codec: Codec) -> None:
        self._system = system
        self._switchboard = switchboard
        self._references = references
        self._codec = codec
        self._counters = switchboard.counters
        self._asking: dict[From, tuple[Slot, int, RemoteProcess, bool]] = {}
        self._ties: dict[tuple[Process, RemoteProcess], list[Tie]] = {}

    # The route: what proxies ask

    def call(self, to: RemoteProcess, request: Any, from_: From) -> None:
        """`Route.call`."""
        payload = self._codec.encode(request)
        slot = self._switchboard.ready(to, len(payload))
        id_ = slot.peer.call(to.target, payload, from_, trio.current_time())
        self._asked(slot, to, from_, id_, is_call=True)

    def stop(self, to: RemoteProcess, reason: Reason, from_: From) -> None:
        """`Route.stop`."""
        payload = self._codec.encode(reason)
        slot = self._switchboard.ready(to, len(payload))
        self._asked(slot, to, from_, slot.peer.stop(to.target, payload, from_, trio.current_time()))

    def whereis(self, to: RemoteProcess, from_: From) -> None:
        """`Route.whereis`."""
        slot = self._switchboard.ready(to, 0)
        self._asked(slot, to, from_, slot.peer.whereis(str(to.target), from_, trio.current_time()))

    def _asked(self, slot: Slot, to: RemoteProcess, from_: From, id_: int | None, *, is_call: bool = False) -> None:
        if id_ is None:
            raise NodeBusy(str(to.ref), to.node)
        self._asking[from_] = (slot, id_, to, is_call)
        from_.deferred = True  # so that `forget` is called, whichever way it ends
        slot.touch()

    def forget(self, from_: From) -> None:
        """`Route.forget`."""
        asked = self._asking.pop(from_, None)
        if asked is not None:
            slot, id_, _, _ = asked
            slot.peer.cancel(id_, trio.current_time())
            slot.touch()

    def tell(self, kind: int, to: RemoteProcess, message: Any) -> None:
        """`Route.tell`: never fails. What cannot be sent is dropped, counted, and logged at each power of two."""
        try:
            payload = self._codec.encode(message)
            slot = self._switchboard.ready(to, len(payload))
        except Unsendable as error:
            self._counters["unsendable"] += 1
            logger.error("%s: a message to %s is dropped: %s", self._references.node, to.ref, error)
        except NodeBusy:
            self._drop(to, message)
        except (NodeDown, NoProc):
            self._counters["dropped_to_nobody"] += 1
        else:
            now = trio.current_time()
            if kind == CAST:
                slot.peer.cast(to.target, payload, now)
            else:
                slot.peer.send(to.target, payload, now)
            slot.touch()

    def _drop(self, to: RemoteProcess, message: Any) -> None:
        self._system.dropped += 1
        self._counters["dropped_busy"] += 1
        to.tell_overflow("message")
        dropped = self._counters["dropped_busy"]
        if dropped & (dropped - 1) == 0:
            logger.warning(
                "%s: the link to %s is full: %d messages to other nodes dropped so far, lastly a %s; send less",
                self._references.node,
                to.node,
                dropped,
                type(message).__name__,
            )

    def watch(self, to: RemoteProcess, tell: Callable[[Reason], object]) -> int:
        """`Route.watch`."""
        try:
            slot = self._switchboard.ready(to, 0)
        except NoProc as error:
            tell(error.reason)
            return 0
        except (NodeDown, NodeBusy):
            tell(NOCONNECTION)
            return 0
        watcher = _Watcher(to, tell)
        id_ = slot.peer.watch(to.target, watcher, trio.current_time())
        if id_ is None:
            tell(NOCONNECTION)
            return 0
        slot.touch()
        return id_

    def unwatch(self, to: RemoteProcess, token: int) -> None:
        """`Route.unwatch`."""
        slot = self._switchboard.slots.get(to.node)
        if slot is not None and token:
            slot.peer.unwatch(token, trio.current_time())
            slot.touch()

    def signal(self, to: RemoteProcess, reason: Reason, sender: Ref | None) -> None:
        """`Route.signal`."""
        payload = self._signal_payload(reason, sender)
        slot = self._reach(to, len(payload))
        if slot is not None:
            slot.peer.signal(to.target, payload, trio.current_time())
            slot.touch()

    def _signal_payload(self, reason: Reason, sender: Ref | None) -> bytes:
        try:
            return self._codec.encode((reason, sender))
        except Unsendable:
            described = self._codec.decode_untrusted(reason_payload(self._codec, self._references.node, reason))
            return self._codec.encode((described, sender))

    def kill(self, to: RemoteProcess) -> None:
        """`Route.kill`."""
        slot = self._reach(to, 0)
        if slot is not None:
            slot.peer.kill(to.target, trio.current_time())
            slot.touch()

    def _reach(self, to: RemoteProcess, size_bytes: int) -> Slot | None:
        try:
            return self._switchboard.ready(to, size_bytes)
        except Exit:
            self._counters["dropped_signals"] += 1
            return None

    def answer(self, caller: HandedCaller, value: Any, error: Exit | None) -> None:
        """`Route.answer`."""
        wire = caller.wire
        fault: int
        if error is not None:
            fault, payload = fault_of(self._codec, self._references.node, error)
        else:
            try:
                fault, payload = -1, self._codec.encode(value)
            except Unsendable as unsendable:
                logger.error("%s: an answer to a caller on %s: %s", self._references.node, wire.node, unsendable)
                fault, payload = RequestFault.EXIT, reason_payload(self._codec, self._references.node, unsendable)
        slot = self._reach(self._references.proxy(wire.node, wire.creation, (0, 0)), len(payload))
        if slot is not None:
            slot.peer.emit(AnswerFrame(wire.number, wire.seal, fault, payload), trio.current_time())
            slot.touch()

    # Links

    def link(self, to: RemoteProcess, local: Process) -> None:
        """`Route.link`: tell the other node. If it cannot be told, the link breaks at once."""
        if (local, to) in self._ties:
            return
        tie = Tie(local, to)
        slot = self._reach(to, 0)
        key = None
        if slot is not None:
            key = slot.peer.link(to.target, tie, self._codec.encode(local.ref), trio.current_time())
        if slot is None or key is None:
            self._break(local, to, NOCONNECTION if to.alive else NOPROC)
            return
        tie.key = key
        self.note_tie(tie)
        slot.touch()

    def note_tie(self, tie: Tie) -> None:
        """A link exists from now on."""
        self._ties.setdefault((tie.local, tie.remote), []).append(tie)

    def unlink(self, to: RemoteProcess, local: Process) -> bool:
        """`Route.unlink`."""
        ties = self._ties.pop((local, to), [])
        slot = self._switchboard.slots.get(to.node)
        if slot is not None:
            for tie in ties:
                slot.peer.untie(tie.key, tie, trio.current_time())
            slot.touch()
        return bool(ties)

    def break_link(self, to: RemoteProcess, local: Process, reason: Reason) -> bool:
        """`Route.break_link`."""
        if local.alive:
            return False
        ties = self._ties.pop((local, to), [])
        slot = self._switchboard.slots.get(to.node)
        if slot is not None and ties:
            payload = reason_payload(self._codec, self._references.node, reason)
            for tie in ties:
                slot.peer.broke(tie.key, tie, payload, trio.current_time())
            slot.touch()
        return bool(ties)

    def _break(self, local: Process, remote: RemoteProcess, reason: Reason) -> None:
        """The far end of a link is gone."""
        self.unlink(remote, local)
        if local.untie(remote):
            local.exit(reason, remote.ref)

    def _on_untied(self, tie: Tie) -> None:
        ties = self._ties.get((tie.local, tie.remote))
        if ties is not None and tie in ties:
            ties.remove(tie)
            if not ties:
                del self._ties[tie.local, tie.remote]
                tie.local.untie(tie.remote)

    # Effects

    def perform(self, slot: Slot, effect: Effect) -> None:
        """Do what a peer says; for the switchboard."""
        match effect:
            case Arrived(frame):
                slot.desk.handle(frame)
            case RequestAnswered(from_, payload):
                self._on_answered(from_, payload)
            case Failed(from_, fault, payload):
                self._on_failed(from_, fault, payload)
            case WatchedDown(watcher, payload):
                self._on_down(watcher, payload)
            case Broke(tie, payload):
                reason = NOCONNECTION if payload is None else self._reason(payload)
                if payload is not None and reason != NOPROC:
                    tie.remote.pass_away(reason)  # "noproc" is also the answer to those who may not link
                self._break(tie.local, tie.remote, reason)
            case Untied(tie):
                self._on_untied(tie)
            case Let(served):
                served.let_go()
            case WentUp():
                logger.info("%s: connected to %s", self._references.node, slot.peer.name)
                self._bury_former_lives(slot.peer)
                telemetry.tell_up(self._system, slot.peer.name)
            case WentDown(why):
                logger.info("%s: the connection to %s is lost: %s", self._references.node, slot.peer.name, why)
                telemetry.tell_down(self._system, slot.peer.name, why)

    def _bury_former_lives(self, peer: RemotePeer) -> None:
        """The node has begun a new life, if this is not the one that it had: no actor of the former is there any
        more.
        """
        for process in self._references.proxies_of(peer.name):
            if process.creation not in (0, peer.creation):
                process.pass_away(NOPROC)

    def _on_answered(self, from_: From, payload: bytes) -> None:
        asked = self._asking.pop(from_, None)
        try:
            value = self._codec.decode_untrusted(payload)
        except Undecodable as error:
            from_.fail(Exit(error, str(asked[2].ref) if asked else "the actor"))
        else:
            from_.reply(value)

    def _on_failed(self, from_: From, fault: RequestFault | None, payload: bytes) -> None:
        asked = self._asking.pop(from_, None)
        if asked is None:
            return
        _, _, to, is_call = asked
        if fault is None:
            from_.fail(NodeDown(str(to.ref), to.node))
        elif fault is RequestFault.NOPROC:
            # A `stop` fails so, too, when we may not: then it keeps living.
            if is_call:
                to.pass_away(NOPROC)
            from_.fail(NoProc(str(to.ref)))
        elif fault is RequestFault.FULL:
            limit = self._reason(payload)
            from_.fail(MailboxFull(str(to.ref), limit if type(limit) is int else 0))
        else:
            from_.fail(Exit(self._reason(payload), str(to.ref)))

    def _on_down(self, watcher: _Watcher, payload: bytes | None) -> None:
        if payload is None:
            watcher.tell(NOCONNECTION)
        else:
            reason = self._reason(payload)
            watcher.to.pass_away(reason)
            watcher.tell(reason)

    def _reason(self, payload: bytes) -> Reason:
        try:
            return self._codec.decode_untrusted(payload)
        except Undecodable as error:
            return error

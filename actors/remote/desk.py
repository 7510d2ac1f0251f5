"""Does what one peer asks of actors here, as far as it may.

A peer may talk to, ask for and monitor whatever is published or was given away. It may end nothing unless this node
says that it may control (`controllers`). That includes links to actors that do not trap exits, because a link is a
promise to die. Whatever it may not do looks as if there were no such actor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol, final

import cbor2
import trio

from batonpass.actors.core.exits import NOPROC, Exit, MailboxFull, NoProc, Reason
from batonpass.actors.core.ref import CAST, INFO, Ref
from batonpass.actors.remote.errors import RemoteError, Undecodable, Unsendable
from batonpass.actors.remote.frames import (
    AnswerFrame,
    CallFrame,
    Cast,
    Frame,
    KillFrame,
    LinkIt,
    MonitorIt,
    RequestFault,
    Send,
    Signal,
    StopIt,
    Whereis,
)
from batonpass.actors.remote.proxies import RemoteCaller, RemoteProcess

if TYPE_CHECKING:
    from batonpass.actors.core.process import Process
    from batonpass.actors.remote.codec import Codec
    from batonpass.actors.remote.frames import Target
    from batonpass.actors.remote.references import NodeReferences
    from batonpass.actors.remote.switchboard import Slot

logger = logging.getLogger("batonpass.actors")

_NOPROC_PAYLOAD = cbor2.dumps(NOPROC)


class Tie:
    """One link between an actor here and one there."""

    __slots__ = ("key", "local", "remote")

    def __init__(self, local: Process, remote: RemoteProcess) -> None:
        self.local = local
        self.remote = remote
        self.key = (0, False)


class Links(Protocol):
    """The table of links to other nodes."""

    def note_tie(self, tie: Tie) -> None:
        """A link exists from now on."""


class _MonitoredActor:
    """An actor that the peer monitors."""

    __slots__ = ("process", "token")

    def __init__(self, process: Process) -> None:
        self.process = process
        self.token = 0

    def let_go(self) -> None:
        self.process.unwatch(self.token)


def reason_payload(codec: Codec, node: str, reason: Reason) -> bytes:
    """An exit reason as it travels; one that cannot travel is described."""
    try:
        return codec.encode(reason)
    except Unsendable:
        try:
            text = repr(reason)[:1000]
        except Exception:
            text = "(it has no description: its __repr__ raised)"
        text = text.encode("utf-8", "replace").decode()
        return codec.encode(RemoteError(type(reason).__qualname__[:100], text, node))


@final
class Desk:
    """For one peer; see the head of the module."""

    def __init__(
        self, slot: Slot, links: Links, references: NodeReferences, codec: Codec, *, may_control: bool
    ) -> None:
        self._slot = slot
        self._links = links
        self._peer = slot.peer
        self._references = references
        self._codec = codec
        self._may_control = may_control
        self.undecodable = 0

    @property
    def node(self) -> str:
        """The peer's name."""
        return self._peer.name

    def handle(self, frame: Frame) -> None:
        """Do it. Never raises."""
        match frame:
            case Cast(target, payload):
                self._tell(CAST, target, payload)
            case Send(target, payload):
                self._tell(INFO, target, payload)
            case CallFrame(target, id_, payload):
                self._call(target, id_, payload)
            case MonitorIt(target, id_):
                self._monitor(target, id_)
            case Whereis(name, id_):
                self._peer.reply(id_, None, self._codec.encode(self._references.whereis(name)), trio.current_time())
            case StopIt(target, id_, payload):
                self._stop(target, id_, payload)
            case Signal(target, payload):
                self._signal(target, payload)
            case KillFrame(target):
                process = self._controlled(target)
                if process is not None:
                    process.kill()
            case LinkIt(target, id_, payload):
                self._link(target, id_, payload)
            case AnswerFrame(number, seal, fault, payload):
                self._answer_handed(number, seal, fault, payload)
            case _:
                raise AssertionError(frame)

    def _decode(self, payload: bytes) -> Any:
        """Raises `Undecodable`."""
        try:
            return self._codec.decode_untrusted(payload)
        except Undecodable as error:
            self.undecodable += 1
            if self.undecodable & (self.undecodable - 1) == 0:
                logger.warning(
                    "%s: %d messages of %s could not be decoded so far, lastly: %s",
                    self._references.node,
                    self.undecodable,
                    self._peer.name,
                    error,
                )
            raise

    # Messages

    def _tell(self, kind: int, target: Target, payload: bytes) -> None:
        process = self._references.find(target)
        if process is None:
            return
        try:
            message = self._decode(payload)
        except Undecodable:
            return
        if kind == CAST:
            process.ref.cast(message)
        else:
            process.ref.send(message)

    def _call(self, target: Target, id_: int, payload: bytes) -> None:
        process = self._references.find(target)
        opened = self._open(process, id_, payload)
        if process is None or opened is None:
            return
        caller, request = opened
        if process.scheduled or not process.system.scheduler.handle_at_once(process, request, caller):
            try:
                process.submit_call(request, caller)
            except Exit as error:
                caller.fail(error)

    def _open(self, process: Process | None, id_: int, payload: bytes) -> tuple[RemoteCaller, Any] | None:
        """Begin to serve what wants an answer: its caller, and what it says; None if it has its answer already."""
        if process is None:
            self._peer.fail(id_, None, RequestFault.NOPROC, b"", trio.current_time())
            return None
        caller = RemoteCaller(process, self, id_)
        self._peer.serve(id_, caller)
        try:
            return caller, self._decode(payload)
        except Undecodable as error:
            caller.fail(Exit(error, str(process.ref)))
            return None

    def answer(self, caller: RemoteCaller, value: Any, error: Exit | None) -> None:
        """An actor here has answered, or its call failed."""
        now = trio.current_time()
        if error is None:
            try:
                payload = self._codec.encode(value)
            except Unsendable as unsendable:
                logger.error("%s: an answer to %s: %s", self._references.node, self._peer.name, unsendable)
                error = Exit(unsendable, "the actor")
            else:
                self._peer.reply(caller.id, caller, payload, now)
        if error is not None:
            self._peer.fail(caller.id, caller, *self._fault_of(error), now)
        self._slot.touch()

    def _fault_of(self, error: Exit) -> tuple[RequestFault, bytes]:
        return fault_of(self._codec, self._references.node, error)

    def _answer_handed(self, number: int, seal: int, fault: int, payload: bytes) -> None:
        caller = self._references.take_caller(number, seal)
        if caller is None:
            return
        try:
            value = self._decode(payload) if payload else None
        except Undecodable as error:
            caller.fail(Exit(error, "the actor"))
            return
        if fault < 0:
            caller.reply(value)
        elif fault == RequestFault.NOPROC:
            caller.fail(NoProc("the actor"))
        else:
            caller.fail(Exit(value, "the actor"))

    # Watching

    def _monitor(self, target: Target, id_: int) -> None:
        process = self._references.find(target)
        if process is None:
            self._peer.ended(id_, None, _NOPROC_PAYLOAD, trio.current_time())
            return
        watched = _MonitoredActor(process)
        self._peer.serve_watch(id_, watched)

        def tell(reason: Reason) -> None:
            payload = reason_payload(self._codec, self._references.node, reason)
            self._peer.ended(id_, watched, payload, trio.current_time())
            self._slot.touch()

        watched.token = process.watch(tell)

    # What only those may who may control

    def _controlled(self, target: Target) -> Process | None:
        process = self._references.find(target)
        if process is not None and not self._may_control:
            self._references.refused += 1
            return None
        return process

    def _stop(self, target: Target, id_: int, payload: bytes) -> None:
        process = self._controlled(target)
        opened = self._open(process, id_, payload)
        if process is None or opened is None:
            return
        caller, reason = opened
        process.watch(caller.reply)
        process.request_stop(reason)

    def _signal(self, target: Target, payload: bytes) -> None:
        process = self._controlled(target)
        if process is None:
            return
        try:
            signal = self._decode(payload)
        except Undecodable:
            return
        if isinstance(signal, tuple) and len(signal) == 2 and (signal[1] is None or isinstance(signal[1], Ref)):
            process.ref.exit(*signal)

    def _link(self, target: Target, id_: int, payload: bytes) -> None:
        process = self._references.find(target)
        try:
            sender = self._decode(payload)
        except Undecodable:
            sender = None
        is_welcome = process is not None and (self._may_control or process.traps_exits)
        if (
            process is None
            or not is_welcome
            or not isinstance(sender, Ref)
            or not isinstance(sender.process, RemoteProcess)
            or sender.process.node != self._peer.name
        ):
            self._references.refused += process is not None
            self._peer.broke((id_, False), None, _NOPROC_PAYLOAD, trio.current_time())
            return
        tie = Tie(process, sender.process)
        tie.key = self._peer.accept_link(id_, tie)
        process.tie(sender.process)
        self._links.note_tie(tie)


def fault_of(codec: Codec, node: str, error: Exit) -> tuple[RequestFault, bytes]:
    """How the failure of a call travels."""
    if isinstance(error, NoProc):
        return RequestFault.NOPROC, b""
    if isinstance(error, MailboxFull):
        return RequestFault.FULL, cbor2.dumps(error.limit)
    return RequestFault.EXIT, reason_payload(codec, node, error.reason)

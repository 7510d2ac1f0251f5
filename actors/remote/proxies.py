"""What stands here for an actor on another node: the process behind a `Ref`, a name, and callers in both directions.

A proxy takes no messages itself: its mailbox has no room and it is never idle. So `Ref.call`, `cast` and `send` come to
the same slow paths as for a full mailbox, where everything is handed to the `NodeRoute`. Local actors pay nothing for
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, final

from batonpass.actors.core.exits import NOPROC, Exit, NoProc, Reason
from batonpass.actors.core.node_port import NamedThere
from batonpass.actors.core.process import ALIVE_STILL, NO_MAIL, Process, Status
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S, INFO, From, Ref

if TYPE_CHECKING:
    from collections.abc import Callable

    from batonpass.actors.core.messages import Late
    from batonpass.actors.core.system import System
    from batonpass.actors.remote.codec import WireCaller
    from batonpass.actors.remote.frames import Target


class NodeRoute(Protocol):
    """How proxies reach their node. Nothing here waits; only `call` and `stop` raise."""

    def call(self, to: RemoteProcess, request: Any, from_: From) -> None:
        """Send a call; `from_` is answered or fails. Raises `NodeBusy`, `NodeDown`, `NoProc`, `Unsendable`."""

    def stop(self, to: RemoteProcess, reason: Reason, from_: From) -> None:
        """Ask to stop; as `call`."""

    def whereis(self, to: RemoteProcess, from_: From) -> None:
        """Ask for the ref behind a name; as `call`."""

    def tell(self, kind: int, to: RemoteProcess, message: Any) -> None:
        """Send a cast (`CAST`) or a message for `handle_info`."""

    def forget(self, from_: From) -> None:
        """The caller has gone away."""

    def watch(self, to: RemoteProcess, tell: Callable[[Reason], object]) -> int:
        """Call `tell(reason)` once, when it ends or cannot be reached."""

    def unwatch(self, to: RemoteProcess, token: int) -> None:
        """Take back a `watch`."""

    def signal(self, to: RemoteProcess, reason: Reason, sender: Ref | None) -> None:
        """Send an exit signal."""

    def kill(self, to: RemoteProcess) -> None:
        """Kill it."""

    def link(self, to: RemoteProcess, local: Process) -> None:
        """Keep the far half of a link."""

    def unlink(self, to: RemoteProcess, local: Process) -> bool:
        """Take back a link; whether there was one."""

    def break_link(self, to: RemoteProcess, local: Process, reason: Reason) -> bool:
        """`local` has ended; whether it was linked."""

    def answer(self, caller: HandedCaller, value: Any, error: Exit | None) -> None:
        """Answer a caller that waits on another node."""


@final
class RemoteProcess(Process):
    """Stands for one actor of another node, or (`target` is a text) for the one that has a published name there."""

    __slots__ = ("__weakref__", "_node", "creation", "route", "target")

    def __init__(self, system: System, route: NodeRoute, node: str, creation: int, target: Target) -> None:
        # Not `Process.__init__`: it is none of the system's actors. The fields are those that its methods use.
        self.system = system
        self.route = route
        self._node = node
        self.creation = creation
        self.target = target
        self.pid = 0 if isinstance(target, str) else target[0]
        self._kind = repr(target) if isinstance(target, str) else ""
        self.parent = None
        self.ref = Ref(self)
        self.status = Status.RUNNING
        self.reason = ALIVE_STILL
        self.pending_exit = ALIVE_STILL
        self.scope = None
        self.started_value = None
        self.mailbox = NO_MAIL
        self.accepts = 0
        self.scheduled = True
        self.names = None
        self.timers = None
        self.children = None
        self._watchers = None
        self._monitors = None
        self._token = 0

    @property
    def node(self) -> str:
        """The node it runs on."""
        return self._node

    @property
    def label(self) -> str:
        """Where it is, and its pid or name."""
        return f"{self._node}/{self._kind or f'#{self.pid}'}"

    @property
    def is_by_name(self) -> bool:
        """Whether it stands for a name, which means another after a restart."""
        return isinstance(self.target, str)

    # Messages

    def submit_call(self, request: Any, from_: From) -> None:
        """Send a call."""
        self._require_alive()
        self.route.call(self, request, from_)

    def refuse(self, kind: int, message: Any) -> None:
        """Send a cast or a message: what a local actor would have refused is what comes here."""
        if self.alive:
            self.route.tell(kind, self, message)

    def deliver_info(self, message: Any) -> None:
        """Send a message: `Timers.send_after` comes here."""
        if self.alive:
            self.route.tell(INFO, self, message)

    def deliver_late(self, late: Late) -> None:
        """Send a tick, or whatever it is, made here and now: how late it is when it is handled is not known."""
        message = late.take()
        if message is not None:
            self.deliver_info(message)

    def forget_caller(self, from_: From) -> None:
        """The caller has gone away, or has its answer."""
        self.route.forget(from_)

    def _require_alive(self) -> None:
        if not self.alive:
            raise NoProc(str(self.ref))

    # The end

    def bury(self) -> None:
        """It never was, or was in a former life of this very node: a proxy that is dead from the beginning."""
        self.status = Status.DEAD
        self.reason = NOPROC

    def pass_away(self, reason: Reason) -> None:
        """It is known to have ended. Its watchers are told by the route."""
        if self.alive and not self.is_by_name:
            self.status = Status.DEAD
            self.reason = reason
            timers, self.timers = self.timers, None
            for timer in list(timers or ()):
                timer.disarm()

    def exit(self, reason: Reason, sender: Ref | None = None) -> None:
        """Send an exit signal; or, for a link whose other end has just ended, the news of that."""
        if self.alive and (sender is None or not self.route.break_link(self, sender.process, reason)):
            self.route.signal(self, reason, sender)

    def kill(self) -> None:
        """Kill it."""
        if self.alive:
            self.route.kill(self)

    async def stop(self, reason: Reason) -> Reason:
        """Have it stopped and wait until it has; with which reason. Raises as a call does."""
        self._require_alive()
        from_ = From(self)
        self.route.stop(self, reason, from_)
        ended: Reason = await from_.wait(None)
        return ended

    # Watching and links

    def watch(self, tell: Callable[[Reason], object]) -> int:
        """Call `tell(reason)` once, when it ends or cannot be reached; perhaps at once."""
        if not self.alive:
            tell(NOPROC)
            return 0
        return self.route.watch(self, tell)

    def unwatch(self, token: int) -> None:
        """Take back a `watch`."""
        self.route.unwatch(self, token)

    def tie(self, peer: Process) -> None:
        """Have the far half of a link kept."""
        self.route.link(self, peer)

    def untie(self, peer: Process) -> bool:
        """Take back the far half of a link; whether there was one."""
        # From the end of `peer` this is followed by `exit`, which says why; only a living one takes the link back.
        return self.route.unlink(self, peer) if peer.alive else False


@final
class RemoteNamed(NamedThere):
    """The actor that has a published name on another node at the moment of use, by the rules of `Named`."""

    __slots__ = ("_process",)

    def __init__(self, process: RemoteProcess) -> None:
        super().__init__(self, process.target)
        self._process = process

    def __repr__(self) -> str:
        return f"<the actor named {self.name!r} on {self._process.node}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteNamed) and (self.node, self.name) == (other.node, other.name)

    def __hash__(self) -> int:
        return hash((self.node, self.name))

    @property
    def node(self) -> str:
        """Where."""
        return self._process.node

    def whereis(self, _name: object) -> Ref:
        """A ref that means the actor that has the name: the same as a local name looks up."""
        return self._process.ref

    async def lookup(self, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Ref | None:
        """Who has the name now: a ref that never comes to mean another. Raises as a call does."""
        self._process.require_loop()
        self._process._require_alive()
        from_ = From(self._process)
        self._process.route.whereis(self._process, from_)
        ref: Ref | None = await from_.wait(timeout_s)
        return ref


class Answering(Protocol):
    """Takes the answer to a call that came from another node."""

    @property
    def node(self) -> str:
        """Which node that is."""

    def answer(self, caller: RemoteCaller, value: Any, error: Exit | None) -> None:
        """Send the answer."""


@final
class RemoteCaller(From):
    """The caller of a call that came from another node, as the actor that handles it sees it."""

    __slots__ = ("_desk", "id")

    def __init__(self, process: Process, desk: Answering, id_: int) -> None:
        super().__init__(process)
        self._desk = desk
        self.id = id_

    @property
    def node(self) -> str:
        """The name of the node from which the call came."""
        return self._desk.node

    def reply(self, value: Any) -> None:
        """Answer, as `From.reply`."""
        if self.is_here(self.reply, value) and self.waiting:
            super().reply(value)
            self._desk.answer(self, value, None)

    def fail(self, error: Exit) -> None:
        """Refuse, as `From.fail`."""
        if self.waiting:
            super().reply(None)
            self._desk.answer(self, None, error)

    def let_go(self) -> None:
        """The caller has gone away: an answer vanishes."""
        if self.waiting:
            super().reply(None)


@final
class HandedCaller(From):
    """A caller that waits on another node, for an actor there, handed on in a message to an actor here."""

    __slots__ = ("_route", "wire")

    def __init__(self, process: RemoteProcess, wire: WireCaller) -> None:
        super().__init__(process)
        self._route = process.route
        self.wire = wire

    @property
    def node(self) -> str:
        """The name of the node at which the caller waits."""
        return self.wire.node

    def reply(self, value: Any) -> None:
        """Answer, as `From.reply`. Whether it still waits only its own node knows."""
        if self.is_here(self.reply, value) and self.waiting:
            super().reply(value)
            self._route.answer(self, value, None)

    def fail(self, error: Exit) -> None:
        """Refuse, as `From.fail`."""
        if self.waiting:
            super().reply(None)
            self._route.answer(self, None, error)


__all__ = ["Answering", "HandedCaller", "NodeRoute", "RemoteCaller", "RemoteNamed", "RemoteProcess"]

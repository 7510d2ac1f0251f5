"""The server behaviour: what a stateful actor is, seen by the one who writes it (OTP's GenServer).

An actor handles one message at a time, so its state needs no locks. You write callbacks; they *return* what should
happen, and the runtime does it:

====================  ======================================================  ======================================
callback              may return                                              called for
====================  ======================================================  ======================================
`init`                the first state · `Ok` · `IGNORE` · `Stop`              starting; the starter waits for it
`handle_call`         `Reply` · `NoReply` · `Stop`                            `await ref.call(request)`
`handle_cast`         `None` · `NoReply` · `Stop`                             `ref.cast(message)`
`handle_info`         `None` · `NoReply` · `Stop`                             `ref.send`, `Down`, `Tick`, `TIMEOUT`, ...
`handle_continue`     `None` · `NoReply` · `Stop`                             `then=Continue(x)`, before any message
`handle_hibernate`    `None` · `NoReply` · `Stop`                             `then=HIBERNATE`, `hibernate_after_s`
`terminate`           ignored                                                 the end, when that is known before
`format_status`       `ServerStatus`                                          a crash, for the log; `sys.get_status`
====================  ======================================================  ======================================

**State.** Every callback is given the state, and every result may carry the next one: `Reply(value, state)`. This is
OTP's way, and it is the one to prefer when the state is a value (a number, a frozen dataclass). Leaving the state out,
`Reply(value)` or `None`, keeps the present one. So a state that is a mutable object, or that lives in attributes of
`self`, costs no ceremony and no allocation. Both are safe, because the runtime makes a new `Server` object for each
life of the actor. A restart starts from `init`, never from what the crash left behind.

**Waiting.** Callbacks are plain `def` and must not block: they run on the node's run queue, and while one runs nothing
else does. A callback that has to wait is declared `async def`. It then runs in a trio task of its own. The actor takes
its next message only after it has finished, and all others continue meanwhile.

This module is pure: it imports no trio.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar, final, overload

from batonpass.actors.core.exits import NORMAL, Reason
from batonpass.actors.core.status_report import ServerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from batonpass.actors.core.messages import Monitor, Starts
    from batonpass.actors.core.named import Named
    from batonpass.actors.core.ref import From, Ref
    from batonpass.actors.core.system import System
    from batonpass.actors.core.timers import Interval, Timer

logger = logging.getLogger("batonpass.actors")

StateT = TypeVar("StateT")
ArgT = TypeVar("ArgT")


class _Keep:
    """The type of `KEEP`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Final[Any] = _Keep()
"""In place of a state: the present state stays."""

NO_REPLY: Final[Any] = _Keep()
"""In place of a reply in `Stop`: the caller is not answered, and so gets `Exit` with the reason."""


class Ignore(Enum):
    """The type of `IGNORE`."""

    IGNORE = "ignore"


IGNORE: Final = Ignore.IGNORE
"""From `init`: do not run after all. The starter gets `Ignored`; a supervisor keeps the specification and continues."""


@final
@dataclass(slots=True)
class Continue:
    """`then=Continue(value)`: call `handle_continue(value, state)` next, before any message in the mailbox."""

    value: Any


class Hibernate(Enum):
    """The type of `HIBERNATE`."""

    HIBERNATE = "hibernate"


HIBERNATE: Final = Hibernate.HIBERNATE
"""`then=HIBERNATE`: no message is expected for long, so call `handle_hibernate` and give back what can be given back.

Nothing happens if a message waits already. An actor that hibernates is as alive as any other, and the next message
finds it as it was. (An idle actor has no task and no mailbox in any case. What hibernation adds is in
`Server.handle_hibernate`, and the room that its tables of timers, monitors, links and callers had grown to.)"""

Next: TypeAlias = Continue | Hibernate | None
"""What follows a result, before the next message."""


@dataclass(slots=True)
class Ok(Generic[StateT]):
    """From `init`: started, with this state. Returning the bare state means `Ok(state)`."""

    state: StateT
    then: Next = None
    timeout_s: float | None = None


@final
@dataclass(slots=True)
class Reply(Generic[StateT]):
    """Answer the caller with `value` and continue with `state`.

    With `timeout_s`, `handle_info(TIMEOUT)` follows if no message of any kind comes first.
    """

    value: Any
    state: StateT = KEEP
    then: Next = None
    timeout_s: float | None = None


@dataclass(slots=True)
class NoReply(Generic[StateT]):
    """Continue with `state`. After a call: the caller keeps waiting, until `from_.reply(value)` is called."""

    state: StateT = KEEP
    then: Next = None
    timeout_s: float | None = None


@dataclass(slots=True)
class Stop(Generic[StateT]):
    """End with `reason` (after `terminate`), answering the present caller with `reply` if one is given."""

    reason: Reason = NORMAL
    state: StateT = KEEP
    reply: Any = NO_REPLY


InitResult: TypeAlias = StateT | Ok[StateT] | Ignore | Stop[StateT]
CallResult: TypeAlias = Reply[StateT] | NoReply[StateT] | Stop[StateT]
Result: TypeAlias = NoReply[StateT] | Stop[StateT] | None


class Server(Generic[StateT]):
    """Subclass this, override the callbacks you need, and start it with `System.start` or under a supervisor.

    The runtime sets `ref` and `system` before `init`. Do not share a `Server` object: hand out its `ref`.
    """

    trap_exit: bool = False
    """Whether exit signals become messages, and a shutdown by the parent calls `terminate` (OTP's trap_exit).

    Say it for the class, or set `self.trap_exit` in `init` or any other callback, at any time. It decides about the
    signals that arrive from then on."""

    hibernate_after_s: ClassVar[float | None] = None
    """Hibernate by itself when no message has come for this long; it may take up to twice as long to be noticed. None:
    only on `then=HIBERNATE`. Not while a `timeout_s` is running."""

    mailbox_limit: ClassVar[int] = 65_536
    """How many messages may wait. Beyond it a call is refused (`MailboxFull`) and a cast or send is dropped, counted in
    `System.stats` and logged. What was accepted is kept, in order. What the runtime itself sends (`Down`, timers, exit
    signals) is not refused: the actor bounds it by how many monitors and timers it makes.
    """

    ref: Ref
    system: System

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Raises ValueError for a `mailbox_limit` below 1 (nothing could ever be said to such an actor), and for a
        `hibernate_after_s` that is not above 0.
        """
        super().__init_subclass__(**kwargs)
        if cls.mailbox_limit < 1:
            raise ValueError(f"{cls.__name__}.mailbox_limit must be 1 or more, not {cls.mailbox_limit}")
        if cls.hibernate_after_s is not None and not cls.hibernate_after_s > 0:
            raise ValueError(f"{cls.__name__}.hibernate_after_s must be more than 0, not {cls.hibernate_after_s}")

    def behaviour(self) -> Server[Any]:
        """What the runtime calls in place of this object: itself. For behaviours that are built on this one."""
        return self

    @property
    def callback_class(self) -> type:
        """The class that the user wrote callbacks in, for people: see `behaviour`."""
        return type(self)

    # Callbacks

    def init(self, arg: Any) -> InitResult[StateT] | Awaitable[InitResult[StateT]]:
        """Return the first state. Raising, or returning `Stop`, makes the start fail; `terminate` is not called then.

        The default keeps `arg` as the state.
        """
        state: StateT = arg
        return state

    def handle_call(
        self, request: Any, from_: From, state: StateT
    ) -> CallResult[StateT] | Awaitable[CallResult[StateT]]:
        """Answer `request`, now (`Reply`) or later (`NoReply`, then `from_.reply`). Without an override: a crash."""
        raise NotImplementedError(f"{type(self).__name__} got the call {request!r} but has no handle_call")

    def handle_cast(self, message: Any, state: StateT) -> Result[StateT] | Awaitable[Result[StateT]]:
        """Take in `message`, whose sender expects no answer. Without an override: a crash."""
        raise NotImplementedError(f"{type(self).__name__} got the cast {message!r} but has no handle_cast")

    def handle_info(self, message: Any, state: StateT) -> Result[StateT] | Awaitable[Result[StateT]]:
        """Take in a message of the runtime or of `ref.send`. Without an override: logged and forgotten, as in OTP."""
        logger.warning("%s got a message it has no handle_info for: %r", self.ref, message)
        return None

    def handle_continue(self, value: Any, state: StateT) -> Result[StateT] | Awaitable[Result[StateT]]:
        """Do the rest of what a callback began; no message comes in between. Without an override: a crash."""
        raise NotImplementedError(f"{type(self).__name__} has no handle_continue for {value!r}")

    def handle_hibernate(self, state: StateT) -> Result[StateT] | Awaitable[Result[StateT]]:
        """Give back what can be had again: drop caches, close files, return a smaller state. The default does nothing.

        OTP collects garbage here. Python has given back long ago what is not referred to. So what is left is what the
        state itself refers to, which only you can judge.
        """
        return None

    def format_status(self, status: ServerStatus) -> ServerStatus:
        """Say what of this actor may be shown, in the log line of a crash and to people who look at the live system.

        Return `status`, or a copy without secrets: `dataclasses.replace(status, state="...")`. Without an override
        everything is shown, cut to a few hundred characters in logs. If this raises, nothing is shown.
        """
        return status

    def terminate(self, reason: Reason, state: StateT) -> object:
        """Clean up; the result is ignored.

        Called when a callback returned `Stop` or raised, on `ref.stop`, and, only if `trap_exit` is true, when the
        parent shuts the actor down. Not called when the actor is killed, gets any other exit signal without trapping,
        or its `init` failed. As in OTP it is a courtesy, no guarantee: what must not be lost belongs to another.
        """
        return None

    # What an actor may ask of the runtime, about itself

    def set_label(self, label: str) -> None:
        """Say what this actor is for: it stands beside its class and name wherever people see it. "" takes it away."""
        self.ref.process.set_label(label)

    def monitor(self, ref: Ref | Named) -> Monitor:
        """Be told by one `Down` message when `ref` ends; at once, with reason `"noproc"`, if it already has.

        By name: the actor that has the name now. Its next life is another actor, to be monitored anew.
        """
        return self.ref.process.monitor(ref)

    def demonitor(self, monitor: Monitor) -> None:
        """Stop watching. A `Down` that is already in the mailbox is taken out of it (OTP's `[:flush]`)."""
        self.ref.process.demonitor(monitor)

    def link(self, ref: Ref | Named) -> None:
        """Share the fate of `ref` from now on: see `actors.core.links`. Linking twice makes one link, to itself none.

        By name: of the actor that has the name now.

        Raises `NoProc` if `ref` has ended; to an actor that traps exits comes `ExitSignal("noproc", ref)` instead.
        """
        self.ref.process.link(ref)

    def unlink(self, ref: Ref | Named) -> None:
        """Take back a link of either side. If `ref` has ended and its signal is in the mailbox, it is taken out."""
        self.ref.process.unlink(ref)

    @overload
    async def start_link(
        self, server: Callable[[], Starts[None]], *, name: Hashable = None, timeout_s: float | None = None
    ) -> Ref: ...

    @overload
    async def start_link(
        self, server: Callable[[], Starts[ArgT]], arg: ArgT, *, name: Hashable = None, timeout_s: float | None = None
    ) -> Ref: ...

    async def start_link(
        self,
        server: Callable[[], Any],
        arg: Any = None,
        *,
        name: Hashable = None,
        timeout_s: float | None = None,
    ) -> Ref:
        """Start an actor that is linked to this one, and whose parent this is: see `System.start`.

        Raises what that raises. Unless this traps exits, a start that fails because `init` did also ends this actor,
        with the same reason. One that is ignored or takes too long does not.
        """
        return await self.system.start(server, arg, name=name, timeout_s=timeout_s, link=self.ref)

    @overload
    def start_link_nowait(self, server: Callable[[], Starts[None]], *, name: Hashable = None) -> Ref: ...

    @overload
    def start_link_nowait(self, server: Callable[[], Starts[ArgT]], arg: ArgT, *, name: Hashable = None) -> Ref: ...

    def start_link_nowait(self, server: Callable[[], Any], arg: Any = None, *, name: Hashable = None) -> Ref:
        """`start_link` for a server whose `init` is a plain `def`, from a callback that is one too."""
        return self.system.start_nowait(server, arg, name=name, link=self.ref)

    def exit(self, ref: Ref | Named, reason: Reason) -> None:
        """Send an exit signal from this actor, as OTP's `exit(pid, reason)`: see `Ref.exit`."""
        ref.exit(reason, self.ref)

    def send_after(self, delay_s: float, message: Any) -> Timer:
        """Send `message` to this actor's `handle_info` in `delay_s` seconds, unless the timer is cancelled first."""
        return self.system.timers.send_after(delay_s, self.ref, message)

    def send_interval(self, period_s: float, name: Hashable = None, *, start_s: float | None = None) -> Interval:
        """Send a `Tick` named `name` every `period_s` seconds, without drift; see `Timers.send_interval`."""
        return self.system.timers.send_interval(period_s, self.ref, name, start_s=start_s)

"""The messages the runtime itself puts into an actor's mailbox; they arrive in `handle_info`.

`Tick` is another: it lives with the arithmetic of ticks, in `actors.core.timers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, final

from batonpass.actors.base.handles import Handle

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.named import Named
    from batonpass.actors.core.process import Process
    from batonpass.actors.core.ref import Ref
    from batonpass.actors.core.server import Server

ReplyT_co = TypeVar("ReplyT_co", covariant=True)
ArgT_contra = TypeVar("ArgT_contra", contravariant=True)


class Timeout(Enum):
    """The type of `TIMEOUT`, so that `match` and mypy can tell it from every other message."""

    TIMEOUT = "timeout"


TIMEOUT: Final = Timeout.TIMEOUT
"""No message came for the `timeout_s` that the last callback asked for."""


@final
class Monitor(Handle):
    """One watch on one actor, from `Server.monitor`: the handle to tell `Down` messages apart, and to stop watching."""

    __slots__ = ("process", "ref", "token")

    def __init__(self, ref: Ref | Named, process: Process | None) -> None:
        self.ref = ref
        """What was given to `monitor`."""
        self.process = process
        """Who was meant by that."""
        self.token = 0

    def __repr__(self) -> str:
        return f"<monitor of {self.ref}>"


@final
@dataclass(frozen=True, slots=True)
class Down:
    """The monitored actor ended (`reason` says why), or was not there to begin with (`reason` is `"noproc"`).

    `ref` is what was given to `monitor`: a ref, or a name.
    """

    monitor: Monitor
    ref: Ref | Named
    reason: Reason


class Request(Generic[ReplyT_co]):
    """Base of requests that say what they are answered with, so that type checkers know what a call returns.

        @dataclass(frozen=True)
        class HowMany(Request[int]):
            room: str

        count = await ref.call(HowMany("lobby"))  # an int

    Any other value may be a request as well; what it is answered with is then `Any`. That the actor does answer so is
    its author's word, as with every annotation. So is, to mypy, an annotation of the variable in the same line.
    """

    __slots__ = ()


class Starts(Protocol[ArgT_contra]):
    """What an actor is started with: a `Server`, whose `init` takes this."""

    def init(self, arg: ArgT_contra) -> Any:
        """As `Server.init`."""

    def behaviour(self) -> Server[Any]:
        """As `Server.behaviour`."""


@final
class ChildEnded:
    """For a supervisor: one of its children ended, and `child` is what it knows that child by."""

    __slots__ = ("child", "process", "reason")

    def __init__(self, child: Any, process: Process, reason: Reason) -> None:
        self.child = child
        self.process = process
        self.reason = reason


@final
@dataclass(frozen=True, slots=True)
class ExitSignal:
    """An exit signal came to this exit-trapping actor (OTP's `{:EXIT, from, reason}`): it decides what that means.

    Either an actor it was linked to has ended, or a caller asked it to end with `exit`. From the parent there is none:
    it calls `terminate`. `sender` is None only if the caller of `Ref.exit` did not say.
    """

    reason: Reason
    sender: Ref | None


class Late(Protocol):
    """What lies in a mailbox in place of a message that is made only when the actor gets to it."""

    def take(self) -> Any:
        """The message to handle now; None if there is none any more."""

"""Why an actor ended, and what its callers are told.

An exit reason is any value, as in Erlang, where any term will do. Five of them mean something to the runtime:

==================  ==========================================================================================
`"normal"`          it finished; none needs to know
`"shutdown"`        what is responsible for it asked it to end
`("shutdown", x)`   the same, and `x` says more
`"killed"`          it was ended without a chance to clean up: it was sent the exit signal `"kill"`
an exception        a callback raised it
==================  ==========================================================================================

`"noproc"` is the reason told about an actor that was not there to begin with. Everything else (`"boom"`, a tuple, an
enum) is a crash as far as supervisors are concerned, exactly like an exception.

This module is pure: it imports no trio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from batonpass.actors.core.ref import Ref

Reason: TypeAlias = object
"""Any value; see the table at the head of `actors.core.exits`."""

NORMAL: Final = "normal"
SHUTDOWN: Final = "shutdown"
KILL: Final = "kill"
KILLED: Final = "killed"
NOPROC: Final = "noproc"
TIMED_OUT: Final = "timeout"


def is_shutdown(reason: Reason) -> bool:
    """Whether `reason` is `"shutdown"` or `("shutdown", anything)`."""
    if isinstance(reason, tuple):
        return len(reason) == 2 and isinstance(reason[0], str) and reason[0] == SHUTDOWN
    return isinstance(reason, str) and reason == SHUTDOWN


def is_normal(reason: Reason) -> bool:
    """Whether `reason` is `"normal"`."""
    return isinstance(reason, str) and reason == NORMAL


def is_kill(reason: Reason) -> bool:
    """Whether `reason`, sent by `Ref.exit`, means to end at once. As the reason of an end it is one like any other."""
    return isinstance(reason, str) and reason == KILL


def is_orderly(reason: Reason) -> bool:
    """Whether it is no reason for alarm: normal or shutdown. Anything else is logged as a crash."""
    return is_normal(reason) or is_shutdown(reason)


def cause_of(reason: Reason) -> BaseException | None:
    """The exception inside a reason, if there is one: so that `raise ... from cause_of(reason)` loses no traceback."""
    if isinstance(reason, tuple) and len(reason) == 2 and is_shutdown(reason):
        reason = reason[1]
    return reason if isinstance(reason, BaseException) else None


def reason_of(error: BaseException) -> BaseException:
    """The one exception inside nested groups of one, else `error` itself.

    trio's nurseries wrap even a single failure in an `ExceptionGroup`; a supervisor wants the failure.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


SHOWN_CHARS: Final = 300
"""How much of a value stands in a sentence. A reason contains the sentence of the one below it, which contains that of
the one below: uncut, with quotes doubled at each step, twenty of them are megabytes."""


def shown(value: object) -> str:
    """`repr(value)`, cut, or what can be said without it: an error about a broken object must not break as well.

    Of what ended a supervisor, its one sentence.
    """
    cause = cause_of(value)
    try:
        text = str(cause) if isinstance(cause, ChildFailure) else repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


class ChildFailure(Exception):
    """A supervisor did not start or continue because of its child `child_id`, and that because of `reason`.

    `reason` may be the failure of a supervisor in its turn. `path` is the way down to the actor that failed first, the
    ids of the children from here on, and `first` is why that did: the sentence names both.
    """

    def __init__(self, before: str, child_id: Hashable, after: str, reason: Reason) -> None:
        below, self.first = trail_of(reason)
        self.path = (child_id, *below)
        self.child_id = child_id
        self.reason = reason
        super().__init__(f"{before}{_shown_path(self.path)}{after}: {shown(self.first)}")


def trail_of(reason: Reason) -> tuple[tuple[Hashable, ...], Reason]:
    """The way down to the first cause of a reason, and that; no ids, and the reason itself, if it is the first."""
    cause = cause_of(reason)
    while isinstance(cause, StartError):
        reason = cause.reason
        cause = cause_of(reason)
    return (cause.path, cause.first) if isinstance(cause, ChildFailure) else ((), reason)


PATH_SHOWN: Final = 8
"""Of the ids on the way to the first cause: half of them from above, half from below."""


def _shown_path(path: Iterable[Hashable]) -> str:
    ids = [shown(child_id) for child_id in path]
    if len(ids) > PATH_SHOWN:
        ids[PATH_SHOWN // 2 : -PATH_SHOWN // 2] = ["…"]
    return " > ".join(ids)


class Exit(Exception):
    """The actor you called ended, or was not there, before it answered.

    `reason` is its exit reason, `actor` says who it was. When the reason is an exception it is also `__cause__`.
    """

    def __init__(self, reason: Reason, actor: str) -> None:
        self.reason = reason
        self.actor = actor
        super().__init__(self._sentence())
        self.__cause__ = cause_of(reason)

    def _sentence(self) -> str:
        return f"{self.actor} exited without an answer: {shown(self.reason)}"


class NoProc(Exit):
    """There is no such actor: it is dead, or none has registered the name."""

    def __init__(self, actor: str) -> None:
        super().__init__(NOPROC, actor)

    def _sentence(self) -> str:
        return f"{self.actor} is not running: it has ended, was never started, or the name is not registered"


class CallTimeout(Exit):
    """The actor is alive but did not answer in time. It continues; its late answer vanishes."""

    def __init__(self, actor: str, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        super().__init__(TIMED_OUT, actor)

    def _sentence(self) -> str:
        return f"{self.actor} did not answer within {self.timeout_s} s (it is still running; see timeout_s)"


class CallingSelf(Exit):
    """An actor called itself from inside a callback: it would have waited for itself for ever."""

    def __init__(self, actor: str) -> None:
        super().__init__("calling_self", actor)

    def _sentence(self) -> str:
        return f"{self.actor} called itself from its own callback; cast, or return then=Continue(...), instead"


class MailboxFull(Exit):
    """The actor's mailbox is at its bound, so the call was refused at once instead of being queued."""

    def __init__(self, actor: str, limit: int) -> None:
        self.limit = limit
        super().__init__("mailbox_full", actor)

    def _sentence(self) -> str:
        return f"{self.actor} has {self.limit} messages waiting, its bound: call less often, or raise mailbox_limit"


class BadReturnValue(Exception):
    """A callback returned something the runtime has no meaning for; the actor crashes with this reason."""

    def __init__(self, actor: str, callback: str, value: object) -> None:
        self.value = value
        super().__init__(f"{actor}: {callback} returned {shown(value)}; see the table of results in actors.core.server")


class StartError(Exception):
    """An actor or service could not be started. `reason` says why; an exception is also `__cause__`."""

    def __init__(self, actor: str, reason: Reason) -> None:
        self.actor = actor
        self.reason = reason
        super().__init__(f"{actor} did not start: {shown(reason)}")
        self.__cause__ = cause_of(reason)


class Ignored(StartError):
    """`init` returned `IGNORE`: the actor chose not to run. A supervisor keeps its specification and continues."""

    def __init__(self, actor: str) -> None:
        super().__init__(actor, "ignore")


class AlreadyStarted(StartError):
    """The name belongs to a living actor, `ref`; the new one was not started."""

    def __init__(self, name: Hashable, ref: Ref) -> None:
        self.ref = ref
        super().__init__(f"{name!r}", f"already_started: the name belongs to {ref}")

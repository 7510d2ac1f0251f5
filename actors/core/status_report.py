"""What an actor lets others see of itself when it crashes or is looked at: never more than `format_status` leaves.

This module is pure: it imports no trio.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.ref import Ref
    from batonpass.actors.core.server import Server


class Nothing(Enum):
    """The type of `NO_MESSAGE` and `NO_REASON`."""

    NO_MESSAGE = "no message"
    NO_REASON = "no reason"


NO_MESSAGE: Final = Nothing.NO_MESSAGE
"""No message was being handled, or the runtime does not know which: an `async def` callback had it."""

NO_REASON: Final = Nothing.NO_REASON
"""The actor is not ending."""

STATUS_CHARACTERS: Final = 400
"""Of each part of a report that goes into a log line: enough to recognise a state, too little to flood a disk."""


NEAREST: Final = 8
"""How many ancestors and callers a log line names."""


@final
@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One actor as `Server.format_status` gets it: return a copy (`dataclasses.replace`) without what is secret.

    `pending` is what a state machine has before it, a `PendingEvents`; None of others, and if it has nothing.
    """

    state: Any
    message: Any = NO_MESSAGE
    reason: Reason = NO_REASON
    pending: Any = None


def formatted(server: Server[Any], status: ServerStatus) -> ServerStatus:
    """What the server lets be seen of `status`; nothing at all if its `format_status` fails."""
    try:
        shown = server.format_status(status)
        if type(shown) is not ServerStatus:
            raise TypeError(f"format_status returned {type(shown).__name__}, not a ServerStatus")
    except Exception as error:
        failure = f"<format_status failed: {type(error).__name__}>"
        return ServerStatus(failure, failure if status.message is not NO_MESSAGE else NO_MESSAGE)
    return shown


def crash_report(server: Server[Any], status: ServerStatus) -> str:
    """The rest of the log line about a crash: the message that was being handled, and the state, as far as known."""
    shown = formatted(server, status)
    parts = []
    if shown.message is not NO_MESSAGE:
        parts.append(f"; its last message: {_short(shown.message)}")
    if shown.state is not None:
        parts.append(f"; its state: {_short(shown.state)}")
    if shown.pending is not None:
        parts.append(f"; {_short(shown.pending)}")
    return "".join(parts)


def origin_report(ancestors: Sequence[Ref], callers: Sequence[Ref], metadata: Mapping[str, Any]) -> str:
    """The end of the log line about any crash: who started it, for whom it worked, and what it said it works on."""
    parts = []
    if ancestors:
        parts.append(f"; its ancestors: {_nearest(ancestors)}")
    if callers:
        parts.append(f"; its callers: {_nearest(callers)}")
    if metadata:
        parts.append(f"; {_short(dict(metadata))}")
    return "".join(parts)


def _nearest(refs: Sequence[Ref]) -> str:
    shown = ", ".join(map(str, refs[:NEAREST]))
    return shown if len(refs) <= NEAREST else f"{shown} and {len(refs) - NEAREST} more"


def _short(value: Any) -> str:
    """Never longer than `STATUS_CHARACTERS`, and never an error, whatever `__repr__` does."""
    try:
        text = _SHORT.repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= STATUS_CHARACTERS else f"{text[: STATUS_CHARACTERS - 3]}..."


_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = STATUS_CHARACTERS // 4

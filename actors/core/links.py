"""Links: two actors that share their fate, as in Erlang.

A link has no direction, and there is one or none between two actors. When one of them ends, for whatever reason, the
other gets an exit signal with that reason and that sender, once, and the link is gone:

====================================  ============================  ==================================
the one ended with                    the other, not trapping       the other, with `trap_exit`
====================================  ============================  ==================================
`"normal"`                            continues                       `ExitSignal("normal", sender)`
anything else, `"kill"` included      ends with the same reason     `ExitSignal(reason, sender)`
`"killed"`, because it was killed     ends with `"killed"`          `ExitSignal("killed", sender)`
anything, and it was the parent       by the rows above             `terminate(reason)`, and ends
====================================  ============================  ==================================

The parent is who started it: its supervisor, or the actor that called `start_link`. Linking to an actor that has ended
is an error, `NoProc`, or `ExitSignal("noproc", ref)` for one that traps exits. (Every row was observed in Elixir; see
`tests/actors/oracle/otp_oracle.txt`.)

A link is kept as two of the watches that every actor can have, so actors without links pay nothing for them.

This module is pure: it imports no trio.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.process import Process


@final
class LinkSignals:
    """The exit signals of one system that are on their way along links.

    They arrive within the same synchronous step in which an actor ends, but one after the other and not one inside the
    other: a chain of a hundred thousand links must not be a hundred thousand deep on Python's stack.
    """

    __slots__ = ("_delivering", "pending")

    def __init__(self) -> None:
        self.pending: deque[tuple[Process, Reason, Process]] = deque()
        self._delivering = False

    def send(self, peer: Process, reason: Reason, sender: Process) -> None:
        """`sender` has ended, and `peer` was linked to it."""
        self.pending.append((peer, reason, sender))

    def deliver(self) -> None:
        """Let every signal arrive, and those that this causes. From inside such a delivery: nothing, it continues."""
        if self._delivering:
            return
        self._delivering = True
        try:
            while self.pending:
                peer, reason, sender = self.pending.popleft()
                peer.exit(reason, sender.ref)
        finally:
            self._delivering = False

"""The part of a server's process that its callbacks do not control: requests of `actors.observe.sys`, and suspension.

A suspended actor is `scheduled`, so a sender of something only puts that into its mailbox, and it is not in the
run queue, so it gets no turn: the hot path knows nothing of suspension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from batonpass.actors.core.exits import Exit, NoProc, Reason
from batonpass.actors.core.messages import ExitSignal
from batonpass.actors.core.process import ALIVE_STILL, Process, Status
from batonpass.actors.core.ref import STOP, SYSTEM, From

if TYPE_CHECKING:
    from batonpass.actors.core.debug import SystemRequest

CONTROLS: Final = (STOP, SYSTEM)
"""What a suspended actor takes from its mailbox."""


def stop_reason(payload: Any) -> Reason:
    """What a `STOP` in the mailbox says: a reason, or the exit signal of a parent."""
    return payload.reason if type(payload) is ExitSignal else payload


class ControlledProcess(Process):
    """A process that can be suspended; see the head of the module."""

    __slots__ = ()

    @property
    def suspended(self) -> bool:
        """Whether it handles no messages until it is resumed."""
        return self in self.system.debug.suspended

    def submit_system(self, request: SystemRequest) -> None:
        """Queue a request to the runtime; at once if suspended. Raises `NoProc` or `Exit` if it has ended or ends."""
        if self.status is Status.DEAD:
            raise NoProc(str(self.ref))
        if self.status is Status.EXITING or self.pending_exit is not ALIVE_STILL:
            reason = self.reason if self.pending_exit is ALIVE_STILL else self.pending_exit
            raise Exit(reason, str(self.ref))
        self._deliver_control(SYSTEM, request)

    def suspend(self) -> None:
        """Handle no messages after this. For a `SystemRequest`, which returns `SUSPENDED` then."""
        self.system.debug.suspended.add(self)

    def resume(self) -> None:
        """Handle messages again."""
        if self.suspended:
            self.system.debug.suspended.discard(self)
            self._resume()

    def _rest(self) -> None:
        """Suspended from now on: `scheduled`, so it is given no turn, and takes none itself.

        Requests and stops overtake the messages that wait, as they do in OTP.
        """
        requests_first = sorted(self.mailbox, key=lambda entry: entry[0] not in CONTROLS)
        self.mailbox.clear()
        self.mailbox.extend(requests_first)
        while self.suspended and self.mailbox and self.mailbox[0][0] in CONTROLS:
            kind, payload, _ = self.mailbox.popleft()
            self._obey(kind, payload)

    def _deliver_control(self, kind: int, payload: Any) -> None:
        if self.suspended:
            self.context.run(self._obey, kind, payload)
        else:
            self._deliver(kind, payload)

    def _obey(self, kind: int, payload: Any) -> None:
        """Do now what overtakes messages. The actor is suspended, so none of its callbacks is at work."""
        if kind == SYSTEM:
            payload.serve(self)
        else:
            self.system.debug.suspended.discard(self)
            self._terminate(stop_reason(payload), None)

    # What a server does anyway

    def _deliver(self, kind: int, message: Any) -> None:
        """Put a message into the mailbox."""
        raise NotImplementedError

    def _resume(self) -> None:
        """Back to the run queue if there is more to do, else idle."""
        raise NotImplementedError

    def _terminate(self, reason: Reason, from_: From | None) -> None:
        """End in order."""
        raise NotImplementedError

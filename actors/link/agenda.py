"""What a link has to see to besides messages and acknowledgements: timers, answers that wait, news, handshakes."""

from collections import deque

from batonpass.actors.link.events import Event
from batonpass.actors.link.sessions import LinkSessions
from batonpass.actors.link.settings import Address


class Agenda:
    """One per link; all of its parts write here."""

    __slots__ = ("_sessions", "events", "is_usual", "replies", "timer_s")

    def __init__(self, sessions: LinkSessions, now: float) -> None:
        self._sessions = sessions
        self.timer_s = now
        """Nothing but acknowledging is due before this."""
        self.replies: deque[tuple[bytes, Address]] = deque()
        """Answers that must go where their question came from."""
        self.events: deque[Event] = deque()
        """News that was not asked for yet."""

        self.is_usual = False
        """What the short way takes to be so still is (`actors.link.prediction`): nothing else was called since it was
        looked at."""

    @property
    def is_clear(self) -> bool:
        """But for its time, nothing needs attention."""
        return not (self.replies or self.events) and self._sessions.is_settled

    def is_unsettled(self, now: float) -> bool:
        """Something beside data and acknowledgements needs attention."""
        return bool(now >= self.timer_s or self.replies or self.events or not self._sessions.is_settled)

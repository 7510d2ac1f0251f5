"""How long a peer has been silent although it owes an answer, and what that means."""

from collections import deque

from batonpass.actors.link.events import Event, PeerReachable
from batonpass.actors.link.settings import NEVER, LinkSettings


class Silence:
    """One per link. The sending side says since when an answer is due, the receiving side what ends the silence."""

    __slots__ = ("_events", "due_since_s", "is_given_up", "is_unreachable", "last_activity_s", "settings", "was_met")

    def __init__(self, settings: LinkSettings, events: deque[Event], now: float) -> None:
        self.settings = settings
        self._events = events
        self.due_since_s = NEVER
        """Since when the peer owes us an answer."""
        self.last_activity_s = now
        """When something was queued for the peer, or heard from it."""
        self.was_met = False
        """The peer has proved its name to this link."""
        self.is_unreachable = False
        """It was silent for so long that the application was told."""
        self.is_given_up = False
        """It has kept other peers waiting: all that is left to do is to expire."""

    @property
    def is_away(self) -> bool:
        """The peer counts as unreachable, or is given up."""
        return self.is_unreachable or self.is_given_up

    def heard(self, now: float) -> None:
        """The peer has proved to be there."""
        self.last_activity_s = now
        self.due_since_s = NEVER
        if self.is_unreachable:
            self.is_unreachable = False
            self._events.append(PeerReachable())

    @property
    def verdict_s(self) -> float:
        """When silence has lasted long enough to say that the peer is away, or to give it up."""
        if self.is_given_up:
            return -NEVER
        limit_s = self.settings.give_up_after_s if self.is_unreachable else self.settings.unreachable_after_s
        return self.due_since_s + limit_s

    def reopen_s(self, probe_timeout_s: float) -> float:
        """When silence calls for a new handshake beside the session there is."""
        return self.due_since_s + max(self.settings.reopen_after_s, 3 * probe_timeout_s)

    def expiry_s(self, *, is_wanted: bool) -> float:
        """When a link without traffic and without duties is forgotten.

        One that only a HELLO asked for, which may be a recording, does not wait longer than for its CONFIRM.
        """
        is_kept = self.was_met or is_wanted
        return self.last_activity_s + (self.settings.idle_expiry_s if is_kept else self.settings.retire_after_s)

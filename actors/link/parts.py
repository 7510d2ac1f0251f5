"""What both directions of a link work with."""

from collections import Counter
from typing import NamedTuple

from batonpass.actors.link.agenda import Agenda
from batonpass.actors.link.arrivals import DatagramArrivals
from batonpass.actors.link.incoming import IncomingMessages
from batonpass.actors.link.outgoing import OutgoingMessages
from batonpass.actors.link.path import Path
from batonpass.actors.link.recovery import LossRecovery
from batonpass.actors.link.sessions import LinkSessions
from batonpass.actors.link.silence import Silence


class LinkParts(NamedTuple):
    """The parts of one link, as `Link` has wired them."""

    sessions: LinkSessions
    path: Path
    incoming: IncomingMessages
    outgoing: OutgoingMessages
    recovery: LossRecovery
    arrivals: DatagramArrivals
    agenda: Agenda
    silence: Silence
    counters: Counter[str]


class WithParts:
    """Has them at hand one by one: every datagram uses them."""

    __slots__ = (
        "_agenda",
        "_arrivals",
        "_counters",
        "_incoming",
        "_outgoing",
        "_path",
        "_recovery",
        "_sessions",
        "_silence",
    )

    def __init__(self, parts: LinkParts) -> None:
        self._sessions = parts.sessions
        self._path = parts.path
        self._incoming = parts.incoming
        self._outgoing = parts.outgoing
        self._recovery = parts.recovery
        self._arrivals = parts.arrivals
        self._agenda = parts.agenda
        self._silence = parts.silence
        self._counters = parts.counters

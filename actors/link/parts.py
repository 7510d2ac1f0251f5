"""What both directions of a link work with."""

from collections import Counter
from typing import NamedTuple

from actors.link.agenda import Agenda
from actors.link.arrivals import Arrivals
from actors.link.incoming import Incoming
from actors.link.outgoing import Outgoing
from actors.link.path import Path
from actors.link.recovery import Recovery
from actors.link.sessions import Sessions
from actors.link.silence import Silence


class Parts(NamedTuple):
    """The parts of one link, as `Link` has wired them."""

    sessions: Sessions
    path: Path
    incoming: Incoming
    outgoing: Outgoing
    recovery: Recovery
    arrivals: Arrivals
    agenda: Agenda
    silence: Silence
    counters: Counter[str]

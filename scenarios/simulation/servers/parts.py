"""Of what simulated servers are made: the real parts, of which a weakened variant exchanges one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from authority.recovery import CopyTable
from authority.spans import SILENT, Spans
from homeserver.certification import Certification
from homeserver.company import Company
from homeserver.farewells import Farewells
from homeserver.leases import Leases
from homeserver.recovery import Recoveries
from scenarios.players import InputStream
from simserver.arrivals import Arrivals
from simserver.births import Births
from simserver.copies import Copier
from simserver.departures import Departures
from simserver.holdings import Holdings
from simserver.lease import LeaseKeeper
from simserver.newborns import Newborns
from simserver.recovery import Recovery
from simserver.silence import Silences

__all__ = ["Parts"]


def _silent(server: str, now_ns: Callable[[], int]) -> Spans:
    """Nobody listens."""
    return SILENT


@dataclass(frozen=True)
class Parts:
    """The classes of which servers, and players, are made."""

    departures: type[Departures] = Departures
    arrivals: type[Arrivals] = Arrivals
    holdings: type[Holdings] = Holdings
    lease: type[LeaseKeeper] = LeaseKeeper
    copier: type[Copier] = Copier
    table: type[CopyTable] = CopyTable
    recovery: type[Recovery] = Recovery
    leases: type[Leases] = Leases
    recoveries: type[Recoveries] = Recoveries
    stream: type[InputStream] = InputStream
    silences: type[Silences] = Silences
    births: type[Births] = Births
    newborns: type[Newborns] = Newborns
    farewells: type[Farewells] = Farewells
    company: type[Company] = Company
    certification: type[Certification] = Certification
    spans: Callable[[str, Callable[[], int]], Spans] = _silent
    """What a server tells of hand-overs, by its name and its monotonic nanoseconds; once for each of its lives."""
    procedures: Mapping[str, Any] = field(default_factory=dict)
    """Procedures of the log that are other than the real ones."""

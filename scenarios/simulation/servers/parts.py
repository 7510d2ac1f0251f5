"""Of what simulated servers are made: the real parts, of which a mutant exchanges one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batonpass.authority.machines.replica_choice import CopyTable
from batonpass.authority.node.spans import SILENT, Spans
from batonpass.homeserver.node.composition import RENEW_AFTER, Kinds
from batonpass.scenarios.players.input_stream import InputStream
from batonpass.simserver.durability.creation_barrier import Newborns
from batonpass.simserver.durability.replication import Copier
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.failover.adoption import Recovery
from batonpass.simserver.failover.spawn import Births
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.owners.inactivity import Silences
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.target.arrivals import Arrivals

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
    home: Kinds = field(default_factory=Kinds)
    renew_after: int = RENEW_AFTER
    stream: type[InputStream] = InputStream
    silences: type[Silences] = Silences
    births: type[Births] = Births
    newborns: type[Newborns] = Newborns
    spans: Callable[[str, Callable[[], int]], Spans] = _silent
    """What a server tells of hand-overs, by its name and its monotonic nanoseconds; once for each of its lives."""
    procedures: Mapping[str, Any] = field(default_factory=dict)
    """Procedures of the log that are other than the real ones."""
